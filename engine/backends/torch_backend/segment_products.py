"""Products of queries with key segments, with bits that depend on the history alone.

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
- No elementwise function here has a second formula for the end of a tensor
  (`exp` has one code path for whole and part vectors; the others round
  correctly by IEEE 754).

Grouped queries are stacked along rows, so that K/V are never repeated. The
scores in memory are those of one chunk, whatever the history. A segment's keys are
[kv_heads, head_dim, n] (a transposed view), its values [kv_heads, n, head_dim].
"""

from __future__ import annotations

import torch
from torch import Tensor

from kakeya_fleet.engine.contracts.evicted_store import NOTHING_SEEN
from kakeya_fleet.engine.kv.chunks import Run
from kakeya_fleet.engine.kv.feed import FeedSegments, Partial


def partial_attention(rows: Tensor, feed: FeedSegments[Tensor], scaling: float) -> Partial[Tensor]:
    """Attention of `rows` [kv_heads, groups * queries, head_dim] to the feed's segments."""
    chunks = feed.masks.chunks
    found = _chunk(rows, feed, chunks[0], scaling)
    for chunk in chunks[1:]:
        found = merged(found, _chunk(rows, feed, chunk, scaling))
    return found


def chunk_partials(
    rows: Tensor, feed: FeedSegments[Tensor], scaling: float
) -> list[Partial[Tensor]]:
    """The attention to each chunk, in ascending order: what `partial_attention` merges."""
    return [_chunk(rows, feed, chunk, scaling) for chunk in feed.masks.chunks]


def merged(first: Partial[Tensor], second: Partial[Tensor]) -> Partial[Tensor]:
    """Attention to the keys of both. Writes over the first.

    The second may be of one row, for all rows of the first.
    Where the second saw nothing the first stays as it is, bit for bit: the
    factors are exp(0) and a sum of 0.
    """
    total, output, maximum = first
    more_total, more_output, more_maximum = second
    highest = torch.maximum(maximum, more_maximum)
    factor = maximum.sub_(highest).exp_()
    more_factor = (more_maximum - highest).exp_()
    total = total.mul_(factor).add_(more_total.mul(more_factor))
    output = output.mul_(factor).add_(more_output.mul(more_factor))
    return total, output, highest


def _chunk(
    rows: Tensor, feed: FeedSegments[Tensor], chunk: tuple[Run, ...], scaling: float
) -> Partial[Tensor]:
    """Sum of weights [kv_heads, rows, 1], weighted values and maximum, in float32.

    The values [kv_heads, rows, head_dim] are not divided by the sum yet.
    """
    scores = [_scores(rows, feed, run, scaling) for run in chunk]
    maximum = scores[0].amax(dim=(0, 3)).unsqueeze_(-1)
    for more in scores[1:]:
        torch.maximum(maximum, more.amax(dim=(0, 3)).unsqueeze_(-1), out=maximum)
    maximum.clamp_(min=NOTHING_SEEN)
    total: Tensor | None = None
    output: Tensor | None = None
    for run, weights in zip(chunk, scores, strict=True):
        weights.sub_(maximum).exp_()
        sums = weights.sum(dim=3, keepdim=True).unbind()
        typed = weights.to(rows.dtype).unbind()
        for offset in range(run.last - run.first):
            found = torch.bmm(typed[offset], feed.values[run.first + offset])
            if total is None or output is None:
                total, output = sums[offset], found.to(torch.float32)
            else:
                total = total + sums[offset]
                output += found
    if total is None or output is None:
        raise ValueError("a chunk has at least one segment")
    return total, output, maximum


def _scores(rows: Tensor, feed: FeedSegments[Tensor], run: Run, scaling: float) -> Tensor:
    """Scaled and masked scores [segments, kv_heads, rows, keys] of one run, in float32."""
    kv_heads, row_count, _ = rows.shape
    products = rows.new_empty((run.last - run.first, kv_heads, row_count, run.keys))
    for keys, product in zip(feed.keys[run.first : run.last], products.unbind(), strict=True):
        torch.bmm(rows, keys, out=product)
    scores = products.to(torch.float32).mul_(scaling)
    queries = feed.masks.queries
    for offset, bias in enumerate(feed.masks.biases[run.first : run.last]):
        if bias is not None:
            scores[offset].view(kv_heads, row_count // queries, queries, run.keys).add_(bias)
    return scores
