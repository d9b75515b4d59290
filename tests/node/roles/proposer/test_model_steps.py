from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Never

import pytest

from kakeya_fleet.node.roles.proposer.served_proposer import (
    INLINE_STEP_SECONDS,
    JUDGED_STEPS,
    ModelSteps,
)
from kakeya_fleet.node.roles.worker import ModelWorker


class Clock:
    """Advances by what a step says that it took."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


Model = tuple[ModelSteps, Clock]


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    worker, clock = ModelWorker("model"), Clock()
    yield ModelSteps(worker.run, clock), clock
    await worker.close()


def step(clock: Clock, seconds: float) -> Callable[[], bool]:
    def run() -> bool:
        clock.now += seconds
        return threading.current_thread() is threading.main_thread()

    return run


async def test_a_model_is_quick_once_a_step_of_it_was(model: Model) -> None:
    steps, clock = model
    quick = step(clock, INLINE_STEP_SECONDS / 2)
    assert [await steps.run(quick) for _ in range(3)] == [False, True, True]


async def test_a_slow_model_never_blocks_the_event_loop(model: Model) -> None:
    steps, clock = model
    slow = step(clock, INLINE_STEP_SECONDS * 1.1)
    assert not any([await steps.run(slow) for _ in range(2 * JUDGED_STEPS)])


async def test_a_model_that_became_slow_leaves_the_event_loop(model: Model) -> None:
    steps, clock = model
    await steps.run(step(clock, INLINE_STEP_SECONDS / 2))
    slow = step(clock, INLINE_STEP_SECONDS * 2)
    inline = [await steps.run(slow) for _ in range(2 * JUDGED_STEPS)]
    assert inline[0]
    assert not any(inline[JUDGED_STEPS:])


async def test_a_hiccup_does_not_make_a_model_slow(model: Model) -> None:
    steps, clock = model
    quick = step(clock, INLINE_STEP_SECONDS / 2)
    await steps.run(quick)
    await steps.run(step(clock, 10.0))
    assert await steps.run(quick)


async def test_a_short_step_waits_for_a_long_one_in_the_thread(model: Model) -> None:
    steps, clock = model
    await steps.run(step(clock, 0.0))
    begun, go = threading.Event(), threading.Event()
    order: list[str] = []

    def long() -> None:
        begun.set()
        assert go.wait(30)
        order.append("long")

    running = asyncio.create_task(steps.run_long(long))
    await asyncio.to_thread(begun.wait, 30)
    short = asyncio.create_task(steps.run(lambda: order.append("short")))
    await asyncio.sleep(0)
    assert order == []
    go.set()
    await asyncio.gather(running, short)
    assert order == ["long", "short"]


async def test_a_step_raises_where_it_is_awaited(model: Model) -> None:
    steps, clock = model

    def broken() -> Never:
        raise LookupError("no such thing")

    for _ in range(2):
        with pytest.raises(LookupError, match="no such thing"):
            await steps.run(broken)
    assert await steps.run(step(clock, 0.0))
