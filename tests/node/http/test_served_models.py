"""Who asks for models costs the fleet one question at a time, whatever they ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from kakeya import AsyncClient, ModelNotFound, NodeStatus
from kakeya_fleet.node.http.served_models import FRESH_SECONDS, REST, ServedModels


class SlowFleet:
    """A client of a fleet whose answer takes `seconds` of its clock, and comes when it is let."""

    def __init__(self, seconds: float) -> None:
        self.fleet = self
        self.now = 0.0
        self.asked_count = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._seconds = seconds

    def clock(self) -> float:
        return self.now

    async def nodes(self) -> Sequence[NodeStatus]:
        self.asked_count += 1
        await self.may_answer.wait()
        self.now += self._seconds
        return ()


@pytest.fixture
async def fleet() -> SlowFleet:
    return SlowFleet(2.0)


@pytest.fixture
def models(fleet: SlowFleet) -> ServedModels:
    return ServedModels(cast(AsyncClient, cast(Any, fleet)), lambda: False, fleet.clock)


async def missing(models: ServedModels, model_id: str) -> None:
    with pytest.raises(ModelNotFound):
        await models.find(model_id)


async def test_all_who_wait_share_one_question(fleet: SlowFleet, models: ServedModels) -> None:
    fleet.may_answer.clear()
    asking = [asyncio.create_task(models.all()) for _ in range(64)]
    await asyncio.sleep(0)
    leaving = asking.pop()
    leaving.cancel()
    fleet.may_answer.set()
    assert await asyncio.gather(*asking) == [()] * 63
    assert fleet.asked_count == 1
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_models_that_nobody_serves_are_not_asked_for_again_and_again(
    fleet: SlowFleet, models: ServedModels
) -> None:
    await missing(models, "a")
    assert fleet.asked_count == 1
    for number in range(100):
        await missing(models, f"b{number}")
        fleet.now += FRESH_SECONDS / 1000
    assert fleet.asked_count == 1
    fleet.now += REST * 2.0
    await missing(models, "a")
    assert fleet.asked_count == 2


async def test_a_failed_question_is_asked_again(fleet: SlowFleet, models: ServedModels) -> None:
    async def fails() -> Sequence[NodeStatus]:
        raise ModelNotFound("x")

    asked = fleet.nodes
    fleet.nodes = fails  # type: ignore[method-assign]
    with pytest.raises(ModelNotFound, match="x"):
        await models.all()
    fleet.nodes = asked  # type: ignore[method-assign]
    assert await models.all() == ()
