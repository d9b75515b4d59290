"""How many queries of a head a product with evicted keys may have on this machine.

A row's rounding is that of the kernel which the product's shape selects. So one
random input of each shape tells two kernels apart: a row has thousands of
roundings, and all must agree. See `engine.exactness`, which does the same for
whole models.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from engine.backends.torch_backend.masks import chunks
from engine.backends.torch_backend.segment_products import FeedSegments, Masks, partial_attention
from engine.kv_layout import AttentionLayer
from engine.positions import COARSE_SEGMENT, FINE_SEGMENT

MOST_QUERIES = 16
"""Queries of a head in the widest product: a forward of 64 takes four."""
FEWER_QUERIES = (1, 2, 4, 8)
LEAST_PRODUCT_ROWS = 4
"""Products of fewer rows take other kernels, and with them another rounding."""
SEGMENTS = (FINE_SEGMENT,) * 3 + (COARSE_SEGMENT,) * 2


@lru_cache(maxsize=256)
def query_counts(shape: AttentionLayer, dtype: torch.dtype) -> tuple[int, ...]:
    """Ascending, the last `MOST_QUERIES`: products of so many queries round alike.

    Takes some milliseconds, once for each shape of layers.
    """
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(2, shape.kv_heads, sum(SEGMENTS), shape.head_dim, generator=generator).to(
        dtype
    )
    parts = torch.split(numbers, list(SEGMENTS), dim=2)
    queries = torch.randn(
        shape.kv_heads, shape.groups, MOST_QUERIES, shape.head_dim, generator=generator
    ).to(dtype)
    keys = [part[0].transpose(1, 2) for part in parts]
    values = [part[1] for part in parts]

    def products(count: int) -> torch.Tensor:
        """Sums, values and maxima of all queries, `count` of them in each product."""
        masks = Masks(0, count, count, chunks(SEGMENTS), (None,) * len(SEGMENTS))
        feed = FeedSegments(masks, keys, values)
        found = []
        for first in range(0, MOST_QUERIES, count):
            rows = queries[:, :, first : first + count].reshape(shape.kv_heads, -1, shape.head_dim)
            sums = partial_attention(rows, feed, shape.head_dim**-0.5)
            of_heads = (shape.kv_heads, shape.groups, count, -1)
            found.append(torch.cat([part.view(of_heads) for part in sums], dim=3))
        return torch.cat(found, dim=2)

    with torch.inference_mode():
        expected = products(MOST_QUERIES)
        agreeing = [
            count
            for count in FEWER_QUERIES
            if count * shape.groups >= LEAST_PRODUCT_ROWS and torch.equal(products(count), expected)
        ]
    return (*agreeing, MOST_QUERIES)
