r"""One end of a ring of two, in a process that may be killed at any moment.

    python -m kakeya_fleet.engine.backends.mlx_ring.ring_child \
        PARENT OUTGOING INCOMING SEGMENT HOSTFILE

PARENT is the agent's process id, the others are file descriptors: a socket for each
direction, the shared segment, MLX's hostfile. The environment has MLX_RANK and
MLX_HOSTFILE.

A group of MLX's ring takes strangers for its peer, reports success of what was lost,
and hangs after its first fault. So the peer is proven before READY, and every fault
ends the process at once: the group is never touched again, and this process never
waits for its threads.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kakeya_fleet.engine.backends.mlx_ring.protocol import (
    PROOF_BYTES,
    Frame,
    FrameKind,
    FrameReader,
    Pieces,
    RingStart,
    is_proof,
    proof,
)

# Rank 0 listens before it connects; when rank 1 comes too early, MLX waits a whole second.
LISTENING_SECONDS = 0.15
# Looks for a changed parent and closed sockets, where nothing better is there (macOS).
WATCH_SECONDS = 0.5

_PR_SET_PDEATHSIG = 1


class RingRefused(Exception):
    """What answered in the ring is not the other end."""


class AgentGone(Exception):
    """The agent has closed its sockets."""


class Channel:
    """Frames of one direction, to and from the agent."""

    def __init__(self, descriptor: int) -> None:
        self.socket = socket.socket(fileno=descriptor)
        self._reader = FrameReader()
        self._frames: list[Frame] = []
        self._writing = threading.Lock()

    def read(self) -> Frame:
        """Waits for the next frame. Raises `AgentGone`, `ValueError`, `OSError`."""
        while not self._frames:
            data = self.socket.recv(4096)
            if not data:
                raise AgentGone
            self._frames = self._reader.feed(data)
        return self._frames.pop(0)

    def write(self, frame: Frame) -> None:
        """Sends a frame; its few bytes always fit. Raises `OSError`."""
        with self._writing:
            self.socket.sendall(frame.packed())


class RingChild:
    """The process's state: its group, its segment, its two directions."""

    def __init__(self, outgoing: Channel, incoming: Channel, segment: NDArray[np.uint8]) -> None:
        self._outgoing = outgoing
        self._incoming = incoming
        self._segment = segment

    def run(self, start: RingStart, hostfile: int) -> NoReturn:
        """Joins the ring, says READY, carries pieces until the process ends."""
        # The kernel ends it even while MLX waits for ever and holds the interpreter.
        signal.setitimer(signal.ITIMER_REAL, start.ready_seconds)
        if start.rank == 1:
            time.sleep(LISTENING_SECONDS)
        before = _connected_sockets()
        group = mx.distributed.init(strict=True, backend="ring")
        os.close(hostfile)
        _prove(group, start)
        ring = _connected_sockets() - before
        signal.setitimer(signal.ITIMER_REAL, 0)
        for work in (self._send_pieces, self._receive_pieces):
            arguments = (work, group, start)
            threading.Thread(target=self._direction, args=arguments, daemon=True).start()
        self._outgoing.write(Frame(FrameKind.READY))
        self._watch(ring)

    def fail(self, error: BaseException) -> NoReturn:
        """Says why and ends the process, from any thread."""
        if not isinstance(error, AgentGone):
            text = f"{type(error).__name__}: {error}"[:1000].encode()
            for channel in (self._outgoing, self._incoming):
                try:
                    channel.write(Frame(FrameKind.FAILED, text=text))
                except OSError:
                    continue
        os._exit(1)

    def _direction(
        self,
        work: Callable[[mx.distributed.Group, RingStart], None],
        group: mx.distributed.Group,
        start: RingStart,
    ) -> None:
        try:
            work(group, start)
        except BaseException as error:  # noqa: BLE001 - any fault ends the process
            self.fail(error)

    def _send_pieces(self, group: mx.distributed.Group, start: RingStart) -> None:
        """Slots of direction 0 go to the other rank."""
        stream = mx.new_stream(mx.cpu)
        pieces, peer = start.pieces, 1 - start.rank
        with mx.stream(stream):
            buffer = mx.zeros((pieces.piece_bytes,), mx.uint8)
            mx.eval(buffer)
            alias = np.array(buffer, copy=False)
            index = 0
            while True:
                byte_count = _size(self._outgoing.read(), FrameKind.PIECE, pieces)
                np.copyto(alias[:byte_count], pieces.slot(self._segment, 0, index, byte_count))
                mx.eval(mx.distributed.send(buffer[:byte_count], peer, group=group))
                self._outgoing.write(Frame(FrameKind.TAKEN))
                index += 1

    def _receive_pieces(self, group: mx.distributed.Group, start: RingStart) -> None:
        """What the other rank sends goes to slots of direction 1, when the agent asks for it."""
        stream = mx.new_stream(mx.cpu)
        pieces, peer = start.pieces, 1 - start.rank
        with mx.stream(stream):
            index = 0
            while True:
                byte_count = _size(self._incoming.read(), FrameKind.RECEIVE, pieces)
                received = mx.distributed.recv((byte_count,), mx.uint8, peer, group=group)
                mx.eval(received)
                np.copyto(
                    pieces.slot(self._segment, 1, index, byte_count),
                    np.array(received, copy=False),
                )
                self._incoming.write(Frame(FrameKind.PIECE, byte_count))
                index += 1

    def _watch(self, ring: set[int]) -> NoReturn:
        """Ends the process when the agent or the other rank is gone, in mid-transfer too."""
        parent = os.getppid()
        hung_up = getattr(select, "POLLRDHUP", 0)
        poll = select.poll()
        agent = {self._outgoing.socket.fileno(), self._incoming.socket.fileno()}
        for descriptor in agent | ring:
            poll.register(descriptor, hung_up)
        timeout = None if hung_up else WATCH_SECONDS * 1000
        while True:
            for descriptor, _ in poll.poll(timeout):
                gone = descriptor in agent
                self.fail(AgentGone() if gone else ConnectionError("the other rank is gone"))
            if os.getppid() != parent:
                self.fail(AgentGone())


def _size(frame: Frame, kind: FrameKind, pieces: Pieces) -> int:
    if frame.kind is not kind or not 0 < frame.byte_count <= pieces.piece_bytes:
        raise ValueError(f"{frame.kind.name} of {frame.byte_count} bytes")
    return frame.byte_count


def _prove(group: mx.distributed.Group, start: RingStart) -> None:
    """Each rank adds its proof to zeros in the other's place: the sum shows both.

    Raises `RingRefused` for a stranger, an echo, another group, or another nonce.
    """
    nonce = bytes.fromhex(start.nonce_hex)
    if (group.size(), group.rank()) != (2, start.rank):
        raise RingRefused(f"the ring has rank {group.rank()} of {group.size()}")
    own = np.zeros((2, PROOF_BYTES), np.int32)
    own[start.rank] = np.frombuffer(proof(nonce, f"rank {start.rank}"), np.uint8)
    total = mx.distributed.all_sum(mx.array(own), group=group, stream=mx.cpu)
    mx.eval(total)
    both = np.array(total)
    peer = 1 - start.rank
    said = (both[peer] & 0xFF).astype(np.uint8).tobytes()
    if (
        not is_proof(said, nonce, f"rank {peer}")
        or not np.array_equal(both[start.rank], own[start.rank])
        or not np.array_equal(both[peer], np.frombuffer(said, np.uint8))
    ):
        raise RingRefused("what answered in the ring does not know the nonce")


def _connected_sockets() -> set[int]:
    """Descriptors of the sockets of this process: MLX gives no name to those of its ring.

    Attempts to connect that failed leave unconnected ones behind, which do not count.
    """
    found = set()
    for entry in Path("/dev/fd").iterdir():
        descriptor = int(entry.name)
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                # Gives the descriptor back unclosed: it belongs to MLX.
                own = socket.socket(fileno=descriptor)
                try:
                    own.getpeername()
                    found.add(descriptor)
                finally:
                    own.detach()
        except OSError:
            continue
    return found


def _die_with(parent: int) -> None:
    """Has the kernel kill this process when the agent's thread that started it is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> NoReturn:
    """Never returns."""
    parent, out, into, segment, hostfile = (int(word) for word in sys.argv[1:])
    _die_with(parent)
    outgoing, incoming = Channel(out), Channel(into)
    memory = np.frombuffer(mmap.mmap(segment, 0), np.uint8)
    os.close(segment)
    child = RingChild(outgoing, incoming, memory)
    try:
        frame = outgoing.read()
        if frame.kind is not FrameKind.START:
            raise ValueError(f"{frame.kind.name} before START")
        child.run(RingStart.unpacked(frame.text), hostfile)
    except BaseException as error:  # noqa: BLE001 - any fault ends the process
        child.fail(error)


if __name__ == "__main__":
    main()
