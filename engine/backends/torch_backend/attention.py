"""The attention function of this engine, in the place of the library's own.

It reads the segments of the feeds' caches. What a `restored` cache has evicted
is asked for before the products with what it has, and fetched behind them, so
that a store elsewhere computes meanwhile. Both parts are merged by log-sum-exp,
the cache's own first.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import AttentionInterface

from kakeya_fleet.engine.backends.torch_backend.dtypes import on_host
from kakeya_fleet.engine.backends.torch_backend.ring_products import ring_attention
from kakeya_fleet.engine.backends.torch_backend.segment_products import merged, partial_attention
from kakeya_fleet.engine.contracts.evicted_store import NOTHING_SEEN, EvictedQueries
from kakeya_fleet.engine.kv.feed import EvictedRead, FeedSegments, Partial

ATTENTION_NAME = "kakeya_segments"

LayerSegments = list[FeedSegments[Tensor]]
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
    s_aux: Tensor | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Softmax attention of `query` [1, heads, rows, head_dim] over each feed's segments.

    Returns [1, rows, heads, head_dim], 0 in the rows of no feed. With `s_aux` [heads] each
    head has one score more that weighs nothing: gpt-oss's attention sinks. The signature
    is that of transformers' attention functions; `value` is `key`, and there is
    no mask but the segments' own, so that one from the model is a `ValueError`.
    """
    if attention_mask is not None:
        raise ValueError("masks come with the cache's segments, not from the model")
    if softcap is not None:
        raise ValueError("scores with a soft cap are not served")
    heads, rows, head_dim = query.shape[1:]
    for feed in key:
        if feed.evicted is not None:
            _begin(query[0], feed, feed.evicted, scaling)
    if len(key) == 1 and key[0].masks.queries == rows:
        return _feed(query[0], key[0], scaling, s_aux).transpose(0, 1)[None], None
    output = query.new_zeros((1, rows, heads, head_dim))
    for feed in key:
        first, count, queries = feed.masks.first_row, feed.masks.count, feed.masks.queries
        own = query[0, :, first : first + queries]
        if own.shape[1] < queries:
            own = pad(own, (0, 0, 0, queries - own.shape[1]))
        found = _feed(own, feed, scaling, s_aux)
        output[0, first : first + count] = found[:, :count].transpose(0, 1)
    return output, None


def _feed(
    query: Tensor, feed: FeedSegments[Tensor], scaling: float, sinks: Tensor | None
) -> Tensor:
    """The outputs [heads, queries, head_dim] of `query`, same shape."""
    heads, queries, head_dim = query.shape
    kv_heads = feed.values[0].shape[0]
    rows = query.reshape(kv_heads, heads // kv_heads * queries, head_dim)
    if feed.masks.stacked is not None:
        ring = ring_attention(rows, feed, feed.masks.stacked, scaling)
        mixed = ring.output.view(heads, queries, head_dim)
        more = None
        if feed.evicted is not None:
            more = _finished(feed.evicted, queries, query.device)
        if sinks is not None:
            nothing = _weightless(sinks, head_dim)
            more = nothing if more is None else _after(more, nothing)
        return mixed if more is None else ring.joined(more).to(query.dtype)
    found = partial_attention(rows, feed, scaling)
    total, output, maximum = (part.view(heads, queries, -1) for part in found)
    if feed.evicted is not None:
        more = _finished(feed.evicted, queries, query.device)
        total, output, maximum = merged((total, output, maximum), more)
    if sinks is not None:
        total, output, _ = merged((total, output, maximum), _weightless(sinks, head_dim))
    return (output / total).to(query.dtype).view(heads, queries, head_dim)


def _weightless(sinks: Tensor, head_dim: int) -> Partial[Tensor]:
    """What a key of the scores `sinks` [heads] and of values 0 adds, for all queries of a head."""
    maximum = sinks.to(torch.float32).view(-1, 1, 1)
    return torch.ones_like(maximum), maximum.new_zeros(len(maximum), 1, head_dim), maximum


def _after(partial: Partial[Tensor], more: Partial[Tensor]) -> Partial[Tensor]:
    """Both, without writing over `partial`: it may be memory of a store's."""
    total, output, maximum = (part.clone() for part in partial)
    return merged((total, output, maximum), more)


def _begin(query: Tensor, feed: FeedSegments[Tensor], evicted: EvictedRead, scaling: float) -> None:
    """Asks the store for the attention of one feed's rows of `query` [heads, rows, head_dim]."""
    masks = feed.masks
    own = query[:, masks.first_row : masks.first_row + masks.count].to(torch.float32)
    queries = on_host(own.contiguous())
    evicted.store.begin(EvictedQueries(evicted.layer, evicted.first, scaling, queries))


def _finished(evicted: EvictedRead, queries: int, place: torch.device) -> Partial[Tensor]:
    """What the store found, at `place`: [heads, queries, ...], or [heads, 1, ...] of one query.

    What the only one saw may stand for the padding rows too; those of more see nothing.
    """
    partial = evicted.store.finish()
    count = partial.output.shape[1]
    parts = (partial.total, partial.output, partial.maximum)
    found = tuple(torch.from_numpy(part).to(place) for part in parts)
    if count not in (1, queries):
        rows = (0, 0, 0, queries - count)
        total, output, maximum = found
        return pad(total, rows), pad(output, rows), pad(maximum, rows, value=NOTHING_SEEN)
    total, output, maximum = found
    return total, output, maximum


AttentionInterface.register(ATTENTION_NAME, segment_attention)
