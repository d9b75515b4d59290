"""Attention over key segments, with bits that depend on the history alone.

What fixes the bits of a query's output, whatever block it came in:

- A product is one of queries [groups * n, head_dim] with one segment of fixed
  keys. A row of it depends neither on the other rows nor on n, for the n that
  `engine.verifiers.exactness` found to agree.
- Segments lie at fixed slots. The maximum is exact in any order. A masked key's
  weight is exactly 0, and so is what it adds: the number of trailing segments
  does not matter. Segments are added in ascending order, one at a time.
- Chunks of segments are merged in ascending order by log-sum-exp (Milakov and
  Gimelshein, "Online normalizer calculation for softmax", 2018). One masked
  altogether leaves the running sums as they are: their factor is exp(0) = 1.

The library's fused attention has no such order: its kernels divide the keys by
their number. Grouped queries are stacked along rows, so that K/V are never
repeated.

What a `restored` cache has evicted is asked for before the products with what it
has, and fetched behind them, so that a store elsewhere computes meanwhile. Both
parts are merged by log-sum-exp, the cache's own first.
"""

from __future__ import annotations

from functools import reduce
from operator import add

import mlx.core as mx
import numpy as np

from kakeya_fleet.engine.contracts.evicted_store import (
    NOTHING_SEEN,
    EvictedQueries,
    Floats,
    PartialAttention,
)
from kakeya_fleet.engine.kv.chunks import Run
from kakeya_fleet.engine.kv.feed import EvictedRead, FeedSegments, Partial


def segment_attention(
    queries: mx.array, segments: FeedSegments[mx.array], scale: float
) -> mx.array:
    """Softmax attention of `queries` [1, heads, n, head_dim] over `segments`; same shape.

    With evicted keys all up to these queries is computed now: they go to the store.
    """
    _, heads, count, head_dim = queries.shape
    kv_heads = segments.values[0].shape[0]
    rows = queries.reshape(kv_heads, heads // kv_heads * count, head_dim)
    evicted = segments.evicted
    if evicted is not None:
        _begin(queries[0, :, : segments.masks.count], evicted, scale)
    found = partial_attention(rows, segments, scale)
    if evicted is not None:
        mx.async_eval(*found)  # type: ignore[no-untyped-call]
        found = merged(found, _finished(evicted.store.finish(), count, kv_heads))
    total, output, _ = found
    return (output / total).astype(queries.dtype).reshape(1, heads, count, head_dim)


def partial_attention(
    rows: mx.array, segments: FeedSegments[mx.array], scale: float
) -> Partial[mx.array]:
    """Attention of `rows` [kv_heads, groups * n, head_dim] to the segments."""
    return reduce(merged, chunk_partials(rows, segments, scale))


def chunk_partials(
    rows: mx.array, segments: FeedSegments[mx.array], scale: float
) -> list[Partial[mx.array]]:
    """The attention to each chunk, in ascending order: what `partial_attention` merges."""
    found: list[Partial[mx.array]] = []
    for chunk in segments.masks.chunks:
        if found:
            # One chunk's scores are in memory at a time, whatever the history: the next waits.
            rows = mx.depends(rows, [found[-1][0], found[-1][1]])
        found.append(_chunk(rows, segments, chunk, scale))
    return found


def merged(first: Partial[mx.array], second: Partial[mx.array]) -> Partial[mx.array]:
    """Attention to the keys of both.

    Where the second saw nothing the first stays as it is, bit for bit: the
    factors are exp(0) and a sum of 0.
    """
    total, output, maximum = first
    more_total, more_output, more_maximum = second
    highest = mx.maximum(maximum, more_maximum)
    factor, more_factor = mx.exp(maximum - highest), mx.exp(more_maximum - highest)
    total = total * factor + more_total * more_factor
    output = output * factor + more_output * more_factor
    return total, output, highest


def _begin(queries: mx.array, evicted: EvictedRead, scale: float) -> None:
    """Asks the store for the attention of the real queries [heads, n, head_dim]."""
    asked = np.array(queries.astype(mx.float32))
    evicted.store.begin(EvictedQueries(evicted.layer, evicted.first, scale, asked))


def _finished(found: PartialAttention, count: int, kv_heads: int) -> Partial[mx.array]:
    """What the store found, as rows of `count` queries a head.

    Padding rows, which were not asked for, see nothing.
    """

    def rows(part: Floats, empty: float) -> mx.array:
        heads, asked, width = part.shape
        whole = np.full((heads, count, width), empty, np.float32)
        whole[:, :asked] = part
        return mx.array(whole).reshape(kv_heads, -1, width)

    return rows(found.total, 0.0), rows(found.output, 0.0), rows(found.maximum, NOTHING_SEEN)


def _chunk(
    rows: mx.array, segments: FeedSegments[mx.array], chunk: tuple[Run, ...], scale: float
) -> Partial[mx.array]:
    """Sum of weights [kv_heads, rows, 1], weighted values and maximum, in float32.

    The values [kv_heads, rows, head_dim] are not divided by the sum yet.
    """
    indices = range(chunk[0].first, chunk[-1].last)
    scores = [_scores(rows, segments, index, scale) for index in indices]
    maximum = scores[0].max(axis=-1, keepdims=True)
    for more in scores[1:]:
        maximum = mx.maximum(maximum, more.max(axis=-1, keepdims=True))
    maximum = mx.maximum(maximum, NOTHING_SEEN)
    sums: list[mx.array] = []
    found: list[mx.array] = []
    for index, score in zip(indices, scores, strict=True):
        weights = mx.exp(score - maximum)
        found.append((weights.astype(rows.dtype) @ segments.values[index]).astype(mx.float32))
        sums.append(weights.sum(axis=-1, keepdims=True))
    return reduce(add, sums), reduce(add, found), maximum


def _scores(rows: mx.array, segments: FeedSegments[mx.array], index: int, scale: float) -> mx.array:
    """Scaled and masked scores [kv_heads, rows, keys] of one segment, in float32."""
    products = rows @ segments.keys[index].swapaxes(1, 2)
    scores = products.astype(mx.float32) * scale
    bias = segments.masks.biases[index]
    return scores if bias is None else scores + bias
