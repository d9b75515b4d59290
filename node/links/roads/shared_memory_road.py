"""The LOCAL road: a segment that two agents of one host share.

The caller makes the segment and waits at a Unix socket. The other end shows there
that it knows the nonce, gets the segment's descriptor, finds the nonce in the segment,
and proves with what else stands there that it reads the same memory. The socket stays: its frames
say which slots are filled and free, and its end says that the other agent is gone.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kakeya_fleet.engine.backends.mlx_ring.protocol import (
    PROOF_BYTES,
    Frame,
    FrameKind,
    Pieces,
    is_proof,
    proof,
)
from kakeya_fleet.node.links.protocol.contract import RoadKind
from kakeya_fleet.node.links.roads.contract import Road, RoadFailed, Terms, check_nonce
from kakeya_fleet.node.links.roads.frame_channel import FrameChannel
from kakeya_fleet.node.links.roads.meeting import (
    Meeting,
    connected,
    host_digest,
    read_descriptor,
    read_exactly,
    send_all,
)
from kakeya_fleet.node.links.roads.piece_directions import PieceReceiver, PieceSender, Surface
from kakeya_fleet.node.links.roads.piece_road import PieceRoad, copy_threads
from kakeya_fleet.node.links.roads.road_fault import RoadFault
from kakeya_fleet.node.links.roads.segment import Segment, SegmentBudget, handed_over, make_segment

SECRET_BYTES = 32

# What another end may ask for: each piece is a frame, and an entry of a list.
LEAST_PIECE_BYTES = 4096
MOST_SLOTS = 64

_ANSWERING = "answering end"


@dataclass(frozen=True, slots=True)
class SharedMemoryRoads:
    """Implements `RoadBuilder` for LOCAL."""

    piece_bytes: int = 2 << 20
    """Large, for the sake of few hops between event loop and threads on a busy host."""

    slot_count: int = 4
    """Of each direction: so many pieces are ahead of their reader."""

    limit_bytes: int = 1 << 30
    """The segments of all its roads together."""

    directory: Path | None = None
    """Holds segments and sockets in place of the host's memory, without names that last."""

    ready_seconds: float = 5.0
    """From READY of this end to the other's coming; both are on one host."""

    greeting_seconds: float = 1.0
    """A stranger who connects and says nothing holds up the meeting for so long."""

    _budget: SegmentBudget = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_budget", SegmentBudget(self.limit_bytes))

    @property
    def kind(self) -> RoadKind:
        """LOCAL."""
        return RoadKind.LOCAL

    @property
    def available(self) -> str:
        """Always empty; whether both ends lie on one host is seen in the terms."""
        return ""

    async def propose(self, nonce: bytes) -> ProposedRoad:
        """Reserves the segment. Raises `RoadFailed`."""
        check_nonce(nonce)
        pieces = Pieces(self.piece_bytes, self.slot_count)
        segment = await make_segment(pieces.segment_bytes, self._budget, self.directory)
        _write_header(segment, nonce + secrets.token_bytes(SECRET_BYTES))
        try:
            meeting = Meeting(self.directory)
        except OSError as error:
            segment.close()
            raise RoadFailed(f"no Unix socket to meet at: {error}") from error
        return ProposedRoad(nonce, pieces, segment, meeting, self)

    async def answer(self, nonce: bytes, proposed: Terms) -> AnsweredRoad:
        """Raises `RoadFailed` when the terms come from another host."""
        check_nonce(nonce)
        _check_host(proposed)
        return AnsweredRoad(nonce, self)


class ProposedRoad:
    """The caller's part: owns the segment and the socket until it is built or abandoned."""

    def __init__(
        self,
        nonce: bytes,
        pieces: Pieces,
        segment: Segment,
        meeting: Meeting,
        settings: SharedMemoryRoads,
    ) -> None:
        self._nonce = nonce
        self._pieces = pieces
        self._segment = segment
        self._meeting = meeting
        self._settings = settings

    @property
    def terms(self) -> Terms:
        """Where the other end comes to, and how the segment is divided."""
        return {
            "host": host_digest(),
            "socket": self._meeting.address,
            "piece_bytes": str(self._pieces.piece_bytes),
            "slot_count": str(self._pieces.slot_count),
        }

    async def build(self, other: Terms) -> Road:
        """Waits for the other end. Raises `RoadFailed`; then nothing is left."""
        try:
            _check_host(other)
            async with asyncio.timeout(self._settings.ready_seconds):
                own = await self._other_end()
                return await _road(own, self._segment, self._pieces, outgoing=0)
        except TimeoutError:
            await self.abandon()
            raise RoadFailed(
                f"the other end did not come within {self._settings.ready_seconds:g} s"
            ) from None
        except BaseException:
            await self.abandon()
            raise
        finally:
            self._meeting.close()

    async def abandon(self) -> None:
        """Frees the segment and the socket."""
        self._meeting.close()
        self._segment.close()

    async def _other_end(self) -> socket.socket:
        while True:
            comer = await self._meeting.next_comer()
            try:
                async with asyncio.timeout(self._settings.greeting_seconds):
                    said = await read_exactly(comer, PROOF_BYTES)
                if is_proof(said, self._nonce, _ANSWERING):
                    await self._hand_over(comer)
                    return comer
            except (RoadFailed, TimeoutError, OSError):
                comer.close()
                continue
            except BaseException:
                comer.close()
                raise
            comer.close()

    async def _hand_over(self, comer: socket.socket) -> None:
        """Gives the descriptor and hears what only a reader of the segment can say."""
        socket.send_fds(comer, [b"\0"], [self._segment.descriptor])
        said = await read_exactly(comer, PROOF_BYTES)
        if not is_proof(said, self._nonce, _secret(self._segment, self._nonce)):
            raise RoadFailed("the other end has not read the segment")


class AnsweredRoad:
    """The other end's part; nothing is reserved before it is built."""

    def __init__(self, nonce: bytes, settings: SharedMemoryRoads) -> None:
        self._nonce = nonce
        self._settings = settings

    @property
    def terms(self) -> Terms:
        """On which host this end lies."""
        return {"host": host_digest()}

    async def build(self, other: Terms) -> Road:
        """Goes to the caller's socket. Raises `RoadFailed`; then nothing is left."""
        pieces = _pieces(other)
        try:
            async with asyncio.timeout(self._settings.ready_seconds):
                own = await connected(other.get("socket", ""))
                try:
                    segment = await self._taken(own, pieces)
                except BaseException:
                    own.close()
                    raise
                return await _road(own, segment, pieces, outgoing=1)
        except TimeoutError:
            raise RoadFailed(
                f"the caller handed over no segment within {self._settings.ready_seconds:g} s"
            ) from None

    async def abandon(self) -> None:
        """There is nothing to free."""

    async def _taken(self, own: socket.socket, pieces: Pieces) -> Segment:
        await send_all(own, proof(self._nonce, _ANSWERING))
        descriptor = await read_descriptor(own)
        segment = handed_over(descriptor, pieces.segment_bytes, self._settings.directory)
        try:
            if segment.view[: len(self._nonce)].tobytes() != self._nonce:
                raise RoadFailed("the segment does not hold this road's nonce")
            await send_all(own, proof(self._nonce, _secret(segment, self._nonce)))
        except BaseException:
            segment.close()
            raise
        return segment


def _check_host(terms: Terms) -> None:
    if terms.get("host") != host_digest():
        raise RoadFailed("the other end lies on another host, or in another network namespace")


def _write_header(segment: Segment, header: bytes) -> None:
    segment.view[: len(header)] = np.frombuffer(header, np.uint8)


def _secret(segment: Segment, nonce: bytes) -> str:
    """What stands behind the nonce, and nowhere else than in the segment."""
    return segment.view[len(nonce) : len(nonce) + SECRET_BYTES].tobytes().hex()


def _pieces(terms: Mapping[str, str]) -> Pieces:
    try:
        pieces = Pieces(int(terms["piece_bytes"]), int(terms["slot_count"]))
    except (KeyError, ValueError) as error:
        raise RoadFailed(f"the terms do not say how the segment is divided: {error}") from error
    if pieces.piece_bytes < LEAST_PIECE_BYTES or pieces.slot_count > MOST_SLOTS:
        raise RoadFailed(
            f"the segment would be divided too finely: {pieces.slot_count} slots of"
            f" {pieces.piece_bytes} bytes"
        )
    return pieces


async def _road(own: socket.socket, segment: Segment, pieces: Pieces, *, outgoing: int) -> Road:
    """The road over a meeting's socket, which it takes over with the segment."""
    parts = _Parts(segment, pieces, outgoing)
    try:
        parts.channel = await FrameChannel.over(own, parts.on_frame, parts.on_lost)
    except BaseException:
        own.close()
        segment.close()
        raise
    return parts.road()


class _Parts:
    """What frames of the other agent go to."""

    def __init__(self, segment: Segment, pieces: Pieces, outgoing: int) -> None:
        self.channel: FrameChannel | None = None
        self._segment = segment
        self._threads: ThreadPoolExecutor = copy_threads()
        self._fault = RoadFault(self._close_channel)

        def surface(direction: int) -> Surface:
            return Surface(segment, pieces, direction, self._write, self._threads, self._fault)

        self._sender = PieceSender(surface(outgoing))
        self._receiver = PieceReceiver(surface(1 - outgoing))

    def road(self) -> Road:
        """The road of these parts."""
        return PieceRoad(
            RoadKind.LOCAL,
            (self._sender, self._receiver),
            self._fault,
            (self._segment, self._threads),
            _nothing_more,
        )

    def on_frame(self, frame: Frame) -> None:
        """The other agent filled a slot, or freed one."""
        if frame.kind is FrameKind.PIECE:
            self._receiver.filled(frame.byte_count)
        elif frame.kind is FrameKind.TAKEN:
            self._sender.taken()
        else:
            self._fault.fail(f"the other end said {frame.kind.name}")

    def on_lost(self, reason: str) -> None:
        """The other agent closed the road, or is gone."""
        self._fault.fail(f"the shared memory's other end is gone: {reason}")

    def _write(self, frame: Frame) -> None:
        if self.channel is not None:
            self.channel.write(frame)

    def _close_channel(self) -> None:
        if self.channel is not None:
            self.channel.close()


async def _nothing_more() -> None:
    """A closed socket is all there was."""
