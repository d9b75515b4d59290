"""What every cache of every back end does, seen through the verifier that fills it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.positions import attends
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import BadParameters, ContextExceeded

HISTORY = [(7 * index + index * index // 5) % 96 for index in range(120)]


def fill(verifier: Verifier, spec: CacheSpec, tokens: list[int], block: int = 16):
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
    assert rest == 0
    assert slots % 64 == 0
    kept = spec.capacity if spec.kind is CacheKind.CONTIGUOUS else spec.sink + spec.window
    assert slots >= (1 if spec.grows else kept)


def test_length_counts_every_written_token_and_bytes_stay(
    verifier: Verifier, spec: CacheSpec
) -> None:
    cache = verifier.allocate(spec)
    before = cache.memory_bytes
    for count in (1, 5, 16, 1, 2):
        start = cache.length
        verifier.forward(cache, HISTORY[start : start + count], want_logits=False)
        assert cache.length == start + count
    assert cache.memory_bytes == before


def test_resident_is_what_the_next_query_can_see(verifier: Verifier, spec: CacheSpec) -> None:
    cache = verifier.allocate(spec)
    sink, window = spec.sink, spec.window
    if spec.kind is CacheKind.CONTIGUOUS:
        sink, window = 0, spec.capacity
    for token in HISTORY[:40]:
        verifier.forward(cache, [token], want_logits=False)
        length = cache.length
        seen = sum(attends(length, key, sink, window) for key in range(length))
        assert cache.resident == seen


@pytest.mark.parametrize("start", [0, 37])
def test_truncation_at_every_position_is_as_if_never_written(
    verifier: Verifier, spec: CacheSpec, start: int
) -> None:
    straight = fill(verifier, spec, HISTORY[:start])
    wrong = [95 - token for token in HISTORY[start : start + 16]]
    for kept in range(17):
        cache = straight.fork(straight.length)
        verifier.forward(cache, HISTORY[start : start + kept] + wrong[kept:], want_logits=False)
        cache.truncate(start + kept)
        assert cache.length == start + kept
        tail = HISTORY[start + kept : start + kept + 16]
        got = verifier.forward(cache, tail, want_logits=True)
        expected = verifier.forward(
            fill(verifier, spec, HISTORY[: start + kept], block=5), tail, want_logits=True
        )
        assert np.array_equal(got, expected), kept


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


def test_a_clone_is_equal_and_independent(verifier: Verifier, spec: CacheSpec) -> None:
    original = fill(verifier, spec, HISTORY[:50])
    copy = original.fork(original.length)
    assert (copy.length, copy.resident, copy.spec) == (50, original.resident, spec)
    assert copy.memory_bytes == original.memory_bytes
    expected = verifier.forward(original.fork(original.length), HISTORY[50:60], want_logits=True)
    for _ in range(8):
        verifier.forward(copy, [1] * 16, want_logits=False)
    assert original.length == 50
    got = verifier.forward(original, HISTORY[50:60], want_logits=True)
    assert np.array_equal(got, expected)


def test_caches_share_nothing(verifier: Verifier, spec: CacheSpec) -> None:
    alone = fill(verifier, spec, HISTORY[:60])
    expected = verifier.forward(alone, HISTORY[60:70], want_logits=True)
    mine, other = verifier.allocate(spec), verifier.allocate(spec)
    for first in range(0, 60, 6):
        verifier.forward(mine, HISTORY[first : first + 6], want_logits=False)
        verifier.forward(other, [first % 96] * 9, want_logits=False)
    got = verifier.forward(mine, HISTORY[60:70], want_logits=True)
    assert np.array_equal(got, expected)


def test_a_full_contiguous_cache_refuses_and_stays_as_it_was(verifier: Verifier) -> None:
    spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=20)
    cache = fill(verifier, spec, HISTORY[:16])
    untouched = cache.fork(cache.length)
    with pytest.raises(ContextExceeded):
        verifier.forward(cache, HISTORY[16:21], want_logits=False)
    assert cache.length == 16
    got = verifier.forward(cache, HISTORY[16:20], want_logits=True)
    expected = verifier.forward(untouched, HISTORY[16:20], want_logits=True)
    assert np.array_equal(got, expected)
    with pytest.raises(ContextExceeded):
        verifier.forward(cache, HISTORY[20:21], want_logits=False)


def test_a_capacity_of_one_holds_one(verifier: Verifier) -> None:
    cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=1))
    with pytest.raises(ContextExceeded):
        verifier.forward(cache, [1, 2], want_logits=False)
    logits = verifier.forward(cache, [1], want_logits=True)
    assert logits is not None
    assert np.isfinite(logits).all()
    with pytest.raises(ContextExceeded):
        verifier.forward(cache, [1], want_logits=False)


def test_the_capacity_changes_no_bits(verifier: Verifier) -> None:
    rows = [
        verifier.forward(
            fill(verifier, CacheSpec(CacheKind.CONTIGUOUS, capacity=capacity), HISTORY[:80]),
            HISTORY[80:96],
            want_logits=True,
        )
        for capacity in (96, 257, 1024)
    ]
    assert np.array_equal(rows[0], rows[1])
    assert np.array_equal(rows[0], rows[2])


def test_bytes_grow_with_capacity_in_whole_segments(verifier: Verifier) -> None:
    def needed(capacity: int) -> int:
        return verifier.bytes_needed(CacheSpec(CacheKind.CONTIGUOUS, capacity=capacity))

    assert needed(1) < needed(1024)
    assert needed(1024) >= 1024 * verifier.info.kv_bytes_per_token


@pytest.mark.parametrize(
    "bad",
    [
        CacheSpec(CacheKind.CONTIGUOUS, capacity=0),
        CacheSpec(CacheKind.CONTIGUOUS, capacity=1025),
        CacheSpec(CacheKind.SINK_WINDOW, sink=-1, window=4),
        CacheSpec(CacheKind.SINK_WINDOW, sink=4, window=0),
    ],
)
def test_impossible_caches_are_refused(verifier: Verifier, bad: CacheSpec) -> None:
    with pytest.raises(BadParameters):
        verifier.allocate(bad)
    with pytest.raises(BadParameters):
        verifier.bytes_needed(bad)


def test_a_window_beyond_the_positions_sees_all_and_costs_no_more(verifier: Verifier) -> None:
    wide = CacheSpec(CacheKind.SINK_WINDOW, sink=4, window=10**9)
    enough = dataclasses.replace(wide, window=1024)
    assert verifier.bytes_needed(wide) == verifier.bytes_needed(enough)
    cache = fill(verifier, wide, HISTORY)
    assert cache.resident == len(HISTORY)
