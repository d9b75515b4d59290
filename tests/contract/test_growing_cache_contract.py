"""A cache whose memory follows its history: the same bits, and no more bytes than it needs."""

from __future__ import annotations

import dataclasses

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.positions import (
    COARSE_SEGMENT,
    FINE_SEGMENT,
    FINE_SLOTS,
    contiguous_placement,
)
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import OutOfKvMemory
from tests.support.breadth import wide
from tests.support.forwards import logits_of
from tests.support.small_verifiers import COMPILED, tried_on

WHOLE = CacheSpec(CacheKind.CONTIGUOUS, capacity=1024)
GROWING = dataclasses.replace(WHOLE, grows=True)
BORDER = FINE_SEGMENT


def read(verifier: Verifier, cache: KvCache, first: int, end: int, block: int) -> bytes:
    """The logits of a fixed text's positions, read in blocks."""
    rows = [
        logits_of(
            verifier,
            cache,
            [(7 * index + 3) % 96 for index in range(start, min(start + block, end))],
        )
        for start in range(first, end, block)
    ]
    return b"".join(row.tobytes() for row in rows if row is not None)


def bytes_of(verifier: Verifier, positions: int) -> int:
    slots = contiguous_placement(positions).slots
    return slots * verifier.info.kv_bytes_per_token + verifier.info.kv_fixed_bytes


@pytest.mark.parametrize("block", [1, wide(5), 16])
def test_one_that_grew_has_the_bits_of_one_allocated_at_once(
    verifier: Verifier, block: int
) -> None:
    whole, grown = verifier.allocate(WHOLE), verifier.allocate(GROWING)
    for cache in (whole, grown):
        cache.fill(BORDER - 20, 5)
    expected = read(verifier, whole, BORDER - 20, BORDER + 12, 16)
    assert read(verifier, grown, BORDER - 20, BORDER + 12, block) == expected
    for cache in (whole, grown):
        cache.release()


def test_its_bytes_follow_the_history_a_segment_at_a_time(verifier: Verifier) -> None:
    cache = verifier.allocate(GROWING)
    used = verifier.pool.held_bytes
    assert cache.memory_bytes == verifier.bytes_needed(GROWING) == bytes_of(verifier, 1)
    assert cache.reach == FINE_SEGMENT
    read(verifier, cache, 0, FINE_SEGMENT, 16)
    assert (cache.memory_bytes, cache.growth_bytes(0)) == (bytes_of(verifier, 1), 0)
    grows = cache.growth_bytes(1)
    assert grows == bytes_of(verifier, FINE_SEGMENT + 1) - bytes_of(verifier, FINE_SEGMENT)
    read(verifier, cache, FINE_SEGMENT, FINE_SEGMENT + 1, 1)
    assert cache.memory_bytes == bytes_of(verifier, FINE_SEGMENT + 1)
    assert verifier.pool.held_bytes == used + grows
    assert cache.growth_bytes(16) == 0
    cache.truncate(FINE_SEGMENT)
    assert cache.reach == 2 * FINE_SEGMENT
    cache.release()
    assert verifier.pool.held_bytes == used - bytes_of(verifier, 1)


def test_at_its_limit_it_is_as_one_allocated_at_once(verifier: Verifier) -> None:
    spec = dataclasses.replace(GROWING, capacity=300)
    cache = verifier.allocate(spec)
    cache.fill(300, 1)
    assert (cache.reach, cache.growth_bytes(5)) == (300, 0)
    whole = dataclasses.replace(spec, grows=False)
    assert cache.memory_bytes == verifier.bytes_needed(whole)
    cache.release()


def test_memory_that_was_taken_ahead_changes_no_bit(verifier: Verifier) -> None:
    ahead, follows = verifier.allocate(GROWING), verifier.allocate(GROWING)
    ahead.grow(BORDER + 20)
    assert ahead.memory_bytes == bytes_of(verifier, BORDER + 20)
    assert (ahead.length, ahead.growth_bytes(BORDER + 20)) == (0, 0)
    for cache in (ahead, follows):
        cache.fill(BORDER - 20, 5)
    expected = read(verifier, follows, BORDER - 20, BORDER + 12, 16)
    assert read(verifier, ahead, BORDER - 20, BORDER + 12, 5) == expected
    whole = verifier.allocate(dataclasses.replace(WHOLE, capacity=300))
    before = whole.memory_bytes
    whole.grow(1 << 20)
    assert whole.memory_bytes == before
    for cache in (ahead, follows, whole):
        cache.release()


@pytest.mark.parametrize("at", [BORDER - 30, BORDER - 1, BORDER, wide(BORDER + 10)])
@pytest.mark.parametrize("verifier", tried_on("torch", COMPILED), indirect=True)
def test_forks_across_a_growth_have_the_bits_of_their_text(verifier: Verifier, at: int) -> None:
    whole, origin = verifier.allocate(WHOLE), verifier.allocate(GROWING)
    for cache in (whole, origin):
        cache.fill(BORDER - 30, 5)
    head = read(verifier, whole, BORDER - 30, at, 16)
    tail = read(verifier, whole, at, BORDER + 40, 16)
    assert read(verifier, origin, BORDER - 30, at, 16) == head
    before = verifier.pool.used_bytes
    promised = origin.fork_bytes(at)
    fork = origin.fork(at)
    assert verifier.pool.used_bytes == before + promised
    assert fork.memory_bytes <= bytes_of(verifier, max(1, at))
    # One grows before the other, both write over what they shared.
    assert read(verifier, fork, at, BORDER + 40, 16) == tail
    assert read(verifier, origin, at, BORDER + 40, 5) == tail
    again = fork.fork(at) if fork.forkable_from <= at else fork
    assert read(verifier, again, at, BORDER + 40, 7) == tail
    for cache in {id(one): one for one in (whole, origin, fork, again)}.values():
        cache.release()


def test_without_room_to_grow_nothing_is_written_and_the_bits_go_on(verifier: Verifier) -> None:
    whole, cache = verifier.allocate(WHOLE), verifier.allocate(GROWING)
    for each in (whole, cache):
        each.fill(BORDER - 4, 5)
    expected = read(verifier, whole, BORDER - 4, BORDER + 12, 8)
    pool = verifier.pool
    pool.budget_bytes = pool.used_bytes
    before = cache.memory_bytes, pool.used_bytes
    try:
        with pytest.raises(OutOfKvMemory):
            read(verifier, cache, BORDER - 4, BORDER + 4, 8)
        assert (cache.length, cache.memory_bytes, pool.used_bytes) == (BORDER - 4, *before)
    finally:
        pool.budget_bytes = None
    assert read(verifier, cache, BORDER - 4, BORDER + 12, 8) == expected
    for each in (whole, cache):
        each.release()


def test_a_step_takes_a_segment_at_most(verifier: Verifier) -> None:
    spec = dataclasses.replace(GROWING, capacity=verifier.info.context_length)
    assert verifier.row_counts[-1] < FINE_SEGMENT < COARSE_SEGMENT < FINE_SLOTS
    cache = verifier.allocate(spec)
    widest = verifier.row_counts[-1]
    most = FINE_SEGMENT * verifier.info.kv_bytes_per_token
    assert cache.growth_bytes(widest) == 0
    cache.fill(FINE_SEGMENT - 1, 1)
    assert cache.growth_bytes(widest) == most
    cache.release()
