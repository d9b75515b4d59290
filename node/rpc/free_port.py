"""Whether the gRPC server's address can be bound; asked before gRPC itself is loaded."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress

from kakeya_fleet.node.config.config import join_address
from kakeya_fleet.node.errors import PortInUse


def require_free(host: str, port: int) -> None:
    """Raises `PortInUse` with the system's word; gRPC only says that it cannot bind."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            raise port_in_use(host, port, error.strerror or type(error).__name__) from error


def first_free(host: str, ports: Iterable[int]) -> int:
    """The first of `ports` that can be bound at this moment; 0, any free one, where none can."""
    for port in ports:
        with suppress(PortInUse):
            require_free(host, port)
            return port
    return 0


def port_in_use(host: str, port: int, fault: str) -> PortInUse:
    """The error for an address that cannot be bound."""
    return PortInUse(
        f"the address {join_address(host, port)} cannot be bound ({fault})",
        f"end what listens on port {port}, or choose another with --bind {host}:0",
        address=join_address(host, port),
        port=str(port),
    )
