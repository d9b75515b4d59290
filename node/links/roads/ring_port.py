"""A port of this host for one rank of one generation of a ring."""

from __future__ import annotations

import ipaddress
import random
import socket
import sys

from kakeya_fleet.node.links.roads.contract import RoadFailed


class RingPort:
    """A free port, held until `close`.

    MLX binds it too: it sets SO_REUSEADDR and SO_REUSEPORT, and this socket never
    listens, so that connections reach MLX's alone. Others who ask for any free port
    do not get it.

    MLX takes whoever connects first for its peer, and the port may be that of a node that has gone
    and is still called. A ring on loopback has an address of its own, where nobody calls one.
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
            self._socket.bind((_uncalled(socket.gethostbyname(host)), 0))
        except OSError as error:
            self._socket.close()
            raise RoadFailed(f"no port for the ring on {host}: {error}") from error
        host, port = self._socket.getsockname()
        self.address = f"{host}:{port}"

    def close(self) -> None:
        """Lets go of it."""
        self._socket.close()


def _uncalled(address: str) -> str:
    """Any address of loopback for one of loopback, where all of 127.0.0.0/8 is this host's."""
    if sys.platform != "linux" or not ipaddress.IPv4Address(address).is_loopback:
        return address
    # Chance against coincidence, not against attackers: the ring proves its peer.
    return f"127.{random.randint(64, 191)}.{random.randint(0, 255)}.{random.randint(1, 254)}"
