"""Under which names a node may be asked by HTTP.

A page of elsewhere reaches a loopback server by a name of its own that it lets
point to 127.0.0.1 (DNS rebinding); its browser then takes our answers for the
page's own. The Host header tells: it has the name that was asked for.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from kakeya_fleet.node.config.config import is_loopback

_NEVER_IN_A_HOST = frozenset("@/?#\\")


class OwnHosts:
    """The names of this node: the address that a connection came to, and configured ones."""

    def __init__(self, names: Iterable[str]) -> None:
        """`names` are the host that was bound, the machine's own, and those that people add."""
        self._names = frozenset(name.lower().rstrip(".") for name in names if name)

    def allows_host(self, header: str, reached_at: str) -> bool:
        """Whether a Host header names this node; `reached_at` is the connection's own address."""
        name = _host_name(f"//{header}")
        if not name or _NEVER_IN_A_HOST & set(header):
            return False
        if name in self._names:
            return True
        if name == "localhost" or name.endswith(".localhost"):
            return is_loopback(_plain(reached_at))
        return _same_address(name, reached_at)

    def allows_origin(self, origin: str, host: str) -> bool:
        """Whether a page of `origin` is of this node itself, asked for as `host`."""
        split = urlsplit(origin)
        return split.scheme in {"http", "https"} and split.netloc.lower() == host.lower()


def _host_name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower().rstrip(".")
    except ValueError:
        return ""


def _plain(address: str) -> str:
    """An IPv4 address that a socket of both kinds shows as an IPv6 one."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped or parsed)


def _same_address(name: str, reached_at: str) -> bool:
    try:
        return ipaddress.ip_address(name) == ipaddress.ip_address(_plain(reached_at))
    except ValueError:
        return False
