"""The archive's side of `scripts.bench.attend`, in a process of its own.

    python -m scripts.bench.attend_host 8GiB --host 127.0.0.1 --core 0

Serves an archive, and plain bytes. Prints their
ports as one line of JSON, and ends when its standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import struct
import sys
import threading
import time
from contextlib import suppress

import torch

from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.config.role_spec import archive_bytes
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.served_archive import ServedArchive

COUNT = struct.Struct("<Q")
"""Bytes that a connection asks for."""
BLOCK_BYTES = 64 << 20
"""Sent again and again: more than caches hold, as keys and values are."""
PIECE_BYTES = 4 << 20


class PlainBytes:
    """Sends as many bytes as it is asked for: no way to read keys and values back outdoes it."""

    def __init__(self, host: str) -> None:
        self._listener = socket.create_server((host, 0))
        self._block = memoryview(os.urandom(BLOCK_BYTES))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection, suppress(OSError):
            while asked := connection.recv(COUNT.size, socket.MSG_WAITALL):
                (left,) = COUNT.unpack(asked)
                at = 0
                while left:
                    count = min(left, PIECE_BYTES, BLOCK_BYTES - at)
                    connection.sendall(self._block[at : at + count])
                    at = (at + count) % BLOCK_BYTES
                    left -= count


async def serve(amount: str, host: str) -> None:
    """Serves until the standard input ends."""
    metrics = NodeMetrics()
    role = await ServedArchive.start(
        archive_bytes(amount),
        {},
        metrics,
        time.monotonic,
        host=host,
        allowances=Allowances(Limits(), metrics),
    )
    print(json.dumps({"archive": role.offer.port, "plain": PlainBytes(host).port}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await role.close()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("amount", help="bytes, such as 8GiB")
    parser.add_argument("--host", required=True)
    parser.add_argument("--core", type=int, required=True)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {arguments.core})
    torch.set_num_threads(1)
    asyncio.run(serve(arguments.amount, arguments.host))


if __name__ == "__main__":
    main()
