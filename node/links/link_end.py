"""One end of a tensor link: its control stream, and the roads beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from kakeya.v1 import capability_pb2
from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.node.links.contract import LinkPurpose, LinkState, RoadKind
from kakeya_fleet.node.links.control_stream import ControlEnded, ControlStream, Envelope
from kakeya_fleet.node.links.delivery import Outbox
from kakeya_fleet.node.links.link_counts import LinkCounts
from kakeya_fleet.node.links.link_limits import LARGE_BYTES, LinkLimits
from kakeya_fleet.node.links.link_log import ChangeCause, LinkChange
from kakeya_fleet.node.links.promotion import LinkMode, Promotion
from kakeya_fleet.node.links.refused_tensor import TensorFault
from kakeya_fleet.node.links.road_desk import RoadDesk, RoadParts
from kakeya_fleet.node.links.roads.contract import RoadBuilder
from kakeya_fleet.node.links.tensor_receiver import ReceivingParts, TakeTensor, TensorReceiver
from kakeya_fleet.node.links.tensor_sender import SendingParts, TensorSender
from kakeya_fleet.node.links.used_road import TRANSPORTS
from kakeya_fleet.node.links.wire_tensor import WireTensor
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.refusals import Refusal, TensorOutOfOrder

_log = structlog.get_logger(__name__)

# What the other end gets to end its stream in order, after which it is cut off.
CLOSING_SECONDS = 1.0

PURPOSES: dict[LinkPurpose, wire.LinkPurpose.ValueType] = {
    LinkPurpose.FEATURES: wire.LINK_PURPOSE_FEATURES,
    LinkPurpose.KEYS_VALUES: wire.LINK_PURPOSE_KEYS_VALUES,
}


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
class LinkParts:
    """What an end is made with.

    `builders` are for the roads that both ends have, best first. `take` gets each
    tensor in place of `receive`. `on_change` hears of each change of what carries the link,
    `on_message` of each message that comes, `on_end` of the end.
    """

    metrics: NodeMetrics
    mode: LinkMode = LinkMode.AUTO
    builders: Sequence[RoadBuilder] = ()
    limits: LinkLimits = field(default_factory=LinkLimits)
    clock: Callable[[], float] = time.monotonic
    take: TakeTensor | None = None
    on_change: Callable[[LinkChange], None] = _ignore
    on_message: Callable[[], None] = _nothing
    on_end: Callable[[LinkEnd], None] | None = None


class LinkEnd:
    """A `TensorLink`. Made within a running loop, whose tasks carry it until it ends."""

    def __init__(self, stream: ControlStream, identity: LinkIdentity, parts: LinkParts) -> None:
        self._stream = stream
        self._identity = identity
        self._parts = parts
        self._clock = parts.clock
        self._counts = LinkCounts(parts.metrics)
        self._promotion = Promotion(
            parts.mode,
            [builder.kind for builder in parts.builders],
            is_caller=identity.is_caller,
            base=stream.base,
        )
        self._standing = self._promotion.standing
        self._changed_at = self._clock()
        self._sender = TensorSender(
            identity.link_id,
            SendingParts(
                stream,
                Outbox(parts.limits.budget_bytes),
                self._promotion,
                self._counts,
                self._clock,
            ),
        )
        self._receiver = TensorReceiver(identity.link_id, self._receiving())
        self._desk = RoadDesk(
            RoadParts(
                sender=self._sender,
                receiver=self._receiver,
                promotion=self._promotion,
                counts=self._counts,
                builders={builder.kind: builder for builder in parts.builders},
                fail=self._fail,
                changed=self._note,
                clock=self._clock,
            ),
            is_caller=identity.is_caller,
        )
        self.ended = asyncio.Event()
        self.end_reason = ""
        self.error: Exception | None = None
        self._ending: asyncio.Task[None] | None = None
        self._counts.opened(self._standing.kind)
        self._reading = asyncio.create_task(self._read(), name="link-read")
        self._writing = asyncio.create_task(self._write(), name="link-write")
        for task in (self._reading, self._writing):
            task.add_done_callback(self._stopped)
        self._desk.judge()

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
    def state(self) -> LinkState:
        """What carries it now."""
        return LinkState(
            kind=self._standing.kind,
            generation=self._desk.built,
            bytes_per_second=self._counts.bytes_per_second,
            reason=self._standing.reason,
            changed_at=self._changed_at,
        )

    @property
    def byte_count(self) -> int:
        """Bytes of tensors that it carried, either way."""
        return self._counts.byte_count

    def status(self) -> capability_pb2.TensorLinkStatus:
        """The state as GetNode tells it."""
        return capability_pb2.TensorLinkStatus(
            peer_node_id=self.peer_node_id,
            purpose=PURPOSES[self.purpose],
            transport=TRANSPORTS[self._standing.kind],
            generation=self._desk.built,
            bytes_per_second=self._counts.bytes_per_second,
            reason=self._standing.reason,
            changed_seconds_ago=max(0.0, self._clock() - self._changed_at),
            is_caller=self._identity.is_caller,
            tensor_count=self._counts.tensor_count,
            byte_count=self._counts.byte_count,
            demotion_count=self._counts.demotion_count,
        )

    def try_send(self, tensor: WireTensor) -> bool:
        """Takes a tensor without waiting; False when the byte budget is used up.

        Raises `LinkClosed`.
        """
        if not self._sender.try_send(tensor):
            return False
        self._saw(tensor)
        return True

    async def send(self, tensor: WireTensor) -> None:
        """Takes a tensor, whose bytes must not change before the other end has them.

        Waits while more than the link's byte budget is under way. Returns before
        it has arrived. Raises `LinkClosed`.
        """
        await self._sender.send(tensor)
        self._saw(tensor)

    async def flush(self) -> None:
        """Waits until the other end has all that was sent. Raises `LinkClosed`."""
        await self._sender.flush()

    async def receive(self) -> WireTensor:
        """The next tensor of the other end; what came before the other end closed still comes.

        One whose bytes came corrupt was asked for again. Raises `LinkClosed`.
        """
        return await self._receiver.receive()

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
        self._promotion.look_again()
        self._desk.judge()

    async def wound_up(self) -> None:
        """Waits until nothing of an ended link is left."""
        await self.ended.wait()
        if self._ending is not None:
            await asyncio.shield(self._ending)

    def _receiving(self) -> ReceivingParts:
        parts = self._parts
        return ReceivingParts(
            sender=self._sender,
            promotion=self._promotion,
            counts=self._counts,
            limits=parts.limits,
            base=self._stream.base,
            fail=self._fail,
            clock=self._clock,
            judge=self._judge,
            take=parts.take,
        )

    def _judge(self) -> None:
        self._desk.judge()

    def _saw(self, tensor: WireTensor) -> None:
        # Small tensors change nothing, and deltas of features must not be held up.
        if len(tensor.data) >= LARGE_BYTES:
            self._promotion.saw(len(tensor.data), self._clock())
            self._desk.judge()

    def _fail(self, error: Exception) -> None:
        if isinstance(error, TensorOutOfOrder):
            self._counts.refused(TensorFault.OUT_OF_ORDER)
        self.end(str(error), error)

    async def _read(self) -> None:
        try:
            while True:
                envelope = await self._stream.read()
                self._parts.on_message()
                await self._handle(envelope)
        except ControlEnded as ended:
            await self._receiver.settle()
            self.end(str(ended) or "closed by the other end")
        except (Refusal, BadParameters) as error:
            self._fail(error)

    async def _handle(self, envelope: Envelope) -> None:
        if envelope.HasField("chunk"):
            await self._receiver.chunk(envelope.chunk)
            return
        if envelope.HasField("taken"):
            self._sender.taken(envelope.taken.through_tensor_id)
        elif envelope.HasField("announcement"):
            announcement = envelope.announcement
            self._receiver.announced(announcement, self._desk.road_of(announcement.generation))
        elif envelope.HasField("road"):
            self._desk.heard(envelope.road)
        else:
            raise BadParameters("a stream of tensors takes chunks after its opening")
        self._desk.judge()

    async def _write(self) -> None:
        try:
            await self._sender.run()
        except ControlEnded as ended:
            # The reader knows better, if the stream ended with a reason.
            await asyncio.wait((self._reading,), timeout=CLOSING_SECONDS)
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
        await self._desk.close()
        if not self._reading.done():
            if self._identity.is_caller:
                # An orderly end of the other side, so that nothing on its way is cut off.
                await asyncio.wait((self._reading,), timeout=CLOSING_SECONDS)
            self._reading.cancel()
            await asyncio.wait((self._reading,))
        self._counts.closed(self._standing.kind)
        if self._parts.on_end is not None:
            self._parts.on_end(self)

    def _note(self) -> None:
        """Tells of what has changed since it was asked last."""
        standing, before = self._promotion.standing, self._standing
        if standing is before:
            return
        self._standing, self._changed_at = standing, self._clock()
        if standing.kind is not before.kind:
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
            self._parts.on_change(self._change(standing.kind, standing.cause, standing.reason))

    def _change(self, kind: RoadKind, cause: ChangeCause, reason: str) -> LinkChange:
        return LinkChange(
            at=self._changed_at,
            peer_node_id=self.peer_node_id,
            purpose=self.purpose,
            kind=kind,
            generation=self._desk.built,
            cause=cause,
            reason=reason,
        )
