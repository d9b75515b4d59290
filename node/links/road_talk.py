"""How both ends of a link come to have a road: proposed, answered, built, ready."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import TypeVar

from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.node.links.roads.contract import Road, RoadBuilder, RoadFailed, RoadPlan, Terms
from kakeya_fleet.node.links.used_road import TRANSPORTS

NONCE_BYTES = 32
ANSWER_SECONDS = 15.0
READY_SECONDS = 60.0
"""A ring takes one to several seconds to start, on a busy host more."""
MOST_TERMS = 32
MOST_TERM_CHARACTERS = 4096

Result = TypeVar("Result")
Say = Callable[[wire.RoadMessage], None]


class RoadTalk:
    """One generation's agreement, as one end has it. Belongs to the event loop's thread."""

    def __init__(self, generation: int, builder: RoadBuilder, say: Say) -> None:
        self.generation = generation
        self.builder = builder
        self._say = say
        loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Terms] = loop.create_future()
        self._ready: asyncio.Future[None] = loop.create_future()

    async def propose(self) -> Road:
        """The caller's part. Raises `RoadFailed`; nothing is left then, or when cancelled."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        plan = await self.builder.propose(nonce)
        try:
            self._say(
                wire.RoadMessage(
                    generation=self.generation,
                    step=wire.ROAD_STEP_PROPOSE,
                    transport=TRANSPORTS[self.builder.kind],
                    nonce=nonce,
                    terms=plan.terms,
                )
            )
            other = await _within(self._answer, ANSWER_SECONDS, "the other end did not answer")
        except BaseException:
            await plan.abandon()
            raise
        return await self._build(plan, other)

    async def answer(self, nonce: bytes, proposed: Terms) -> Road:
        """The other end's part. Raises `RoadFailed`; nothing is left then, or when cancelled."""
        plan = await self.builder.answer(nonce, proposed)
        self._say(
            wire.RoadMessage(
                generation=self.generation, step=wire.ROAD_STEP_ANSWER, terms=plan.terms
            )
        )
        return await self._build(plan, proposed)

    def answered(self, terms: Terms) -> None:
        """The other end's answer came."""
        if not self._answer.done():
            self._answer.set_result(terms)

    def other_is_ready(self) -> None:
        """The other end's part stands."""
        if not self._ready.done():
            self._ready.set_result(None)

    async def _build(self, plan: RoadPlan, other: Terms) -> Road:
        road = await plan.build(other)
        try:
            self._say(wire.RoadMessage(generation=self.generation, step=wire.ROAD_STEP_READY))
            await _within(self._ready, READY_SECONDS, "the other end's part was never ready")
        except BaseException:
            await road.close()
            raise
        return road


def checked_terms(message: wire.RoadMessage) -> Terms:
    """The terms of a message. Raises `RoadFailed` for what no builder writes."""
    terms = dict(message.terms)
    if len(terms) > MOST_TERMS or any(
        max(len(key), len(value)) > MOST_TERM_CHARACTERS for key, value in terms.items()
    ):
        raise RoadFailed("the other end's terms are too long")
    return terms


async def _within(future: asyncio.Future[Result], seconds: float, otherwise: str) -> Result:
    try:
        async with asyncio.timeout(seconds):
            return await future
    except TimeoutError as error:
        raise RoadFailed(f"{otherwise} within {seconds:g} s") from error
