"""Bytes over one plain TCP connection, each payload acknowledged: what links are compared with.

    python -m scripts.bench.raw_tcp 127.0.0.1

Prints its port and takes payloads until its standard input ends.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from scripts.support.child_process import Behind, ChildProcess

HEADER = struct.Struct("<Q")
"""Bytes of the payload that follows; sent back when it has arrived."""


class Ended(Exception):
    """The other end has closed the connection."""


def read_exactly(connection: socket.socket, into: memoryview) -> None:
    """Fills `into`. Raises `Ended`, `OSError`."""
    there = 0
    while there < len(into):
        count = connection.recv_into(into[there:])
        if not count:
            raise Ended
        there += count


def serve(connection: socket.socket) -> None:
    """Takes payloads into one buffer until the connection ends."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    header = memoryview(bytearray(HEADER.size))
    buffer = memoryview(bytearray(1))
    with connection, suppress(Ended, OSError):
        while True:
            read_exactly(connection, header)
            (size,) = HEADER.unpack(header)
            if size > len(buffer):
                buffer = memoryview(bytearray(size))
            read_exactly(connection, buffer[:size])
            connection.sendall(header)


class RawTcp:
    """The sending end."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answer = memoryview(bytearray(HEADER.size))

    def transfer(self, data: memoryview) -> float:
        """Seconds until this end knows that the other one has `data`. Raises `Ended`, `OSError`."""
        began = time.perf_counter()
        header = HEADER.pack(len(data))
        sent = self._socket.sendmsg((header, data)) - len(header)
        self._socket.sendall(data[sent:])
        read_exactly(self._socket, self._answer)
        return time.perf_counter() - began

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()


@contextmanager
def raw_tcp_peer(host: str = "127.0.0.1", behind: Behind = list) -> Iterator[RawTcp]:
    """A connection to a taking end in a process of its own. Raises `ChildProcessError`."""
    with (
        ChildProcess("scripts.bench.raw_tcp", [host], behind) as child,
        closing(RawTcp(host, int(child.hear()))) as connection,
    ):
        yield connection


def main() -> None:
    """Listens at a free port of the host, and serves every connection in a thread."""
    listener = socket.create_server((sys.argv[1], 0))
    print(listener.getsockname()[1], flush=True)

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
