"""The RING road: a ring of two, each rank in a child process of its agent.

The other end is rank 0, because it starts first and listens first; the caller is
rank 1. The agent never touches MLX. It bounds READY and every transfer; whatever goes
wrong, it kills its child, and the road is over.

The ring's bytes are not encrypted. One that must stay within its host listens on loopback and
goes to loopback alone, whatever the other end says of where it is.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kakeya_fleet.engine.backends.mlx_ring.protocol import Frame, FrameKind, Pieces
from kakeya_fleet.fleet.cards.address import parse_address
from kakeya_fleet.node.config.config import is_loopback
from kakeya_fleet.node.links.protocol.contract import RoadKind
from kakeya_fleet.node.links.roads.contract import Road, RoadFailed, Terms, check_nonce
from kakeya_fleet.node.links.roads.frame_channel import FrameChannel
from kakeya_fleet.node.links.roads.meeting import host_digest
from kakeya_fleet.node.links.roads.piece_directions import AskingReceiver, PieceSender, Surface
from kakeya_fleet.node.links.roads.piece_road import PieceRoad, copy_threads
from kakeya_fleet.node.links.roads.ring_port import RingPort
from kakeya_fleet.node.links.roads.ring_process import RingProcess, RingSeat, start_message
from kakeya_fleet.node.links.roads.road_fault import RoadFault
from kakeya_fleet.node.links.roads.segment import Segment, SegmentBudget, make_segment

LOOPBACK = "127.0.0.1"
ELSEWHERE = (
    "the other end lies on another host, and a ring carries tensors in the clear: start both nodes"
    " with --trusted-network if nobody listens on the network between them"
)


class HostProbe(Protocol):
    """Whether this host can form a ring."""

    @property
    def reason(self) -> str:
        """Empty when it can, else a sentence."""
        ...


@dataclass(frozen=True, slots=True)
class RingRoads:
    """Implements `RoadBuilder` for RING.

    `host` is the IPv4 address, or a name of it, under which the other end reaches this
    one.
    """

    host: str
    probe: HostProbe | None = None

    within_host: bool = False
    """Nothing of it may leave this host: `host` is not used then."""

    ready_seconds: float = 30.0
    """From a child's start to its READY: MLX takes one to several seconds, 12 on a busy host."""

    child_grace_seconds: float = 2.0
    """The child ends itself this much later than the agent would have killed it."""

    piece_bytes: int = 4 << 20
    """What the ring is fastest with; larger sends fall to a tenth."""

    slot_count: int = 2
    """Of each direction: one is filled while the other is sent."""

    limit_bytes: int = 128 << 20
    """The segments of all its roads together: 16 MiB each, so that no more than 8 children run.

    A child takes some 20 MiB besides; links beyond them stay on their control streams.
    """

    directory: Path | None = None
    """Holds the segments in place of the host's memory."""

    _budget: SegmentBudget = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_budget", SegmentBudget(self.limit_bytes))

    @property
    def kind(self) -> RoadKind:
        """RING."""
        return RoadKind.RING

    @property
    def available(self) -> str:
        """What the probe found; empty without one."""
        return self.probe.reason if self.probe is not None else ""

    async def propose(self, nonce: bytes) -> RingPlan:
        """Reserves a port and the segment. Raises `RoadFailed`."""
        return await self._plan(nonce, rank=1)

    async def answer(self, nonce: bytes, proposed: Terms) -> RingPlan:
        """Reserves a port and the segment. Raises `RoadFailed`."""
        self.check_place(proposed)
        return await self._plan(nonce, rank=0)

    def check_place(self, other: Terms) -> str:
        """Where the other end's rank listens. Raises `RoadFailed` where a ring may not go."""
        address = _address(other)
        if not self.within_host:
            return address
        if other.get("host") != host_digest() or not is_loopback(parse_address(address)[0]):
            raise RoadFailed(ELSEWHERE)
        return address

    async def _plan(self, nonce: bytes, *, rank: int) -> RingPlan:
        check_nonce(nonce)
        if self.available:
            raise RoadFailed(self.available)
        pieces = Pieces(self.piece_bytes, self.slot_count)
        segment = await make_segment(pieces.segment_bytes, self._budget, self.directory)
        try:
            port = RingPort(LOOPBACK if self.within_host else self.host)
        except RoadFailed:
            segment.close()
            raise
        return RingPlan(nonce, rank, port, segment, pieces, self)


class RingPlan:
    """One end's part: owns a port and a segment until it is built or abandoned."""

    def __init__(
        self,
        nonce: bytes,
        rank: int,
        port: RingPort,
        segment: Segment,
        pieces: Pieces,
        settings: RingRoads,
    ) -> None:
        self._nonce = nonce
        self._rank = rank
        self._port = port
        self._segment = segment
        self._pieces = pieces
        self._settings = settings

    @property
    def terms(self) -> Terms:
        """Where this end's rank will listen."""
        place = {"host": host_digest()} if self._settings.within_host else {}
        return {"address": self._port.address, **place}

    async def build(self, other: Terms) -> Road:
        """Starts the child and waits until it is READY. Raises `RoadFailed`; nothing is left."""
        try:
            peer, own = self._settings.check_place(other), self._port.address
            seat = RingSeat(self._rank, (own, peer) if self._rank == 0 else (peer, own))
            end = _RingEnd(RingProcess(seat, self._segment), self._segment, self._pieces)
            seconds = self._settings.ready_seconds
            message = start_message(
                seat, self._nonce, self._pieces, seconds + self._settings.child_grace_seconds
            )
            try:
                await end.ready(message, seconds)
            except BaseException:
                await end.closed()
                raise
            return end.road()
        except BaseException:
            self._segment.close()
            raise
        finally:
            self._port.close()

    async def abandon(self) -> None:
        """Frees the port and the segment."""
        self._port.close()
        self._segment.close()


class _RingEnd:
    """A child and the two directions through it."""

    def __init__(self, process: RingProcess, segment: Segment, pieces: Pieces) -> None:
        self._process = process
        self._segment = segment
        self._threads = copy_threads()
        self._fault = RoadFault(self._tear_down)
        self._outgoing: FrameChannel | None = None
        self._incoming: FrameChannel | None = None
        self._is_ready = False
        self._news = asyncio.Event()
        self._sender = PieceSender(
            Surface(segment, pieces, 0, self._write_outgoing, self._threads, self._fault)
        )
        self._receiver = AskingReceiver(
            Surface(segment, pieces, 1, self._write_incoming, self._threads, self._fault)
        )

    async def ready(self, message: Frame, seconds: float) -> None:
        """Starts the ring; returns when the other rank has proven itself. Raises `RoadFailed`."""
        try:
            async with asyncio.timeout(seconds):
                self._outgoing = await FrameChannel.over(
                    self._process.outgoing, self._on_outgoing, self._on_lost
                )
                self._incoming = await FrameChannel.over(
                    self._process.incoming, self._on_incoming, self._on_lost
                )
                self._outgoing.write(message)
                await self._fault.wait(self._news, lambda: self._is_ready)
        except TimeoutError:
            raise RoadFailed(f"the ring was not READY within {seconds:g} s") from None
        except RoadFailed as failed:
            raise RoadFailed(f"{failed} ({await self._process.ended()})") from failed

    def road(self) -> Road:
        """The road through the child that is ready."""
        return PieceRoad(
            RoadKind.RING,
            (self._sender, self._receiver),
            self._fault,
            (self._segment, self._threads),
            self._ended,
        )

    async def closed(self) -> None:
        """Nothing of the child is left."""
        self._fault.fail("the ring was given up before it was READY")
        self._process.close_sockets()
        await self._ended()

    async def _ended(self) -> None:
        await self._process.ended()

    def _on_outgoing(self, frame: Frame) -> None:
        match frame.kind:
            case FrameKind.TAKEN:
                self._sender.taken()
            case FrameKind.READY:
                self._is_ready = True
                self._news.set()
            case _:
                self._failed(frame)

    def _on_incoming(self, frame: Frame) -> None:
        if frame.kind is FrameKind.PIECE:
            self._receiver.filled(frame.byte_count)
        else:
            self._failed(frame)

    def _failed(self, frame: Frame) -> None:
        said = frame.text.decode("utf-8", "replace") or frame.kind.name
        self._fault.fail(f"the ring's process failed: {said}")

    def _on_lost(self, reason: str) -> None:
        self._fault.fail(f"the ring's process is gone: {reason}")

    def _write_outgoing(self, frame: Frame) -> None:
        if self._outgoing is not None:
            self._outgoing.write(frame)

    def _write_incoming(self, frame: Frame) -> None:
        if self._incoming is not None:
            self._incoming.write(frame)

    def _tear_down(self) -> None:
        for channel in (self._outgoing, self._incoming):
            if channel is not None:
                channel.close()
        self._process.kill()


def _address(terms: Terms) -> str:
    """Where the other end's rank listens. Raises `RoadFailed`."""
    try:
        host, port = parse_address(terms.get("address", ""))
    except ValueError as error:
        raise RoadFailed(f"the other end's ring address is none: {error}") from error
    if ":" in host:
        raise RoadFailed(f"the ring needs IPv4, and the other end's address is {host}")
    return f"{host}:{port}"
