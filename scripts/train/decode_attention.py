"""Attention of one new position a row over keys and values of a batch, on CUDA.

One kernel for all rows of a layer: the query heads that share a key head are one tile, so that
keys and values are read once, and none of a row's padding (online softmax: Milakov and Gimelshein,
2018).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE_ROWS = 16
"""Rows of the smallest tile that a matrix unit takes; query heads fill the first of them."""
BLOCK = 64
"""Positions at a time."""


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]  # noqa: PLR0913 -- a kernel has no objects
    queries,
    keys,
    values,
    pads,
    found,
    end,
    row_stride,
    head_stride,
    scale,
    SHARED: tl.constexpr,  # noqa: N803
    DIM: tl.constexpr,  # noqa: N803
    ROWS: tl.constexpr,  # noqa: N803
    COUNT: tl.constexpr,  # noqa: N803
):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    first = tl.load(pads + row).to(tl.int32)
    lane, place, number = tl.arange(0, ROWS), tl.arange(0, COUNT), tl.arange(0, DIM)
    own = (row * tl.num_programs(1) + head) * SHARED * DIM + lane[:, None] * DIM + number[None, :]
    is_query = lane[:, None] < SHARED
    query = tl.load(queries + own, mask=is_query, other=0.0)
    start = row * row_stride + head * head_stride
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    summed = tl.zeros([ROWS, DIM], tl.float32)
    for block in range(first // COUNT * COUNT, end, COUNT):
        at = block + place
        is_seen = (at >= first) & (at < end)
        where = start + at[:, None] * DIM + number[None, :]
        key = tl.load(keys + where, mask=is_seen[:, None], other=0.0)
        scores = tl.dot(query, tl.trans(key)) * scale
        scores = tl.where(is_seen[None, :], scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        kept, shares = tl.exp(highest - higher), tl.exp(scores - higher[:, None])
        value = tl.load(values + where, mask=is_seen[:, None], other=0.0)
        summed = summed * kept[:, None] + tl.dot(shares.to(value.dtype), value)
        total = total * kept + tl.sum(shares, 1)
        highest = higher
    result = summed / total[:, None]
    tl.store(found + own, result.to(found.dtype.element_ty), mask=is_query)


def attend(
    queries: torch.Tensor, cache: torch.Tensor, pads: torch.Tensor, end: int
) -> torch.Tensor:
    """What `queries` [rows, heads, 1, head_dim] find at the places `pads` [rows] to `end` - 1.

    `cache` [2, rows, kv_heads, places, head_dim] holds keys and values; it may be a part of a
    longer one, as long as a head's places lie one behind the other.
    """
    queries = queries.contiguous()
    _, rows, heads, _, size = cache.shape
    found = torch.empty_like(queries)
    _attend[(rows, heads)](
        queries,
        cache[0],
        cache[1],
        pads,
        found,
        end,
        cache.stride(1),
        cache.stride(2),
        size**-0.5,
        SHARED=queries.shape[1] // heads,
        DIM=size,
        ROWS=TILE_ROWS,
        COUNT=BLOCK,
        num_warps=2,
    )
    return found
