"""How fast a loaded verifier reads a history on this machine."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.verifiers.calibration import MEASURED_SPEC

FORWARDS = 4
"""Measured together: what a device computes is waited for once, behind the last."""
ROUNDS = 5


def prefill_tokens_per_second(verifier: Verifier, clock: Callable[[], float]) -> float:
    """Tokens a second of the widest forwards, into a cache with sink 4 and window 64.

    `clock` gives seconds, as `time.perf_counter`.
    """
    info = verifier.info
    cache = verifier.allocate(MEASURED_SPEC)
    try:
        most = max(1, info.context_length // (ROUNDS + 1))
        count = min(cache.widest, verifier.row_counts[-1], most)
        forwards = max(1, min(FORWARDS, (info.context_length // count - 1) // ROUNDS))
        block = [position % info.vocabulary_size for position in range(count)]
        # The first warms caches and kernels, and ends what others left to compute.
        verifier.forward(cache, block, want_logits=True)
        seconds: list[float] = []
        for _ in range(ROUNDS):
            began = clock()
            for left in reversed(range(forwards)):
                verifier.forward(cache, block, want_logits=not left)
            seconds.append(clock() - began)
        return forwards * count / statistics.median(seconds)
    finally:
        cache.release()
