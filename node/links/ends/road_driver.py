"""Drives the roads of one end of a link: the clock, the builders and tasks around `promotion`."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial

import structlog

from kakeya_fleet.node.links.ends.road_run import RoadRun
from kakeya_fleet.node.links.ends.shared_parts import SharedParts
from kakeya_fleet.node.links.ends.tensor_receiver import TensorReceiver
from kakeya_fleet.node.links.ends.tensor_sender import TensorSender
from kakeya_fleet.node.links.protocol.contract import RoadKind
from kakeya_fleet.node.links.protocol.messages import RoadMessage, RoadStep
from kakeya_fleet.node.links.protocol.promotion import NONCE_BYTES, due, step
from kakeya_fleet.node.links.protocol.promotion_events import (
    Answer,
    Broke,
    Build,
    Built,
    Changed,
    Cleared,
    Drop,
    Effect,
    Event,
    Heard,
    Planned,
    Propose,
    Resend,
    ResendCorrupt,
    Say,
    Tick,
    Unavailable,
    Use,
)
from kakeya_fleet.node.links.protocol.promotion_state import Standing
from kakeya_fleet.node.links.roads.contract import RoadBuilder, RoadFailed, RoadPlan
from kakeya_fleet.node.rpc.refusals import TensorOutOfOrder

_log = structlog.get_logger(__name__)

MOST_UNSAID = 64


class RoadDriver:
    """Feeds events to `promotion.step` and does what it asks for. Belongs to the loop's thread."""

    def __init__(
        self,
        parts: SharedParts,
        builders: Mapping[RoadKind, RoadBuilder],
        sender: TensorSender,
        receiver: TensorReceiver,
        changed: Callable[[Standing], None],
    ) -> None:
        """`changed` hears what stood before, when what carries the link is another."""
        self._parts = parts
        self._state = parts.promotion
        self._builders = builders
        self._sender = sender
        self._receiver = receiver
        self._changed = changed
        self._runs: dict[int, RoadRun] = {}
        self._tasks: dict[RoadRun, asyncio.Task[None]] = {}
        self._events: deque[Event] = deque()
        self._is_feeding = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_closed = False

    def feed(self, event: Event) -> None:
        """Takes an event. Raises `TensorOutOfOrder` for a message that no other end sends."""
        if self._is_closed:
            return
        self._events.append(event)
        if self._is_feeding:
            # What an effect leads to comes after the other effects of its event.
            return
        self._is_feeding = True
        try:
            while self._events:
                now = self._parts.clock()
                for effect in step(self._state, self._events.popleft(), now):
                    self._do(effect)
        finally:
            self._is_feeding = False
            self._events.clear()
        self._set_timer()

    def heard(self, message: RoadMessage) -> None:
        """Takes a step of the other end. Raises `TensorOutOfOrder` for none."""
        if self._sender.unsaid_count > MOST_UNSAID:
            raise TensorOutOfOrder("the other end does not read what roads it proposes come to")
        self.feed(Heard(message))

    def road_of(self, generation: int) -> RoadRun | None:
        """The road of a tensor that is announced; None for one that has failed.

        Raises `TensorOutOfOrder` for a generation that this end never was ready for.
        """
        road = self._state.road
        if road is not None and road.generation == generation:
            return self._runs[generation]
        if not 1 <= generation <= self._state.promised:
            raise TensorOutOfOrder(f"there was no road of generation {generation}")
        return None

    async def close(self) -> None:
        """Ends the road, or the agreement on one, and waits until nothing of them is left."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for generation in tuple(self._runs):
            self._drop(generation)
        if self._tasks:
            await asyncio.wait(tuple(self._tasks.values()))

    def _do(self, effect: Effect) -> None:
        match effect:
            case Propose(generation, kind):
                nonce = secrets.token_bytes(NONCE_BYTES)
                self._begin(generation, kind, lambda builder: builder.propose(nonce), nonce)
            case Answer(generation, kind, nonce, terms):
                self._begin(generation, kind, lambda builder: builder.answer(nonce, terms))
                self._build(generation, terms)
            case Build(generation, terms):
                self._build(generation, terms)
            case Use(generation):
                self._runs[generation].used.set()
                self._sender.use(self._runs[generation])
            case Drop(generation):
                self._drop(generation)
            case Say(message):
                if message.step is RoadStep.FAILED:
                    message = replace(message, through=self._receiver.through)
                self._sender.say_road(message)
            case Resend(generation, through):
                self._sender.taken(through)
                self._sender.road_failed(generation)
            case ResendCorrupt(tensor_id):
                self._sender.came_corrupt(tensor_id)
            case Changed(before):
                self._changed(before)

    def _begin(
        self,
        generation: int,
        kind: RoadKind,
        plan: Callable[[RoadBuilder], Awaitable[RoadPlan]],
        nonce: bytes = b"",
    ) -> None:
        builder = self._builders[kind]
        if missing := builder.available:
            self.feed(Unavailable(generation, missing))
            self.feed(Cleared())
            return
        terms = asyncio.get_running_loop().create_future()
        run = RoadRun(generation, kind, self._state.settings, terms)
        self._runs[generation] = run
        task = asyncio.create_task(self._run(run, partial(plan, builder), nonce), name="link-road")
        self._tasks[run] = task
        task.add_done_callback(partial(self._cleared, run))

    def _build(self, generation: int, terms: Mapping[str, str]) -> None:
        run = self._runs.get(generation)
        if run is not None and not run.terms.done():
            run.terms.set_result(terms)

    async def _run(
        self, run: RoadRun, plan: Callable[[], Awaitable[RoadPlan]], nonce: bytes
    ) -> None:
        generation, road = run.generation, None
        try:
            road = await run.build(plan, lambda terms: self.feed(Planned(generation, terms, nonce)))
            self.feed(Built(generation))
            await run.carry(road, partial(self._receiver.receive_all, run, road))
        except RoadFailed as failed:
            self.feed(Broke(generation, str(failed)))
        except TensorOutOfOrder as error:
            self._parts.fail(error)
        except Exception as error:  # noqa: BLE001 - whatever a road does, its link goes on
            _log.error("road_failed", exc_info=error)
            self.feed(Broke(generation, f"{type(error).__name__} in this end's part of it"))
        finally:
            # The other end hears of it before this one has cleared away.
            if road is not None:
                await road.close()

    def _drop(self, generation: int) -> None:
        run = self._runs.pop(generation, None)
        if run is None:
            return
        self._sender.use(None)
        task = self._tasks.get(run)
        # One that drops itself is at its end already.
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _cleared(self, run: RoadRun, _task: asyncio.Task[None]) -> None:
        del self._tasks[run]
        self.feed(Cleared())

    def _set_timer(self) -> None:
        now = self._parts.clock()
        at = due(self._state, now)
        if at is None:
            return
        # Events come more often than a timer need be set.
        if self._timer is not None and now < self._timer_at <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, at - now), self.feed, Tick())
