"""Bytes over an mlx.distributed ring of two processes, with nothing of this engine between.

    python -m scripts.bench.bare_ring RANK PIECE_BYTES

is one of the two; `BareRing` starts both. A rank reads one line of JSON at a time,
`[payload bytes, repeats]`; rank 0 sends, and answers with the seconds of each until
rank 1 has said that it has all of it.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HOST = "127.0.0.1"
START_SECONDS = 60.0
TRANSFER_SECONDS = 60.0
"""A ring that lost something waits for ever."""
WHOLE = 0
"""For the bytes of a piece: each payload is one array."""


class RingFailed(Exception):
    """A rank has ended, or is silent."""


class BareRing:
    """Both ranks from outside; ends with `close`."""

    def __init__(self, piece_bytes: int = WHOLE) -> None:
        """Raises `RingFailed` when it does not form."""
        self._folder = tempfile.TemporaryDirectory(prefix="kakeya-ring-")
        hosts = Path(self._folder.name, "hosts.json")
        hosts.write_text(json.dumps([[f"{HOST}:{port}"] for port in free_ports(2)]))
        self._ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "scripts.bench.bare_ring", str(rank), str(piece_bytes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "MLX_RANK": str(rank), "MLX_HOSTFILE": str(hosts)},
            )
            for rank in (0, 1)
        ]
        for rank in (0, 1):
            self._answer(rank, START_SECONDS)

    def transfers(self, payload_bytes: int, repeats: int) -> list[float]:
        """Seconds of each. Raises `RingFailed`."""
        told = json.dumps([payload_bytes, repeats]).encode() + b"\n"
        for rank in (1, 0):
            pipe = self._ranks[rank].stdin
            if pipe is None:
                raise RingFailed("a rank was started without pipes")
            pipe.write(told)
            pipe.flush()
        found: list[float] = json.loads(self._answer(0, TRANSFER_SECONDS))
        self._answer(1, TRANSFER_SECONDS)
        return found

    def close(self) -> None:
        """Ends both; a ring that hangs does not end by itself."""
        for process in self._ranks:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self._folder.cleanup()

    def _answer(self, rank: int, seconds: float) -> bytes:
        pipe = self._ranks[rank].stdout
        ready = select.select([pipe], [], [], seconds)[0] if pipe is not None else []
        told = pipe.readline() if pipe is not None and ready else b""
        if not told:
            self.close()
            raise RingFailed(f"rank {rank} of the bare ring {'ended' if ready else 'is silent'}")
        return told


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listened at a moment ago."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [entry.getsockname()[1] for entry in sockets]
    for entry in sockets:
        entry.close()
    return ports


def pieces(payload_bytes: int, piece_bytes: int) -> Iterator[int]:
    """Bytes of each array that a payload is sent as."""
    most = piece_bytes or payload_bytes
    for start in range(0, payload_bytes, most):
        yield min(most, payload_bytes - start)


def main() -> None:
    """One rank, until its standard input ends."""
    import mlx.core as mx  # noqa: PLC0415 - only a rank needs it

    rank, piece_bytes = int(sys.argv[1]), int(sys.argv[2])
    group = mx.distributed.init(strict=True, backend="ring")
    stream = mx.new_stream(mx.cpu)
    answer = mx.zeros((8,), mx.uint8)
    mx.eval(answer)
    print("ready", flush=True)
    for line in sys.stdin:
        payload_bytes, repeats = json.loads(line)
        sizes = list(pieces(payload_bytes, piece_bytes))
        arrays = [mx.zeros((size,), mx.uint8) for size in sizes] if rank == 0 else []
        mx.eval(arrays)
        found = []
        for _ in range(repeats):
            began = time.perf_counter()
            if rank == 0:
                for array in arrays:
                    mx.eval(mx.distributed.send(array, 1, group=group, stream=stream))
                mx.eval(mx.distributed.recv((8,), mx.uint8, 1, group=group, stream=stream))
            else:
                for size in sizes:
                    mx.eval(mx.distributed.recv((size,), mx.uint8, 0, group=group, stream=stream))
                mx.eval(mx.distributed.send(answer, 0, group=group, stream=stream))
            found.append(time.perf_counter() - began)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
