"""Attention over key segments, with bits that depend on the history alone.

What fixes the bits of a query's output, whatever block it came in:

- A product is one of queries [groups * n, head_dim] with one segment of fixed
  keys. A row of it depends neither on the other rows nor on n, for the n that
  `engine.exactness` found to agree.
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
scores in memory are those of one chunk, whatever the history.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from engine.backends.torch_backend.masks import Run

ATTENTION_NAME = "kakeya_segments"

NOTHING_SEEN = -1e30
"""Stands in for the maximum of a chunk that a query does not see: finite, below any score."""


@dataclass(frozen=True, slots=True)
class Masks:
    """What the queries of one feed see of the layers that are placed alike.

    `queries` rows go into a product for `count` real ones; `chunks` are the
    segments to read, `biases` their masks.
    """

    first_row: int
    count: int
    queries: int
    chunks: tuple[tuple[Run, ...], ...]
    biases: tuple[Tensor | None, ...]


@dataclass(frozen=True, slots=True)
class FeedSegments:
    """What one feed reads of one layer.

    `keys[s]` is [kv_heads, head_dim, n] (a transposed view), `values[s]`
    [kv_heads, n, head_dim].
    """

    masks: Masks
    keys: list[Tensor]
    values: list[Tensor]


LayerSegments = list[FeedSegments]
"""One layer's segments of all feeds of a forward."""


def segment_attention(
    module: nn.Module,  # noqa: ARG001 - the library's signature
    query: Tensor,
    key: LayerSegments,
    value: LayerSegments,  # noqa: ARG001 - is `key`
    attention_mask: Tensor | None,
    *,
    scaling: float,
    softcap: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Softmax attention of `query` [1, heads, rows, head_dim] over each feed's segments.

    Returns [1, rows, heads, head_dim], 0 in the rows of no feed. The signature
    is that of transformers' attention functions; `value` is `key`, and there is
    no mask but the segments' own, so that one from the model is a `ValueError`.
    """
    if attention_mask is not None:
        raise ValueError("masks come with the cache's segments, not from the model")
    if softcap is not None:
        raise ValueError("scores with a soft cap are not served")
    heads, rows, head_dim = query.shape[1:]
    if len(key) == 1 and key[0].masks.queries == rows:
        return _feed(query[0], key[0], scaling).transpose(0, 1)[None], None
    output = query.new_zeros((1, rows, heads, head_dim))
    for feed in key:
        first, count, queries = feed.masks.first_row, feed.masks.count, feed.masks.queries
        own = query[0, :, first : first + queries]
        if own.shape[1] < queries:
            own = nn.functional.pad(own, (0, 0, 0, queries - own.shape[1]))
        found = _feed(own, feed, scaling)
        output[0, first : first + count] = found[:, :count].transpose(0, 1)
    return output, None


def _feed(query: Tensor, feed: FeedSegments, scaling: float) -> Tensor:
    """The outputs [heads, queries, head_dim] of `query`, same shape."""
    heads, queries, head_dim = query.shape
    kv_heads = feed.values[0].shape[0]
    rows = query.reshape(kv_heads, heads // kv_heads * queries, head_dim)
    chunks = feed.masks.chunks
    total, output, maximum = _chunk(rows, feed, chunks[0], scaling)
    for chunk in chunks[1:]:
        more_total, more_output, more_maximum = _chunk(rows, feed, chunk, scaling)
        highest = torch.maximum(maximum, more_maximum)
        factor = maximum.sub_(highest).exp_()
        more_factor = more_maximum.sub_(highest).exp_()
        total = total.mul_(factor).add_(more_total.mul_(more_factor))
        output = output.mul_(factor).add_(more_output.mul_(more_factor))
        maximum = highest
    return (output / total).to(query.dtype).view(heads, queries, head_dim)


def _chunk(
    rows: Tensor, feed: FeedSegments, chunk: tuple[Run, ...], scaling: float
) -> tuple[Tensor, Tensor, Tensor]:
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
        sums = weights.sum(dim=3, keepdim=True)
        typed = weights.to(rows.dtype)
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


def _scores(rows: Tensor, feed: FeedSegments, run: Run, scaling: float) -> Tensor:
    """Scaled and masked scores [segments, kv_heads, rows, keys] of one run, in float32."""
    kv_heads, row_count, _ = rows.shape
    products = rows.new_empty((run.last - run.first, kv_heads, row_count, run.keys))
    for offset, product in enumerate(products):
        torch.bmm(rows, feed.keys[run.first + offset], out=product)
    scores = products.to(torch.float32).mul_(scaling)
    queries = feed.masks.queries
    for offset, segment in enumerate(scores):
        bias = feed.masks.biases[run.first + offset]
        if bias is not None:
            segment.view(kv_heads, row_count // queries, queries, run.keys).add_(bias)
    return scores


AttentionInterface.register(ATTENTION_NAME, segment_attention)
