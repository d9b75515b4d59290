"""Binding the socket of HTTP, with an error that names the port."""

from __future__ import annotations

import contextlib
import socket

from kakeya_fleet.node.config.config import join_address
from kakeya_fleet.node.errors import PortInUse

BACKLOG = 128
ANY_HOST = frozenset({"0.0.0.0", "::"})
"""Hosts that stand for every interface."""


def http_socket(host: str, port: int, last_port: int) -> socket.socket:
    """A bound socket; port 0 takes `last_port` when that is free, else any free one.

    Raises `PortInUse`.
    """
    if port == 0 and last_port:
        with contextlib.suppress(PortInUse):
            return _bound(host, last_port)
    return _bound(host, port)


def _bound(host: str, port: int) -> socket.socket:
    opened: socket.socket | None = None
    try:
        # Given bytes it loads no tables of the world's letters, 1 MB.
        sought = host.encode() if host.isascii() else host
        found = socket.getaddrinfo(sought, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _canonical, address = found[0]
        opened = socket.socket(family, kind, protocol)
        # A port whose last owner has just ended is free again.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == "::":
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        opened.bind(address)
        opened.listen(BACKLOG)
        opened.setblocking(False)  # noqa: FBT003 - the socket's own signature
    except OSError as error:
        if opened is not None:
            opened.close()
        name = join_address(host, port)
        raise PortInUse(
            f"the address {name} for HTTP cannot be bound ({error.strerror})",
            "choose another with --http, or --http off",
            address=name,
        ) from error
    return opened
