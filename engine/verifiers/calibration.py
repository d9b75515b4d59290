"""How long the steps of a loaded verifier take on this machine."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier

COUNTS = (1, 2, 4, 8, 16, 32)
MOST_SECONDS = 2.0
"""Of all rounds together: long steps vary little, and a large model is waited for."""
FEWEST_REPEATS = 3
MEASURED_SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=4, window=64)


def measure_steps(
    verifier: Verifier,
    clock: Callable[[], float],
    *,
    counts: Sequence[int] = COUNTS,
    repeats: int = 5,
    spec: CacheSpec | None = None,
) -> tuple[tuple[int, float], ...]:
    """(tokens, median seconds) of a forward with logits, for each count that one can have.

    `clock` gives seconds, as `time.perf_counter`. The cache is `spec`, by
    default sink 4 and window 64, and is filled with 68 tokens before. The counts
    are interleaved, so that a passing load falls on all of them. Where the rounds take
    longer than `MOST_SECONDS` there are fewer of them. What else the machine does only adds:
    no count takes longer than a larger one did, or drafts would seem to cost nothing.
    """
    cache = verifier.allocate(spec or MEASURED_SPEC)
    width, vocabulary = verifier.info.width, verifier.info.vocabulary_size
    most = min(width, cache.widest, verifier.info.context_length)
    measured = [count for count in counts if count <= most]
    block = [position % vocabulary for position in range(most)]
    kept = MEASURED_SPEC.sink + MEASURED_SPEC.window
    fill = min(kept, verifier.info.context_length - 2 * width)
    while cache.length < fill:
        verifier.forward(cache, block[: fill - cache.length], want_logits=False)
    start = cache.length
    seconds: dict[int, list[float]] = {count: [] for count in measured}
    spent = 0.0
    for repeat in range(repeats + 1):
        if repeat > FEWEST_REPEATS and spent > MOST_SECONDS:
            break
        for count in measured:
            began = clock()
            verifier.forward(cache, block[:count], want_logits=True)
            elapsed = clock() - began
            cache.truncate(start)
            spent += elapsed
            if repeat:  # the first round warms caches and kernels
                seconds[count].append(elapsed)
    cache.release()
    medians = [statistics.median(seconds[count]) for count in measured]
    rising = list(itertools.accumulate(reversed(medians), min))
    return tuple(zip(measured, reversed(rising), strict=True))
