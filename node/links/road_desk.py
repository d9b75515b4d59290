"""The roads of one end of a link, one generation after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from kakeya.v1 import placement_pb2
from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.node.links.contract import RoadKind
from kakeya_fleet.node.links.link_counts import LinkCounts
from kakeya_fleet.node.links.link_log import ChangeCause
from kakeya_fleet.node.links.promotion import ROAD_NAMES, Promotion
from kakeya_fleet.node.links.road_talk import NONCE_BYTES, RoadTalk, checked_terms
from kakeya_fleet.node.links.roads.contract import Road, RoadBuilder, RoadFailed
from kakeya_fleet.node.links.tensor_receiver import TensorReceiver
from kakeya_fleet.node.links.tensor_sender import TensorSender
from kakeya_fleet.node.links.used_road import KINDS, UsedRoad
from kakeya_fleet.node.rpc.refusals import TensorOutOfOrder

_log = structlog.get_logger(__name__)

# How often a road that stands is asked whether it is still wanted.
JUDGING_SECONDS = 5.0
MOST_REASON_CHARACTERS = 256
MOST_UNSAID = 64
MOST_ENDING = 8
"""Earlier roads that are still being cleared; each may have a process and a segment."""


@dataclass(frozen=True, slots=True)
class RoadParts:
    """What the desk shares with its link's end.

    `fail` ends the link, `changed` hears that the promotion may stand otherwise.
    """

    sender: TensorSender
    receiver: TensorReceiver
    promotion: Promotion
    counts: LinkCounts
    builders: Mapping[RoadKind, RoadBuilder]
    fail: Callable[[Exception], None]
    changed: Callable[[], None]
    clock: Callable[[], float]


class RoadDesk:
    """Proposes, answers, uses and leaves roads. Belongs to the event loop's thread.

    A generation that fails is over at once: both ends say what they have, and what went
    by it and has not arrived goes again in chunks.
    """

    def __init__(self, parts: RoadParts, *, is_caller: bool) -> None:
        self._parts = parts
        self._is_caller = is_caller
        self._newest = 0
        self._built = 0
        self._talk: RoadTalk | None = None
        self._agreeing: asyncio.Task[None] | None = None
        self._road: UsedRoad | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_closed = False

    @property
    def built(self) -> int:
        """The newest generation that stood; 0 before the first."""
        return self._built

    def road_of(self, generation: int) -> UsedRoad | None:
        """The road of a tensor that is announced; None for one that has failed.

        Raises `TensorOutOfOrder` for a generation that never stood.
        """
        road = self._road
        if road is not None and road.generation == generation:
            return road
        if not 1 <= generation <= self._built:
            raise TensorOutOfOrder(f"there was no road of generation {generation}")
        return None

    def judge(self) -> None:
        """Proposes a road when one is wanted, and leaves one that is not."""
        if self._is_closed:
            return
        parts, now = self._parts, self._parts.clock()
        self._parts.changed()
        road = self._road
        if road is not None:
            leave = parts.promotion.leave(now)
            if leave is not None:
                self._leave(road.generation, road.road.kind, *leave)
        else:
            self._propose_wanted(now)
        self._judge_later(now)

    def heard(self, message: wire.RoadMessage) -> None:
        """Takes a step of the other end. Raises `TensorOutOfOrder` for none."""
        if self._parts.sender.unsaid_count > MOST_UNSAID:
            raise TensorOutOfOrder("the other end does not read what roads it proposes come to")
        step, generation = message.step, message.generation
        talk = self._talk
        is_talk = talk is not None and talk.generation == generation
        if step == wire.ROAD_STEP_FAILED:
            self._other_failed(message)
        elif step == wire.ROAD_STEP_PROPOSE and not self._is_caller:
            self._proposed(message)
        elif step == wire.ROAD_STEP_ANSWER and self._is_caller:
            if talk is not None and is_talk:
                try:
                    talk.answered(checked_terms(message))
                except RoadFailed as failed:
                    self._fault(generation, talk.builder.kind, str(failed))
        elif step == wire.ROAD_STEP_READY:
            if talk is not None and is_talk:
                talk.other_is_ready()
        else:
            raise TensorOutOfOrder(f"step {step} of a road is not one of the other end's")

    async def close(self) -> None:
        """Ends the road, or the agreement on one, and waits until nothing of them is left."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._drop()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _propose_wanted(self, now: float) -> None:
        """Proposes the first road that is wanted and that this host can have now."""
        promotion = self._parts.promotion
        while (kind := promotion.proposal(now)) is not None:
            missing = self._parts.builders[kind].available
            if not missing:
                self._propose(kind)
                return
            promotion.unavailable(kind, missing, now)
            self._parts.changed()

    def _propose(self, kind: RoadKind) -> None:
        self._newest += 1
        talk = RoadTalk(self._newest, self._parts.builders[kind], self._parts.sender.say_road)
        self._agree(talk, talk.propose)

    def _proposed(self, message: wire.RoadMessage) -> None:
        if message.generation <= self._newest:
            raise TensorOutOfOrder(f"generation {message.generation} was proposed before")
        if self._road is not None:
            raise TensorOutOfOrder("a road was proposed beside one that stands")
        self._drop()
        self._newest = message.generation
        kind = KINDS.get(message.transport)
        builder = self._parts.builders.get(kind) if kind is not None else None
        try:
            if len(self._tasks) >= MOST_ENDING:
                raise RoadFailed(f"{len(self._tasks)} earlier roads are still being cleared")
            if builder is None:
                name = placement_pb2.Transport.Name(message.transport) if kind else "unknown"
                raise RoadFailed(f"this end takes no road {name}")
            if missing := builder.available:
                self._parts.promotion.unavailable(builder.kind, missing, self._parts.clock())
                raise RoadFailed(f"{ROAD_NAMES[builder.kind]} is not available: {missing}")
            if len(message.nonce) != NONCE_BYTES:
                raise RoadFailed(f"the nonce has {len(message.nonce)} bytes")
            terms = checked_terms(message)
        except RoadFailed as failed:
            self._say_failed(message.generation, str(failed))
            return
        talk = RoadTalk(message.generation, builder, self._parts.sender.say_road)
        self._agree(talk, partial(talk.answer, message.nonce, terms))

    def _agree(self, talk: RoadTalk, agree: Callable[[], Coroutine[None, None, Road]]) -> None:
        self._talk = talk
        self._parts.promotion.building()
        self._agreeing = self._keep(self._agreed(talk, agree))

    async def _agreed(
        self, talk: RoadTalk, agree: Callable[[], Coroutine[None, None, Road]]
    ) -> None:
        try:
            road = await agree()
        except RoadFailed as failed:
            self._fault(talk.generation, talk.builder.kind, str(failed))
            return
        except Exception as error:  # noqa: BLE001 - whatever a road does, its link goes on
            self._fault(talk.generation, talk.builder.kind, _unforeseen(error))
            return
        # No step of this task lies between the last check of `_drop` and this one.
        self._talk = self._agreeing = None
        self._use(UsedRoad(talk.generation, road))

    def _use(self, road: UsedRoad) -> None:
        parts = self._parts
        self._road, self._built = road, road.generation
        road.tasks = [
            asyncio.create_task(self._run(road, road.send_all), name="road-send"),
            asyncio.create_task(
                self._run(road, partial(parts.receiver.receive_all, road)), name="road-receive"
            ),
        ]
        parts.promotion.ready(road.road.kind, parts.clock())
        parts.sender.use(road)
        self.judge()

    async def _run(self, road: UsedRoad, carry: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await carry()
        except RoadFailed as failed:
            self._fault(road.generation, road.road.kind, str(failed))
        except TensorOutOfOrder as error:
            self._parts.fail(error)
        except Exception as error:  # noqa: BLE001 - whatever a road does, its link goes on
            self._fault(road.generation, road.road.kind, _unforeseen(error))

    def _fault(self, generation: int, kind: RoadKind, reason: str) -> None:
        self._leave(generation, kind, ChangeCause.FAULT, f"{ROAD_NAMES[kind]} failed: {reason}")

    def _leave(self, generation: int, kind: RoadKind, cause: ChangeCause, reason: str) -> None:
        """Gives a generation up, and says so to the other end."""
        if not self._drop_generation(generation):
            return
        self._say_failed(generation, reason)
        self._parts.promotion.failed(kind, cause, reason, self._parts.clock())
        self.judge()

    def _other_failed(self, message: wire.RoadMessage) -> None:
        generation = message.generation
        if generation == 0:
            self._parts.sender.came_corrupt(message.through_tensor_id + 1)
            return
        kind = self._kind_of(generation)
        if self._drop_generation(generation):
            self._say_failed(generation, "the other end left it")
            if kind is not None:
                reason = f"the other end: {message.reason[:MOST_REASON_CHARACTERS]}"
                self._parts.promotion.failed(kind, ChangeCause.PEER, reason, self._parts.clock())
        # Both ends have given it up: nothing more arrives by it.
        self._parts.sender.taken(message.through_tensor_id)
        self._parts.sender.road_failed(generation)

    def _say_failed(self, generation: int, reason: str) -> None:
        self._parts.sender.say_road(
            wire.RoadMessage(
                generation=generation,
                step=wire.ROAD_STEP_FAILED,
                reason=reason[:MOST_REASON_CHARACTERS],
                through_tensor_id=self._parts.receiver.through,
            )
        )

    def _kind_of(self, generation: int) -> RoadKind | None:
        if self._road is not None and self._road.generation == generation:
            return self._road.road.kind
        if self._talk is not None and self._talk.generation == generation:
            return self._talk.builder.kind
        return None

    def _drop_generation(self, generation: int) -> bool:
        if self._kind_of(generation) is None:
            return False
        self._drop()
        return True

    def _drop(self) -> None:
        """Ends the road or the agreement on one; their ends are awaited in `close`."""
        agreeing, self._agreeing, self._talk = self._agreeing, None, None
        if agreeing is not None and agreeing is not asyncio.current_task():
            agreeing.cancel()
        road, self._road = self._road, None
        if road is not None:
            self._parts.sender.use(None)
            self._parts.counts.demotion_count += 1
            # In a task of its own: one of the road's own tasks may be at this point.
            self._keep(road.close())

    def _keep(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="link-road")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _judge_later(self, now: float) -> None:
        due = self._parts.promotion.next_proposal()
        if self._road is not None:
            due = now + JUDGING_SECONDS
        if due is None or self._is_closed:
            return
        # Messages come more often than a timer need be set.
        if self._timer is not None and now < self._timer_at <= due:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = asyncio.get_running_loop().call_later(max(0.0, due - now), self.judge)


def _unforeseen(error: Exception) -> str:
    _log.error("road_failed", exc_info=error)
    return f"{type(error).__name__} in this end's part of it"
