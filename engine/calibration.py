"""What a loaded verifier does on this machine: its step times, and whether it is exact."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence

import numpy as np

from engine.cache import CacheKind, CacheSpec, KvCache
from engine.verifier import Logits, Verifier

COUNTS = (1, 2, 4, 8, 16)
MEASURED_SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=4, window=64)
EXACT_WINDOWS = 4
"""`is_exact` runs this many times the positions that its ring cache keeps."""
SEGMENT_BORDER = 256
"""A position where back ends may begin a new segment of keys."""


def measure_steps(
    verifier: Verifier,
    clock: Callable[[], float],
    *,
    counts: Sequence[int] = COUNTS,
    repeats: int = 5,
    spec: CacheSpec | None = None,
) -> tuple[tuple[int, float], ...]:
    """(tokens, median seconds) of a forward with logits, for each count up to the width.

    `clock` gives seconds, as `time.perf_counter`. The cache is `spec`, by
    default sink 4 and window 64, and is filled with 68 tokens before. The counts
    are interleaved, so that a passing load falls on all of them.
    """
    cache = verifier.allocate(spec or MEASURED_SPEC)
    width, vocabulary = verifier.info.width, verifier.info.vocabulary_size
    measured = [count for count in counts if count <= width]
    block = [position % vocabulary for position in range(width)]
    kept = MEASURED_SPEC.sink + MEASURED_SPEC.window
    fill = min(kept, verifier.info.context_length - 2 * width)
    while cache.length < fill:
        verifier.forward(cache, block, want_logits=False)
    start = cache.length
    seconds: dict[int, list[float]] = {count: [] for count in measured}
    for repeat in range(repeats + 1):
        for count in measured:
            began = clock()
            verifier.forward(cache, block[:count], want_logits=True)
            elapsed = clock() - began
            cache.truncate(start)
            if repeat:  # the first round warms caches and kernels
                seconds[count].append(elapsed)
    return tuple((count, statistics.median(seconds[count])) for count in measured)


def is_exact(verifier: Verifier, *, seed: int = 0) -> bool:
    """Whether a history's logits have the same bits however it is cut into forwards.

    Runs random histories past a small sink and window, and over the border of a
    key segment, in single steps, whole blocks, random blocks, and random blocks
    with rejected tokens between. Logits depend on all K/V that their position
    sees, so equal logits everywhere mean equal K/V. Takes some 250 forwards.
    """
    info = verifier.info
    rng = random.Random(seed)
    sink, window = 3, info.width + 5
    ring = verifier.allocate(CacheSpec(CacheKind.SINK_WINDOW, sink=sink, window=window))
    long = verifier.allocate(
        CacheSpec(CacheKind.CONTIGUOUS, capacity=min(SEGMENT_BORDER * 2, info.context_length))
    )
    while long.length + 2 * info.width < min(SEGMENT_BORDER, info.context_length):
        fill = [rng.randrange(info.vocabulary_size) for _ in range(info.width)]
        verifier.forward(long, fill, want_logits=False)
    for cache, count in ((ring, EXACT_WINDOWS * (sink + window)), (long, 4 * info.width)):
        room = info.context_length - cache.length
        tail = [rng.randrange(info.vocabulary_size) for _ in range(min(count, room))]
        expected = _run(verifier, cache, tail, lambda: (1, 0))
        for cut in (
            lambda: (info.width, 0),
            lambda: (rng.randint(1, info.width), 0),
            lambda: (rng.randint(1, info.width), info.width),
        ):
            if _run(verifier, cache, tail, cut).tobytes() != expected.tobytes():
                return False
    return True


def _run(
    verifier: Verifier,
    start: KvCache,
    tail: Sequence[int],
    cut: Callable[[], tuple[int, int]],
) -> Logits:
    """The logits [len(tail), vocabulary_size] of `tail` after what a copy of `start` holds.

    Each forward takes as many tokens of `tail`, and then as many wrong ones,
    which are rejected, as `cut` says and the width allows.
    """
    cache = verifier.clone(start)
    rows: list[Logits] = []
    done = 0
    while done < len(tail):
        right, wrong = cut()
        chunk = list(tail[done : done + right])
        kept = len(chunk)
        chunk += [1] * min(wrong, verifier.info.width - kept, len(tail) - done - kept)
        logits = verifier.forward(cache, chunk, want_logits=True)
        if logits is None:
            raise TypeError("a verifier that was asked for logits gave none")
        rows.append(logits[:kept])
        cache.truncate(start.length + done + kept)
        done += kept
    return np.concatenate(rows)
