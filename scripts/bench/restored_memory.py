"""Bytes of caches by the length of the history, and what a step takes at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import linear_regression
from typing import Any

from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from kakeya_fleet.engine.contracts.verifier import Verifier
from scripts.bench.kv_strategies import Caches, Strategy
from scripts.bench.process_memory import allocation_peak

MEMORY_IS = {
    "kv_bytes": "bytes of the verifier's cache, asked of its tensors",
    "restorer_bytes": "bytes of the tensors that keep what was evicted, wherever they are",
    "peak_step_bytes": "largest sum of bytes that torch's CPU allocator had given out and not got "
    "back during one verify step of a whole block, by its profiler's events, in this process",
    "slopes": "bytes a token of history, by least squares: kv_bytes over the lengths past sink + "
    f"window, peak_step_bytes over those past a chunk of {CHUNK_KEYS} keys besides",
}


def slope(lengths: Sequence[int], counts: Sequence[int]) -> float:
    """Bytes a token: the slope of the least-squares line. Raises `ValueError` below two lengths."""
    if len(set(lengths)) < 2:
        raise ValueError("a slope takes two lengths")
    return float(linear_regression(lengths, counts).slope)


def measure_memory(
    verifier: Verifier, caches: Caches, strategies: Sequence[Strategy], lengths: Sequence[int]
) -> dict[str, Any]:
    """Bytes and peaks by strategy and length, and their slopes."""
    found: dict[str, Any] = {}
    for strategy in strategies:
        cells = [_cell(verifier, caches, strategy, length) for length in lengths]
        resident = caches.sink + caches.window
        slopes = {}
        for name, least in (("kv_bytes", resident), ("peak_step_bytes", resident + CHUNK_KEYS)):
            past = [cell for cell in cells if cell["length"] > least]
            if len(past) > 1:
                slopes[name] = slope(
                    [cell["length"] for cell in past], [cell[name] for cell in past]
                )
        found[strategy.name] = {"cells": cells, "slopes": slopes}
    return found


def _cell(verifier: Verifier, caches: Caches, strategy: Strategy, length: int) -> Mapping[str, int]:
    """One history of random K/V and one block behind it."""
    block = [0] * verifier.info.width
    with caches.opened(strategy, length + len(block)) as cache:
        cache.fill(length - len(block), seed=0)
        # The forward that is not measured grows what grows once.
        verifier.forward(cache, block, want_logits=True)
        cache.truncate(length - len(block))
        peak = allocation_peak(lambda: verifier.forward(cache, block, want_logits=True))
        store = cache.evicted
        return {
            "length": length,
            "kv_bytes": cache.memory_bytes,
            "restorer_bytes": 0 if store is None else store.stored_bytes,
            "peak_step_bytes": peak,
        }
