"""One end of a tensor link: its control stream, and the roads beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.node.links.ends.control_stream import ControlEnded, ControlStream
from kakeya_fleet.node.links.ends.link_counts import LinkCounts
from kakeya_fleet.node.links.ends.road_driver import RoadDriver
from kakeya_fleet.node.links.ends.shared_parts import SharedParts
from kakeya_fleet.node.links.ends.tensor_receiver import TakeTensor, TensorReceiver
from kakeya_fleet.node.links.ends.tensor_sender import TensorSender
from kakeya_fleet.node.links.protocol.changes import LinkChange
from kakeya_fleet.node.links.protocol.chunks import TensorFault
from kakeya_fleet.node.links.protocol.contract import LinkMode, LinkPurpose, LinkState
from kakeya_fleet.node.links.protocol.messages import (
    Announcement,
    Chunk,
    Message,
    RoadMessage,
    Taken,
)
from kakeya_fleet.node.links.protocol.promotion_events import Event, LookAgain, Tick
from kakeya_fleet.node.links.protocol.promotion_state import Standing, opened
from kakeya_fleet.node.links.protocol.settings import LinkLimits, LinkSettings
from kakeya_fleet.node.links.protocol.tensor import WireTensor
from kakeya_fleet.node.links.roads.contract import RoadBuilder
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.refusals import Refusal, TensorOutOfOrder

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """Which link it is, and which end of it: the caller opened it."""

    link_id: str
    peer_node_id: str
    purpose: LinkPurpose
    is_caller: bool


def _ignore(_change: LinkChange) -> None:
    return


def _nothing() -> None:
    return


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What one end of a link is used with.

    `take` gets each tensor as it arrives, in place of `receive`. `on_change` hears of
    each change of what carries the link, `on_message` of each message that comes.
    """

    limits: LinkLimits = field(default_factory=LinkLimits)
    take: TakeTensor | None = None
    on_change: Callable[[LinkChange], None] = _ignore
    on_message: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class LinkParts:
    """What an end is made with.

    `builders` are for the roads that both ends have, best first. `on_end` hears of the end.
    """

    metrics: NodeMetrics
    mode: LinkMode
    builders: Sequence[RoadBuilder]
    settings: LinkSettings
    use: LinkUse
    clock: Callable[[], float]
    on_end: Callable[[LinkEnd], None]


class LinkEnd:
    """A `TensorLink`. Made within a running loop, whose tasks carry it until it ends."""

    def __init__(self, stream: ControlStream, identity: LinkIdentity, parts: LinkParts) -> None:
        self._stream = stream
        self._identity = identity
        self._parts = parts
        self._counts = LinkCounts(parts.metrics)
        self._promotion = opened(
            parts.mode,
            [builder.kind for builder in parts.builders],
            is_caller=identity.is_caller,
            base=stream.base,
            settings=parts.settings,
        )
        self._changed_at = parts.clock()
        shared = SharedParts(
            link_id=identity.link_id,
            promotion=self._promotion,
            limits=parts.use.limits,
            counts=self._counts,
            observe=self._observe,
            fail=self._fail,
            clock=parts.clock,
        )
        self._sender = TensorSender(shared, stream)
        self._receiver = TensorReceiver(shared, self._sender, stream.base, parts.use.take)
        builders = {builder.kind: builder for builder in parts.builders}
        self._roads = RoadDriver(shared, builders, self._sender, self._receiver, self._changed)
        self.ended = asyncio.Event()
        self.end_reason = ""
        self.error: Exception | None = None
        self._ending: asyncio.Task[None] | None = None
        self._counts.opened(stream.base)
        self._reading = asyncio.create_task(self._read(), name="link-read")
        self._writing = asyncio.create_task(self._write(), name="link-write")
        for task in (self._reading, self._writing):
            task.add_done_callback(self._stopped)
        # A road that the configuration names is proposed at once.
        self._roads.feed(Tick())

    @property
    def link_id(self) -> str:
        """Names the link; a secret of its two ends."""
        return self._identity.link_id

    @property
    def peer_node_id(self) -> str:
        """The node at the other end."""
        return self._identity.peer_node_id

    @property
    def purpose(self) -> LinkPurpose:
        """What it is for."""
        return self._identity.purpose

    @property
    def is_caller(self) -> bool:
        """Whether this end opened it."""
        return self._identity.is_caller

    @property
    def state(self) -> LinkState:
        """What carries it now, and what it has carried."""
        promotion, counts = self._promotion, self._counts
        return LinkState(
            kind=promotion.standing.kind,
            generation=promotion.built,
            bytes_per_second=counts.bytes_per_second,
            reason=promotion.standing.reason,
            changed_at=self._changed_at,
            tensor_count=counts.tensor_count,
            byte_count=counts.byte_count,
            demotion_count=promotion.demotion_count,
        )

    def try_send(self, tensor: WireTensor) -> bool:
        """Takes a tensor without waiting; False when the byte budget is used up.

        Raises `LinkClosed`.
        """
        return self._sender.try_send(tensor)

    async def send(self, tensor: WireTensor) -> None:
        """Takes a tensor, whose bytes must not change before the other end has them.

        Waits while more than the link's byte budget is under way. Returns before
        it has arrived. Raises `LinkClosed`.
        """
        await self._sender.send(tensor)

    async def flush(self) -> None:
        """Waits until the other end has all that was sent. Raises `LinkClosed`."""
        await self._sender.flush()

    async def receive(self) -> WireTensor:
        """The next tensor of the other end; what came before the other end closed still comes.

        One whose bytes came corrupt was asked for again. Raises `LinkClosed`.
        """
        return await self._receiver.receive()

    async def wait_ended(self) -> None:
        """Waits until the link has ended."""
        await self.ended.wait()

    async def close(self) -> None:
        """Ends the link at both ends, and every process and segment that carried it.

        What was sent and has not arrived may be lost: `flush` first.
        """
        self.end("closed by this end", drop=True)
        if self._ending is not None:
            await asyncio.shield(self._ending)

    def end(self, reason: str, error: Exception | None = None, *, drop: bool = False) -> None:
        """Ends the link without waiting. With `drop` what has arrived is not received any more."""
        if self._ending is not None:
            return
        self.end_reason, self.error = reason, error
        self._sender.close(reason)
        self._receiver.close(reason, drop=drop)
        self._ending = asyncio.create_task(self._wind_up(), name="link-end")
        self.ended.set()

    def look_again(self) -> None:
        """Other roads can be had here than before: one is proposed now, if it is wanted."""
        self._roads.feed(LookAgain())

    def _observe(self, event: Event) -> None:
        self._roads.feed(event)

    def _fail(self, error: Exception) -> None:
        if isinstance(error, TensorOutOfOrder):
            self._counts.refused(TensorFault.OUT_OF_ORDER)
        self.end(str(error), error)

    async def _read(self) -> None:
        try:
            while True:
                message = await self._stream.read()
                self._parts.use.on_message()
                await self._handle(message)
        except ControlEnded as ended:
            await self._receiver.settle()
            self.end(str(ended) or "closed by the other end")
        except (Refusal, BadParameters) as error:
            self._fail(error)

    async def _handle(self, message: Message) -> None:
        match message:
            case Chunk():
                await self._receiver.chunk(message)
            case Taken(through):
                self._sender.taken(through)
            case Announcement():
                self._receiver.announced(message, self._roads.road_of(message.generation))
            case RoadMessage():
                self._roads.heard(message)

    async def _write(self) -> None:
        try:
            await self._sender.run()
        except ControlEnded as ended:
            # The reader knows better, if the stream ended with a reason.
            await asyncio.wait((self._reading,), timeout=self._parts.settings.closing_seconds)
            self.end(str(ended) or "closed by the other end")

    def _stopped(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            # Nothing that is foreseen: the link must not seem to be open.
            self.end(f"{type(error).__name__} in {task.get_name()}", error)

    async def _wind_up(self) -> None:
        self._writing.cancel()
        await asyncio.wait((self._writing,))
        # The other end hears of it before this one has cleared away.
        await self._stream.close()
        await self._roads.close()
        if not self._reading.done():
            if self.is_caller:
                # An orderly end of the other side, so that nothing on its way is cut off.
                await asyncio.wait((self._reading,), timeout=self._parts.settings.closing_seconds)
            self._reading.cancel()
            await asyncio.wait((self._reading,))
        self._counts.closed(self._promotion.standing.kind)
        self._parts.on_end(self)

    def _changed(self, before: Standing) -> None:
        """Tells that what carries the link is another, or that the reason is."""
        standing, self._changed_at = self._promotion.standing, self._parts.clock()
        if standing.kind is before.kind:
            return
        _log.info(
            "link_changed",
            peer=self.peer_node_id,
            purpose=self.purpose.value,
            before=before.kind.value,
            after=standing.kind.value,
            cause=standing.cause.value,
            reason=standing.reason,
        )
        self._counts.changed(before.kind, standing.kind, standing.cause)
        self._parts.use.on_change(
            LinkChange(
                at=self._changed_at,
                peer_node_id=self.peer_node_id,
                purpose=self.purpose,
                kind=standing.kind,
                generation=self._promotion.built,
                cause=standing.cause,
                reason=standing.reason,
            )
        )
