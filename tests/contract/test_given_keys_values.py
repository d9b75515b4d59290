"""What a cache gives of positions, another of the same weights takes as if it had read them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.raw_numbers import KeysValues, as_float32, in_format
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import (
    BadParameters,
    ContextExceeded,
    KvStrategyUnsupported,
    OutOfKvMemory,
)
from tests.support.forwards import logits_of

HISTORY = [(7 * index + index * index // 5) % 96 for index in range(300)]
GROWING = CacheSpec(CacheKind.CONTIGUOUS, capacity=600, grows=True)


def filled(verifier: Verifier, spec: CacheSpec, count: int, block: int = 16) -> KvCache:
    cache = verifier.allocate(spec)
    for first in range(0, count, block):
        tokens = HISTORY[first : min(count, first + block)]
        verifier.forward(cache, tokens, want_logits=False)
    return cache


def given(cache: KvCache, first: int, end: int) -> KeysValues:
    numbers = cache.keys_values(first, end)
    assert numbers is not None
    return numbers


@pytest.mark.parametrize("pieces", [(270,), (1, 63, 192, 14), (250, 20)])
def test_a_history_in_pieces_is_as_if_it_was_read(
    verifier: Verifier, pieces: tuple[int, ...]
) -> None:
    """Over the borders of segments, and of forwards that were as wide as they may be."""
    used = verifier.pool.used_bytes
    source, length = filled(verifier, GROWING, sum(pieces)), sum(pieces)
    cache = verifier.allocate(GROWING)
    for count in pieces:
        cache.take_keys_values(count, given(source, cache.length, cache.length + count))
    assert (cache.length, cache.resident) == (length, length)
    tail = HISTORY[length : length + 4]
    assert np.array_equal(logits_of(verifier, cache, tail), logits_of(verifier, source, tail))
    own, theirs = given(cache, 0, length), given(source, 0, length)
    for one, other in zip(own, theirs, strict=True):
        assert np.array_equal(one, other)
    for each in (cache, source):
        each.release()
    assert verifier.pool.used_bytes == used


def test_it_goes_on_behind_what_was_read_and_goes_back_into_what_was_given(
    verifier: Verifier,
) -> None:
    source = filled(verifier, GROWING, 100)
    cache = filled(verifier, GROWING, 40)
    cache.take_keys_values(60, given(source, 40, 100))
    shorter = cache.fork(70)
    cache.release()
    assert np.array_equal(
        logits_of(verifier, shorter, HISTORY[70:74]),
        logits_of(verifier, filled(verifier, GROWING, 70), HISTORY[70:74]),
    )


def test_what_a_fork_shares_is_not_written_over(verifier: Verifier) -> None:
    source = filled(verifier, GROWING, 60)
    cache = filled(verifier, GROWING, 40)
    fork = cache.fork(30)
    before = given(fork, 0, 30)
    wrong = tuple(np.zeros_like(each) for each in given(source, 30, 60))
    fork.take_keys_values(30, wrong)
    assert np.array_equal(
        logits_of(verifier, cache, HISTORY[40:44]),
        logits_of(verifier, source.fork(40), HISTORY[40:44]),
    )
    for one, other in zip(given(fork, 0, 30), before, strict=True):
        assert np.array_equal(one, other)


def test_flat_numbers_of_the_other_format_are_taken(verifier: Verifier) -> None:
    source = filled(verifier, GROWING, 20)
    numbers = given(source, 0, 20)
    other = tuple(
        as_float32(each).reshape(-1)
        if each.dtype == np.uint16
        else in_format(as_float32(each), "bfloat16").reshape(-1)
        for each in numbers
    )
    cache = verifier.allocate(GROWING)
    cache.take_keys_values(20, other)
    for one, each in zip(given(cache, 0, 20), numbers, strict=True):
        rounded = as_float32(in_format(as_float32(each), "bfloat16"))
        assert np.array_equal(as_float32(one), rounded)


def test_numbers_that_cannot_be_leave_nothing_behind(verifier: Verifier) -> None:
    source = filled(verifier, GROWING, 20)
    numbers = given(source, 0, 20)
    cache = filled(verifier, GROWING, 10)
    infinite = tuple(
        np.full_like(each, 0x7F80 if each.dtype == np.uint16 else np.inf) for each in numbers
    )
    for count, bad in (
        (20, infinite),
        (19, numbers),
        (20, numbers[1:]),
        (20, (*numbers, numbers[0])),
        (0, tuple(each[:, :, :, :0] for each in numbers)),
    ):
        with pytest.raises(BadParameters):
            cache.take_keys_values(count, bad)
    full = filled(verifier, replace(GROWING, capacity=20, grows=False), 10)
    with pytest.raises((ContextExceeded, BadParameters)):
        full.take_keys_values(20, numbers)
    for each in (cache, full):
        assert each.length == 10
        assert np.array_equal(
            logits_of(verifier, each, HISTORY[10:14]),
            logits_of(verifier, filled(verifier, GROWING, 10), HISTORY[10:14]),
        )


def test_no_memory_is_told_and_nothing_is_taken(verifier: Verifier) -> None:
    source = filled(verifier, GROWING, 290)
    numbers = given(source, 0, 290)
    cache = verifier.allocate(GROWING)
    pool = verifier.pool
    pool.budget_bytes = pool.held_bytes
    try:
        with pytest.raises(OutOfKvMemory):
            cache.take_keys_values(290, numbers)
    finally:
        pool.budget_bytes = None
    assert cache.length == 0
    cache.take_keys_values(290, numbers)
    assert cache.length == 290


def test_a_window_gives_what_it_still_has(verifier: Verifier) -> None:
    spec = CacheSpec(CacheKind.SINK_WINDOW, sink=4, window=40)
    short, long = filled(verifier, spec, 40), filled(verifier, spec, 300)
    whole = filled(verifier, GROWING, 40)
    for one, other in zip(given(short, 0, 40), given(whole, 0, 40), strict=True):
        assert np.allclose(as_float32(one), as_float32(other), rtol=0.02, atol=1e-5)
    assert long.keys_values(0, 300) is None
    assert long.keys_values(4, 5) is None
    for first, end in ((0, 4), (261, 300), (299, 300)):
        assert all(each.shape[3] == end - first for each in given(long, first, end))
    for first, end in ((-1, 4), (290, 301), (9, 9)):
        assert long.keys_values(first, end) is None


def test_what_hands_over_takes_nothing(verifier: Verifier) -> None:
    spec = CacheSpec(CacheKind.PACKED, capacity=600, sink=0, window=64, codec="kvarn4")
    packed = verifier.allocate(spec)
    numbers = given(filled(verifier, GROWING, 8), 0, 8)
    with pytest.raises(KvStrategyUnsupported):
        packed.take_keys_values(8, numbers)
