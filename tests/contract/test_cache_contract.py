"""What every cache of every back end does, seen through the verifier that fills it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.positions import attends
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import BadParameters, ContextExceeded
from tests.support.forwards import logits_of
from tests.support.small_verifiers import COMPILED, tried_on

HISTORY = [(7 * index + index * index // 5) % 96 for index in range(120)]


def fill(verifier: Verifier, spec: CacheSpec, tokens: list[int], block: int = 16) -> KvCache:
    cache = verifier.allocate(spec)
    for first in range(0, len(tokens), block):
        verifier.forward(cache, tokens[first : first + block], want_logits=False)
    return cache


def test_a_new_cache_is_empty_and_has_the_bytes_that_were_foretold(
    verifier: Verifier, spec: CacheSpec
) -> None:
    cache = verifier.allocate(spec)
    assert (cache.length, cache.resident, cache.spec) == (0, 0, spec)
    assert cache.memory_bytes == verifier.bytes_needed(spec) > 0
    slots, rest = divmod(cache.memory_bytes, verifier.info.kv_bytes_per_token)
    assert rest == 0 or spec.packed_by
    assert slots % 64 == 0 or spec.packed_by
    kept = spec.capacity if spec.kind is CacheKind.CONTIGUOUS else spec.sink + spec.window
    assert slots >= (1 if spec.grows else kept)


def test_resident_is_what_the_next_query_can_see(verifier: Verifier, spec: CacheSpec) -> None:
    cache = verifier.allocate(spec)
    sink, window = spec.sink, spec.window
    if spec.kind is CacheKind.CONTIGUOUS:
        sink, window = 0, spec.capacity
    before = cache.memory_bytes
    while cache.length < 60:
        length = cache.length + 1 + cache.length % 7
        verifier.forward(cache, HISTORY[cache.length : length], want_logits=False)
        assert (cache.length, cache.memory_bytes) == (length, before)
        seen = sum(attends(length, key, sink, window) for key in range(length))
        assert cache.resident == seen


# Random ones, with each back end and cache: `test_verifier_contract`.
@pytest.mark.parametrize("verifier", tried_on(COMPILED), indirect=True)
@pytest.mark.parametrize(("start", "keeps"), [(0, (0, 3, 16)), (64, range(17))], ids=["0", "64"])
def test_truncation_at_every_position_is_as_if_never_written(
    verifier: Verifier, spec: CacheSpec, start: int, keeps: Iterable[int]
) -> None:
    straight = fill(verifier, spec, HISTORY[:start])
    untouched = straight.fork(start)
    expected = [logits_of(verifier, untouched, [token]) for token in HISTORY[start : start + 20]]
    wrong = [95 - token for token in HISTORY[start : start + 16]]
    for kept in keeps:
        cache = straight.fork(start)
        verifier.forward(cache, HISTORY[start : start + kept] + wrong[kept:], want_logits=False)
        cache.truncate(start + kept)
        assert cache.length == start + kept
        tail = HISTORY[start + kept : start + kept + 4]
        got = logits_of(verifier, cache, tail)
        assert np.array_equal(got, np.concatenate(expected[kept : kept + 4])), kept


def test_truncation_reaches_back_to_the_last_forward_only(
    verifier: Verifier, spec: CacheSpec
) -> None:
    cache = fill(verifier, spec, HISTORY[:24], block=8)
    for length in (15, 25, -1):
        with pytest.raises(ValueError, match="cannot keep"):
            cache.truncate(length)
    assert cache.length == 24
    cache.truncate(20)
    with pytest.raises(ValueError, match="cannot keep"):
        cache.truncate(21)
    cache.truncate(16)
    assert cache.length == 16


def test_a_full_contiguous_cache_refuses_and_stays_as_it_was(verifier: Verifier) -> None:
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=20)
    cache = fill(verifier, spec, HISTORY[:16])
    untouched = cache.fork(cache.length)
    with pytest.raises(ContextExceeded):
        verifier.forward(cache, HISTORY[16:21], want_logits=False)
    assert cache.length == 16
    got = logits_of(verifier, cache, HISTORY[16:20])
    expected = logits_of(verifier, untouched, HISTORY[16:20])
    assert np.array_equal(got, expected)
    with pytest.raises(ContextExceeded):
        verifier.forward(cache, HISTORY[20:21], want_logits=False)


def test_a_capacity_of_one_holds_one(verifier: Verifier) -> None:
    cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=1))
    with pytest.raises(ContextExceeded):
        verifier.forward(cache, [1, 2], want_logits=False)
    logits = logits_of(verifier, cache, [1])
    assert np.isfinite(logits).all()
    with pytest.raises(ContextExceeded):
        verifier.forward(cache, [1], want_logits=False)


def test_bytes_grow_with_capacity_in_whole_segments(verifier: Verifier) -> None:
    def needed(capacity: int) -> int:
        return verifier.bytes_needed(CacheSpec(CacheKind.CONTIGUOUS, capacity=capacity))

    assert needed(1) < needed(1024)
    assert needed(1024) >= 1024 * verifier.info.kv_bytes_per_token


def test_impossible_caches_are_refused(verifier: Verifier) -> None:
    for bad in (
        CacheSpec(CacheKind.CONTIGUOUS, capacity=0),
        CacheSpec(CacheKind.CONTIGUOUS, capacity=1025),
        CacheSpec(CacheKind.SINK_WINDOW, sink=-1, window=4),
        CacheSpec(CacheKind.SINK_WINDOW, sink=4, window=0),
    ):
        for refused in (verifier.allocate, verifier.bytes_needed):
            with pytest.raises(BadParameters):
                refused(bad)


def test_a_window_beyond_the_positions_sees_all_and_costs_no_more(verifier: Verifier) -> None:
    """And as the whole history does, to the bit, in whatever capacity."""
    wide = CacheSpec(CacheKind.SINK_WINDOW, sink=4, window=10**9)
    enough = dataclasses.replace(wide, window=1024)
    assert verifier.bytes_needed(wide) == verifier.bytes_needed(enough)
    rows = []
    for spec in (wide, *(CacheSpec(CacheKind.CONTIGUOUS, capacity=n) for n in (96, 257, 1024))):
        cache = fill(verifier, spec, HISTORY[:80])
        assert cache.resident == 80
        rows.append(logits_of(verifier, cache, HISTORY[80:96]))
    for other in rows[1:]:
        assert np.array_equal(rows[0], other)
