"""Sessions that take turns: every turn whole, sessions replaced when full, nothing left behind."""

import asyncio
import itertools
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Feed, Output, Verifier
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from scripts.bench.generation import Measured as MeasuredGeneration
from scripts.bench.generation import answer, measure_memory
from scripts.bench.session_load import Reading, TurnLoad, TurnShape
from tests.support import hash_verifier as hashing

ROOT = Path(__file__).resolve().parents[2]

Result = TypeVar("Result")

SHAPE = TurnShape(appended=3, generated=4)


async def directly(step: Callable[[], Result], /) -> Result:
    """Runs the step, after every other task had its chance."""
    await asyncio.sleep(0)
    return step()


def load(verifier: Verifier, spec: CacheSpec) -> tuple[SessionRegistry[None], TurnLoad]:
    ids = itertools.count()
    registry: SessionRegistry[None] = SessionRegistry(
        clock=lambda: 0.0, ids=lambda: f"s{next(ids)}"
    )
    budget = registry.add_verifier(verifier, 1 << 20)
    return registry, TurnLoad(registry, budget, spec, SHAPE, directly, directly)


@pytest.mark.parametrize(("sessions", "turns"), [(1, 12), (3, 14)])
async def test_all_turns_are_counted_and_read_now_and_then(sessions: int, turns: int) -> None:
    verifier = hashing.HashVerifier()
    registry, runner = load(verifier, CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6))
    read_at = []

    def read(turn: int) -> Reading:
        read_at.append((turn, len(registry)))
        return Reading(turn, verifier.pool.held_bytes, 0)

    got = await runner.endure(sessions=sessions, turns=turns, read=read, read_every=4)
    assert len(got.latencies) == turns
    assert got.sessions_opened == sessions
    assert read_at == [(4 * index, sessions) for index in range(1, turns // 4 + 1)]
    assert len({reading.kv_bytes for reading in got.readings}) == 1
    assert len(registry) == 0
    assert verifier.pool.held_bytes == 0


async def test_a_full_session_makes_place_for_another() -> None:
    verifier = hashing.HashVerifier()
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=3 * SHAPE.tokens)
    registry, runner = load(verifier, spec)
    read = lambda turn: Reading(turn, verifier.pool.held_bytes, 0)  # noqa: E731
    got = await runner.endure(sessions=1, turns=10, read=read, read_every=1)
    assert got.sessions_opened == 4
    assert len(registry) == 0
    assert {reading.kv_bytes for reading in got.readings} == {verifier.bytes_needed(spec)}


async def test_a_turn_that_fails_is_not_a_figure() -> None:
    class Failing(hashing.HashVerifier):
        def forward_batch(self, feeds: Sequence[Feed]) -> list[Output]:
            if self.forward_count > 20:
                raise RuntimeError("no more")
            return super().forward_batch(feeds)

    _registry, runner = load(Failing(), CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6))
    with pytest.raises(ExceptionGroup):
        await runner.endure(
            sessions=2, turns=50, read=lambda turn: Reading(turn, 0, 0), read_every=9
        )


def test_an_answer_has_one_step_less_than_tokens_and_gives_its_memory_back() -> None:
    verifier = hashing.HashVerifier()
    prompt = [random.Random(0).randrange(48) for _ in range(20)]
    got = answer(verifier, prompt, 9)
    assert len(got.tokens) == 9
    assert len(got.steps) == 8
    assert got.cache_bytes == verifier.bytes_needed(CacheSpec(CacheKind.CONTIGUOUS, capacity=29))
    assert verifier.pool.held_bytes == 0
    measured = MeasuredGeneration()
    measure_memory(measured, verifier, prompt, 5)
    assert measured.peak_allocated_bytes >= 0
    if sys.platform == "linux":
        assert measured.peak_memory_bytes is not None
