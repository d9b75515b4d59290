"""A port of this host for one rank of one generation of a ring."""

from __future__ import annotations

import socket

from kakeya_fleet.node.links.roads.contract import RoadFailed


class RingPort:
    """A free port, held until `close`.

    MLX binds it too: it sets SO_REUSEADDR and SO_REUSEPORT, and this socket never
    listens, so that connections reach MLX's alone. Others who ask for any free port
    do not get it.
    """

    def __init__(self, host: str) -> None:
        """Takes one on `host`, an IPv4 address or a name of one. Raises `RoadFailed`."""
        try:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        except OSError as error:
            raise RoadFailed(f"no socket for the ring: {error}") from error
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._socket.bind((host, 0))
        except OSError as error:
            self._socket.close()
            raise RoadFailed(f"no port for the ring on {host}: {error}") from error
        host, port = self._socket.getsockname()
        self.address = f"{host}:{port}"

    def close(self) -> None:
        """Lets go of it."""
        self._socket.close()
