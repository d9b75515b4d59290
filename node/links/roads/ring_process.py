"""The child process of one end of a ring: started, watched, killed, reaped.

All that it shares with the agent has no name: two socket pairs, the segment, MLX's
hostfile and its error output are inherited descriptors.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import kakeya_fleet
from kakeya_fleet.engine.backends.mlx_ring.protocol import Frame, Pieces, RingStart
from kakeya_fleet.node.links.roads.contract import RoadFailed
from kakeya_fleet.node.links.roads.segment import Segment, anonymous_file

CHILD = "kakeya_fleet.engine.backends.mlx_ring.ring_child"
ERROR_TAIL_BYTES = 2000


@dataclass(frozen=True, slots=True)
class RingSeat:
    """A rank and the addresses of both, host:port, rank 0 first."""

    rank: int
    addresses: tuple[str, str]

    @property
    def hostfile(self) -> bytes:
        """As MLX reads it: for each rank the addresses of its connections."""
        return json.dumps([[address] for address in self.addresses]).encode()


class RingProcess:
    """A running child. `outgoing` and `incoming` are the agent's ends of its sockets."""

    def __init__(self, seat: RingSeat, segment: Segment) -> None:
        """Starts it. Raises `RoadFailed`.

        Linux kills the child with the thread that started it: call it in the event
        loop's, which lives as long as the agent. Takes a few milliseconds.
        """
        try:
            with ExitStack() as given_away, ExitStack() as kept:
                self.outgoing, child_outgoing = _sockets(kept, given_away)
                self.incoming, child_incoming = _sockets(kept, given_away)
                hostfile = _filled(seat.hostfile, given_away)
                self._errors = _filled(b"", kept)
                inherited = (child_outgoing, child_incoming, segment.descriptor, hostfile)
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", CHILD, str(os.getpid()), *map(str, inherited)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                    env=_environment(seat.rank, hostfile),
                    pass_fds=inherited,
                    # Ctrl-C is the agent's to handle.
                    start_new_session=True,
                )
                kept.pop_all()
        except OSError as error:
            raise RoadFailed(f"no process for the ring: {error}") from error
        self._reaping: asyncio.Task[str] | None = None

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def close_sockets(self) -> None:
        """When nothing else has taken them over."""
        self.outgoing.close()
        self.incoming.close()

    def kill(self) -> None:
        """Ends it at once, a stopped one too, and sees to it that no zombie stays."""
        if self._reaping is None:
            self._process.kill()
            self._reaping = asyncio.create_task(self._reap())

    async def ended(self) -> str:
        """Kills it when it still runs, and says how it ended, with its last words."""
        self.kill()
        assert self._reaping is not None
        return await asyncio.shield(self._reaping)

    async def _reap(self) -> str:
        try:
            status = await asyncio.to_thread(self._process.wait)
            size = os.fstat(self._errors).st_size
            tail = os.pread(self._errors, ERROR_TAIL_BYTES, max(0, size - ERROR_TAIL_BYTES))
        finally:
            os.close(self._errors)
        words = tail.decode("utf-8", "replace").strip().splitlines()
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return f"{how}: {words[-1]}" if words else how


def start_message(seat: RingSeat, nonce: bytes, pieces: Pieces, seconds: float) -> Frame:
    """What the child is told; it ends itself when the ring does not stand in so many seconds."""
    return RingStart(nonce.hex(), seat.rank, pieces.piece_bytes, pieces.slot_count, seconds).frame()


def _sockets(kept: ExitStack, given_away: ExitStack) -> tuple[socket.socket, int]:
    """A pair: the end of this process, and the descriptor of the child's."""
    own, child = socket.socketpair()
    kept.callback(own.close)
    given_away.callback(child.close)
    return own, child.fileno()


def _filled(content: bytes, stack: ExitStack) -> int:
    """A nameless file with that content, read from its beginning."""
    descriptor = anonymous_file(None)
    stack.callback(os.close, descriptor)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _environment(rank: int, hostfile: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MLX_")}
    root = str(Path(kakeya_fleet.__file__).parents[1])
    paths = [root, *filter(None, [kept.get("PYTHONPATH")])]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(paths),
        "MLX_RANK": str(rank),
        "MLX_HOSTFILE": f"/dev/fd/{hostfile}",
    }
