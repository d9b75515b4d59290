"""How an archive ends a data connection, so that its last words are read."""

from __future__ import annotations

import socket
import time

from google.rpc import status_pb2

from kakeya_fleet.node.roles.archive.data_frames import (
    Frame,
    Kind,
    limit_waits,
    parts_of,
    send_parts,
)
from kakeya_fleet.node.trust.sealed_stream import ByteStream


def tell(
    connection: socket.socket, stream: ByteStream, status: status_pb2.Status, seconds: float
) -> None:
    """Sends an error by the connection's stream, and hears the other end out."""
    try:
        limit_waits(connection, reading=seconds, writing=seconds)
        send_parts(stream, *parts_of(Frame(Kind.ERROR), status.SerializeToString()))
    except OSError:
        # It is gone, or does not listen.
        return
    hear_out(connection, seconds)


def hear_out(connection: socket.socket, seconds: float) -> None:
    """Reads what was under way until the other end has closed: a reset would undo what was sent."""
    deadline = time.monotonic() + seconds
    try:
        limit_waits(connection, reading=seconds, writing=seconds)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16) and time.monotonic() < deadline:
            pass
    except OSError:
        # It is gone, or does not listen.
        return


def shut(connection: socket.socket, how: int) -> None:
    """Ends a direction, or both, from any thread."""
    try:
        connection.shutdown(how)
    except OSError:
        # It has ended already.
        return
