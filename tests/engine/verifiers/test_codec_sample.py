"""How far codecs move a real verifier's choices, a chunk at a time, in memory that is lent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import OutOfKvMemory
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from kakeya_fleet.engine.verifiers.codec_sample import (
    LEAST_TOKENS,
    MOST_TOKENS,
    POSITIONS,
    CodecSample,
    GaveWay,
)
from kakeya_fleet.fleet.placement.codec_ladder import LADDER

TOKENS = tuple((17 * index + index * index // 3) % 96 for index in range(1100))
FULL = CacheSpec(CacheKind.CONTIGUOUS, capacity=256)


@pytest.fixture
def verifier(random_checkpoint: Callable[..., Path]) -> Verifier:
    return load_verifier(resolve_model(str(random_checkpoint())), dtype="float32")


def finished(sample: CodecSample) -> tuple[float, ...]:
    while not sample.step():
        pass
    return sample.nats()


def test_fewer_bits_move_more(verifier: Verifier) -> None:
    means = []
    for codec in LADDER:
        nats = finished(CodecSample(verifier, TOKENS[:400], codec))
        assert len(nats) == POSITIONS
        assert min(nats) >= 0.0
        means.append(sum(nats) / POSITIONS)
    assert means == sorted(means)
    assert 10 * means[0] < means[1] < means[-1] / 10


def test_the_same_history_tells_the_same(verifier: Verifier) -> None:
    first, second = (finished(CodecSample(verifier, TOKENS[:300], "kvarn3")) for _ in range(2))
    assert first == second
    # Of a longer one the beginning alone is computed.
    bounded = finished(CodecSample(verifier, TOKENS, "kvarn3"))
    assert bounded == finished(CodecSample(verifier, TOKENS[:MOST_TOKENS], "kvarn3"))


def test_a_step_is_one_chunk_and_memory_is_given_back(verifier: Verifier) -> None:
    sample = CodecSample(verifier, TOKENS[:LEAST_TOKENS], "kvarn4")
    needed = sample.bytes_needed
    steps, most = 1, 0
    while not sample.step():
        steps += 1
        most = max(most, verifier.pool.used_bytes)
        assert sample.nbytes == verifier.pool.used_bytes
    assert steps == 2 * -(-LEAST_TOKENS // verifier.row_counts[-1])
    assert 0 < most <= needed
    assert sample.nbytes == verifier.pool.used_bytes == 0


def test_one_that_is_given_up_has_nothing(verifier: Verifier) -> None:
    sample = CodecSample(verifier, TOKENS[:300], "kvarn4")
    sample.step()
    assert verifier.pool.used_bytes
    sample.release()
    assert not verifier.pool.used_bytes


def test_a_session_has_its_memory_and_nobody_rests_for_it(verifier: Verifier) -> None:
    rested: list[str] = []
    ended: list[str] = []
    registry: SessionRegistry[str] = SessionRegistry(
        clock=lambda: 1000.0,
        ids=iter("abcdef").__next__,
        on_end=lambda record, _: ended.append(record.session_id),
        on_rest=lambda record, _: rested.append(record.session_id),
    )
    own = verifier.bytes_needed(FULL)
    budget = registry.add_verifier(verifier, 3 * own)
    registry.create(budget, FULL)
    sample = CodecSample(verifier, TOKENS[:256], "kvarn4")
    assert sample.bytes_needed <= budget.free_bytes
    budget.guest = sample
    sample.step()
    assert sample.nbytes
    # To all who ask, what it has is free.
    assert budget.free_bytes == 2 * own
    registry.create(budget, FULL)
    # It may stay as long as there is room for both.
    assert sample.nbytes
    registry.check_room(budget, FULL)
    registry.create(budget, FULL)
    assert (rested, ended, sample.nbytes) == ([], [], 0)
    with pytest.raises(GaveWay):
        sample.step()
    # Without a guest the budget is what it was.
    with pytest.raises(OutOfKvMemory):
        registry.check_room(budget, FULL)


def test_nobody_gives_way_to_it(verifier: Verifier) -> None:
    registry: SessionRegistry[str] = SessionRegistry(
        clock=lambda: 1e6, ids=iter("abc").__next__, min_idle_seconds=0.0
    )
    budget = registry.add_verifier(verifier, verifier.bytes_needed(FULL))
    record = registry.create(budget, FULL)
    with pytest.raises(OutOfKvMemory):
        CodecSample(verifier, TOKENS[:256], "kvarn4").step()
    assert not record.session.is_resting
    assert record.session.memory_bytes
