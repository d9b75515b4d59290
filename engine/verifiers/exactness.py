"""Whether a verifier keeps its promise on this machine: the history alone decides the bits.

Whether two forwards round alike is a property of the kernels that their shapes
select, not of the numbers in them. So one random input of each shape tells two
kernels apart: a row has thousands of roundings, and all must agree. In bfloat16 most sums that
differ are rounded to the same number, some one in 10,000 is not: there it takes all the layers of a
model to tell kernels apart, and each row count that is kept is tried on them. How many
threads share a product is part of its shape: with one K/V head the shares of some
numbers end within a tile, and its rows round otherwise. So the check is for the
threads of the calling thread, chosen before and never changed after it. Checked are
the shapes that matter: each row count with a token in every row (a kernel may take the
last rows of a product otherwise than the rest), fine and coarse key segments and the
borders between them, rings of one segment and of several that have wrapped,
rejected tokens, and sessions that share a forward. Not checked are rings of
every size, and histories of more than one chunk of keys.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.device import CUDA, MPS
from kakeya_fleet.engine.contracts.kv_layout import KvLayout
from kakeya_fleet.engine.contracts.positions import (
    COARSE_SEGMENT,
    FINE_SEGMENT,
    FINE_SLOTS,
    WIDE_BLOCK,
    WIDE_WINDOW,
    WIDTH,
)
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Verifier

TAIL = 20
"""Tokens that each case runs in different cuts; it reaches over a border in its middle."""
BATCHES = ((1, 5, 1, 7), (16, 16, 9, 1))
"""Tokens of the sessions in a shared forward; the second fills the widest one."""
WIDE_DEVICES = frozenset({CUDA, MPS})
"""A forward of few rows takes about as long there as one of many: the widest is kept to."""
CASE_BYTES = 1 << 29
"""Cases behind a history whose cache would take more are left out."""
HEAP_BYTES = 16 << 20
"""What lies free between blocks of the heap beside that, whatever the model."""


@dataclass(frozen=True, slots=True)
class Exactness:
    """What was found: `exact` holds for forwards of `row_counts` rows in `thread_count` threads.

    `thread_count` as `engine.contracts.verifier.Verifier.thread_count`.
    """

    exact: bool
    row_counts: tuple[int, ...]
    thread_count: int


def settle(verifier: Verifier, *, seed: int = 0) -> Exactness:
    """Restricts `verifier` to the row counts that agree bit for bit, and checks it with them.

    Agreeing with the least that holds a block, or on a device with the widest. Where the
    agreeing ones fail together, that one count for all forwards is tried.
    If that is not exact either, the verifier keeps the counts it came with, and
    the result says so: the machine may serve it, labelled. It holds for the threads
    that forwards of the calling thread take now. The counts are found on as few
    layers as have every kind of them, the whole model is checked last.
    """
    loaded = verifier.row_counts
    is_wide = verifier.info.device in WIDE_DEVICES
    base = loaded[-1] if is_wide else next(n for n in loaded if n >= verifier.info.width)
    shallow = verifier.shallow()
    agreeing = tuple(
        count
        for count in loaded
        if count == base
        or (_agrees(shallow, count, base, seed) and _whole_rows_agree(verifier, count, base, seed))
    )
    for counts in (agreeing, (base,)):
        shallow.use_row_counts(counts)
        verifier.use_row_counts(counts)
        if is_exact(shallow, seed=seed) and _whole_agrees(verifier, seed):
            return Exactness(exact=True, row_counts=counts, thread_count=verifier.thread_count)
    verifier.use_row_counts(loaded)
    return Exactness(exact=False, row_counts=loaded, thread_count=verifier.thread_count)


def bytes_needed(layout: KvLayout, vocabulary_size: int) -> int:
    """Bytes that `settle` takes beside a model, and what its forwards compute in, at most.

    The largest case's cache, of the layers that it is of, as much for each session of a shared
    forward, which copies what it writes, and once more that lies free between blocks of the heap,
    as caches of all sizes come and go. The tail's logits three times: expected, found, and that
    in pieces. Those of a widest forward, for which the few layers that are checked first have room
    of their own.
    """
    shallow = layout.prefix(layout.shallow_depth)
    specs = _specs(layout.context_length)
    first, _ = specs[0]
    largest = max(layout.bytes_needed(first), *(_bytes(shallow, *each) for each in specs))
    sessions = max(WIDE_BLOCK // WIDTH, *map(len, BATCHES))
    logits = (3 * TAIL + WIDE_BLOCK) * vocabulary_size * np.dtype(np.float32).itemsize
    return (2 + sessions) * largest + logits + HEAP_BYTES


def _bytes(layout: KvLayout, spec: CacheSpec, border: int) -> int:
    """Of the case's cache; 0 where it is left out."""
    count = layout.bytes_needed(spec)
    return 0 if border and count > CASE_BYTES else count


def is_exact(verifier: Verifier, *, seed: int = 0) -> bool:
    """Whether, with its present row counts, every way to cut a history gives the same bits."""
    rng = random.Random(seed)
    return all(
        _cuts_agree(verifier, case, rng) and _batches_agree(verifier, case, rng)
        for case in _cases(verifier, seed)
    )


def _whole_agrees(verifier: Verifier, seed: int) -> bool:
    """One history of the whole model, in narrow and wide blocks and with rejected tokens."""
    width = verifier.info.width
    cuts = ([(1, 0), (3, 0), (width, 0)], [(5, width)])
    with closing(_cases(verifier, seed)) as cases:
        case = next(cases)
        return all(_same(verifier, case, case.tail, cut) for cut in cuts)


def _whole_rows_agree(verifier: Verifier, count: int, base: int, seed: int) -> bool:
    """Whether all rows of the whole model's forwards of `count` have the bits of `base`'s."""
    verifier.use_row_counts((base,))
    with closing(_cases(verifier, seed)) as cases:
        case = next(cases)
        verifier.use_row_counts((count,) if count > base else (count, base))
        return _every_row_agrees(verifier, case, count)


def _tail(context: int) -> int:
    return min(TAIL, context // 2)


def _specs(context: int) -> list[tuple[CacheSpec, int]]:
    """Caches that a model of `context` positions has, and the border in the middle of the tail."""
    tail = _tail(context)
    half = tail // 2
    borders = (0, FINE_SEGMENT, FINE_SLOTS, FINE_SLOTS + COARSE_SEGMENT)
    # A ring of one segment, and one of several; both have wrapped.
    rings = ((3, 21, 100), (5, WIDE_WINDOW, 3 * WIDE_WINDOW))
    wanted = [
        *(
            (CacheSpec(CacheKind.CONTIGUOUS, capacity=max(0, border - half) + tail), border)
            for border in borders
        ),
        *(
            (CacheSpec(CacheKind.SINK_WINDOW, sink=sink, window=window), filled)
            for sink, window, filled in rings
        ),
    ]
    return [each for each in wanted if max(0, each[1] - half) + tail <= context]


@dataclass(frozen=True, slots=True)
class _Case:
    """A cache with a history, and the tokens to run behind it."""

    cache: KvCache
    tail: list[int]
    expected: Logits


def _cases(verifier: Verifier, seed: int) -> Generator[_Case, None, None]:
    """The cases that fit this model's positions and the memory, one at a time."""
    context = verifier.info.context_length
    rng = random.Random(seed)
    tail = [rng.randrange(verifier.info.vocabulary_size) for _ in range(_tail(context))]
    half = len(tail) // 2
    for spec, border in _specs(context):
        start = max(0, border - half)
        # The first case is always there: without any, nothing could be found inexact.
        if border and verifier.bytes_needed(spec) > CASE_BYTES:
            continue
        cache = verifier.allocate(spec)
        try:
            if start:
                cache.fill(start, seed)
            yield _Case(cache, tail, _run(verifier, cache, tail, [(verifier.info.width, 0)]))
        finally:
            cache.release()


def _agrees(verifier: Verifier, count: int, base: int, seed: int) -> bool:
    """Whether forwards of `count` rows give the bits of those of `base` rows."""
    verifier.use_row_counts((base,))
    width = verifier.info.width
    for case in _cases(verifier, seed):
        verifier.use_row_counts((count,) if count > base else (count, base))
        block = min(count, width)
        # A few blocks at the start and over the border: the others have the same shapes.
        same = _same(verifier, case, case.tail[: 2 * block], [(block, 0)])
        same = same and _border_agrees(verifier, case, block)
        same = same and _every_row_agrees(verifier, case, count)
        verifier.use_row_counts((base,))
        if not same:
            return False
    return True


def _every_row_agrees(verifier: Verifier, case: _Case, count: int) -> bool:
    """Whether a token gets the same bits in each of the `count` rows of a forward.

    As many sessions as fill them are fed the start of the tail.
    """
    width = min(verifier.info.width, case.cache.widest, len(case.tail))
    sizes = [min(width, count - first) for first in range(0, count, width)]
    return _shared_forward_agrees(verifier, case, [(0, size) for size in sizes])


def _border_agrees(verifier: Verifier, case: _Case, block: int) -> bool:
    """Blocks of `block` tokens on both sides of the middle of the tail."""
    half = len(case.tail) // 2
    before = max(0, half - block)
    cache = case.cache.fork(case.cache.length)
    try:
        if before:
            _feed(verifier, cache, case.tail[:before], verifier.info.width)
        for first in range(before, min(half + block, len(case.tail)), block):
            chunk = case.tail[first : first + block]
            got = verifier.forward(cache, chunk, want_logits=True)
            expected = case.expected[first : first + len(chunk)]
            if got is None or not _equal(got, expected):
                return False
        return True
    finally:
        cache.release()


def _feed(verifier: Verifier, cache: KvCache, tokens: Sequence[int], block: int) -> None:
    for first in range(0, len(tokens), block):
        verifier.forward(cache, tokens[first : first + block], want_logits=False)


def _cuts_agree(verifier: Verifier, case: _Case, rng: random.Random) -> bool:
    width = verifier.info.width
    widest = min(case.cache.widest, verifier.row_counts[-1], len(case.tail))
    cuts: list[list[tuple[int, int]]] = [
        [(1, 0), (2, 0), (width, 0)],
        [(1, width)],
        [(widest, 0)],
        [(rng.randint(1, width), rng.randint(0, width)) for _ in case.tail],
    ]
    return all(_same(verifier, case, case.tail, cut) for cut in cuts)


def _same(
    verifier: Verifier, case: _Case, tokens: Sequence[int], cut: Sequence[tuple[int, int]]
) -> bool:
    got = _run(verifier, case.cache, tokens, cut)
    return _equal(got, case.expected[: len(tokens)])


def _equal(found: Logits, expected: Logits) -> bool:
    """Whether they are the same bits, of numbers that are none too."""
    return np.array_equal(found.view(np.uint32), expected.view(np.uint32))


def _run(
    verifier: Verifier, start: KvCache, tail: Sequence[int], cut: Sequence[tuple[int, int]]
) -> Logits:
    """The logits [len(tail), vocabulary_size] of `tail` after what a fork of `start` holds.

    Each forward takes as many right tokens and then as many wrong ones, which
    are rejected, as `cut` says, over and over, and as the width allows.
    """
    cache = start.fork(start.length)
    rows: list[Logits] = []
    done = 0
    turn = 0
    try:
        while done < len(tail):
            right, wrong = cut[turn % len(cut)]
            turn += 1
            chunk = list(tail[done : done + right])
            kept = len(chunk)
            room = verifier.info.width - kept
            chunk += [1] * max(0, min(wrong, room, len(tail) - done - kept))
            logits = verifier.forward(cache, chunk, want_logits=True)
            if logits is None:
                raise TypeError("a verifier that was asked for logits gave none")
            # A copy: the rows of wrong tokens would stay, a vocabulary of numbers each.
            rows.append(logits[:kept].copy())
            done += kept
            cache.truncate(start.length + done)
        return np.concatenate(rows)
    finally:
        cache.release()


def _batches_agree(verifier: Verifier, case: _Case, rng: random.Random) -> bool:
    """Whether sessions that share a forward, narrow and wide, get the bits of each alone."""
    return all(_batch_agrees(verifier, case, counts, rng) for counts in BATCHES)


def _batch_agrees(
    verifier: Verifier, case: _Case, counts: Sequence[int], rng: random.Random
) -> bool:
    parts: list[tuple[int, int]] = []
    room = verifier.row_counts[-1]
    for count in (min(count, len(case.tail), case.cache.widest) for count in counts):
        if count > room:
            break
        room -= count
        parts.append((rng.randint(0, len(case.tail) - count), count))
    return _shared_forward_agrees(verifier, case, parts)


def _shared_forward_agrees(
    verifier: Verifier, case: _Case, parts: Sequence[tuple[int, int]]
) -> bool:
    """One forward of a session for each of `parts`: (offset in the tail, tokens from there)."""
    caches: list[KvCache] = []
    feeds: list[Feed] = []
    expected: list[Logits] = []
    try:
        for offset, count in parts:
            caches.append(case.cache.fork(case.cache.length))
            _feed(verifier, caches[-1], case.tail[:offset], verifier.info.width)
            feeds.append(Feed(caches[-1], case.tail[offset : offset + count], want_logits=True))
            expected.append(case.expected[offset : offset + count])
        outputs = verifier.forward_batch(feeds)
        return all(
            output.logits is not None and _equal(output.logits, rows)
            for output, rows in zip(outputs, expected, strict=True)
        )
    finally:
        for cache in caches:
            cache.release()
