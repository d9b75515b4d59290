"""Addresses of nodes: host:port."""

from __future__ import annotations

import ipaddress
import re

MAX_HOST_CHARACTERS = 253

_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\.?")


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[IPv6]:port`.

    Raises `ValueError` when the host is no name and no IP address, or the port
    is not in 1 to 65,535.
    """
    host, colon, digits = address.rpartition(":")
    if not colon or not digits.isascii() or not digits.isdigit() or len(digits) > 5:
        raise ValueError(f"{address!r} is not host:port")
    port = int(digits)
    if not 1 <= port <= 65535:
        raise ValueError(f"{address!r} has a port outside 1 to 65535")
    if host.startswith("[") and host.endswith("]"):
        return str(ipaddress.IPv6Address(host[1:-1])), port
    if len(host) > MAX_HOST_CHARACTERS or not _HOST.fullmatch(host):
        raise ValueError(f"{address!r} has no host name or address")
    return host, port
