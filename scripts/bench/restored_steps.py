"""Seconds of verify steps by context, every way of keeping K/V in turn."""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from kakeya_fleet.engine.contracts.cache import KvCache
from kakeya_fleet.engine.contracts.verifier import Verifier
from scripts.bench.intervals import summary
from scripts.bench.kv_strategies import FULL, Caches, Strategy

TOKEN = 7


def measure_steps(
    verifier: Verifier,
    caches: Caches,
    strategies: Sequence[Strategy],
    context: int,
    *,
    block_sizes: Sequence[int],
    rounds: int,
    seed: int,
) -> list[dict[str, Any]]:
    """One entry a block size: figures by strategy behind `context` random positions.

    All caches stay open, and take turns in an order shuffled anew every round.
    """
    widest = max(block_sizes)
    seconds: dict[tuple[int, str], list[float]] = {}
    rng = random.Random(seed)
    with ExitStack() as opened:
        found: dict[Strategy, KvCache] = {}
        for strategy in strategies:
            cache = opened.enter_context(caches.opened(strategy, context + widest))
            cache.fill(context, seed=0)
            found[strategy] = cache
        for round_index in range(-1, rounds):
            for strategy in rng.sample(list(found), len(found)):
                for size in block_sizes:
                    taken = _step(verifier, found[strategy], size)
                    # Round -1 warms every cache up.
                    if round_index >= 0:
                        seconds.setdefault((size, strategy.name), []).append(taken)
    print(f"  {context} tokens", file=sys.stderr)
    return [
        {
            "context_tokens": context,
            "tokens_a_step": size,
            "strategies": {
                strategy.name: {
                    "step_seconds": summary(seconds[size, strategy.name]),
                    "steps_per_second_median": 1 / statistics.median(seconds[size, strategy.name]),
                    "over_full": over_full(seconds[size, FULL.name], seconds[size, strategy.name]),
                }
                for strategy in strategies
            },
        }
        for size in block_sizes
    ]


def over_full(full: Sequence[float], other: Sequence[float]) -> dict[str, object]:
    """Speed over full attention's, round by round."""
    return summary([one / two for one, two in zip(full, other, strict=True)])


def crossing(cells: Sequence[Mapping[str, Any]], name: str, size: int) -> float | None:
    """The context from which a strategy is at least as fast as full attention.

    Between two measured contexts by linear interpolation of the speed ratio in
    log(context); None when it is slower at the longest one, and the shortest
    measured context when it is never slower.
    """
    points = sorted(
        (cell["context_tokens"], cell["strategies"][name]["over_full"]["median"])
        for cell in cells
        if cell["tokens_a_step"] == size and name in cell["strategies"]
    )
    if not points or points[-1][1] < 1.0:
        return None
    above, ratio_above = points[-1]
    for context, ratio in reversed(points[:-1]):
        if ratio < 1.0:
            share = (1.0 - ratio) / (ratio_above - ratio)
            return float(context * (above / context) ** share)
        above, ratio_above = context, ratio
    return float(above)


def _step(verifier: Verifier, cache: KvCache, size: int) -> float:
    """Seconds of a forward of `size` tokens with logits, taken back."""
    length = cache.length
    began = time.perf_counter()
    verifier.forward(cache, [TOKEN] * size, want_logits=True)
    seconds = time.perf_counter() - began
    cache.truncate(length)
    return seconds
