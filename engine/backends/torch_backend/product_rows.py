"""How many queries of a head a product with evicted keys may have on this machine.

A row's rounding is that of the kernel which the product's shape selects, and how
many threads share it. So one random input of each shape tells two kernels apart: a
row has thousands of roundings, and all must agree. See `engine.verifiers.exactness`, which does
the same for whole models. What all must agree with is computed in one thread, so that
stores that attend in different numbers of threads find the same bits.
"""

from __future__ import annotations

import threading
from functools import lru_cache

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.device import HOST, Device
from kakeya_fleet.engine.backends.torch_backend.segment_products import partial_attention
from kakeya_fleet.engine.backends.torch_backend.threads import one_thread
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer
from kakeya_fleet.engine.contracts.positions import COARSE_SEGMENT, FINE_SEGMENT
from kakeya_fleet.engine.errors import RestorerRefused
from kakeya_fleet.engine.kv.chunks import chunks
from kakeya_fleet.engine.kv.feed import FeedSegments, Masks
from kakeya_fleet.engine.kv.kernels import MOST_QUERIES

FEWER_QUERIES = (1, 2, 4, 8)
LEAST_PRODUCT_ROWS = 4
"""Products of fewer rows take other kernels, and with them another rounding."""
_ONE_TRIAL = threading.Lock()
"""A trial takes memory that nobody has a budget for."""
SEGMENTS = (FINE_SEGMENT,) * 3 + (COARSE_SEGMENT,) * 2


def query_counts(
    shape: AttentionLayer, dtype: torch.dtype, device: Device = HOST
) -> tuple[int, ...]:
    """Ascending, the last `MOST_QUERIES`: products of so many queries round alike.

    In the calling thread, which is the one that is to compute them. Takes
    milliseconds, a second for the widest layers, once for each shape of layers and number of
    threads, one at a time, and memory for 2,816 keys and values of a layer. Raises
    `RestorerRefused` where not even the widest product rounds as in one thread.
    """
    return _counts_of_threads(shape, dtype, device, torch.get_num_threads())


@lru_cache(maxsize=256)
def _counts_of_threads(
    shape: AttentionLayer, dtype: torch.dtype, device: Device, threads: int
) -> tuple[int, ...]:
    """`query_counts` in `threads` threads, those of the calling thread."""
    with _ONE_TRIAL, torch.inference_mode():
        products = _RandomProducts(shape, dtype, device)
        with one_thread():
            expected = products.of(MOST_QUERIES)
        agreeing = tuple(
            count
            for count in (*FEWER_QUERIES, MOST_QUERIES)
            if count * shape.groups >= LEAST_PRODUCT_ROWS
            and torch.equal(products.of(count), expected)
        )
    if agreeing[-1:] != (MOST_QUERIES,):
        raise RestorerRefused(
            f"{threads} threads round products with evicted keys of {shape.kv_heads} heads of"
            f" {shape.head_dim} in {dtype} as one alone does not: start the node with"
            " OMP_NUM_THREADS=1",
            threads=str(threads),
        )
    return agreeing


class _RandomProducts:
    """Random queries of a layer, and keys and values of every size of segment."""

    def __init__(self, shape: AttentionLayer, dtype: torch.dtype, device: Device = HOST) -> None:
        generator = torch.Generator().manual_seed(0)
        sizes = (2, shape.kv_heads, sum(SEGMENTS), shape.head_dim)
        numbers = torch.randn(sizes, generator=generator).to(device.place, dtype)
        parts = torch.split(numbers, list(SEGMENTS), dim=2)
        self._shape = shape
        self._keys = [part[0].transpose(1, 2) for part in parts]
        self._values = [part[1] for part in parts]
        sizes = (shape.kv_heads, shape.groups, MOST_QUERIES, shape.head_dim)
        self._queries = torch.randn(sizes, generator=generator).to(device.place, dtype)

    def of(self, count: int) -> Tensor:
        """Sums, values and maxima of all queries, `count` of them in each product."""
        shape = self._shape
        masks: Masks[Tensor] = Masks(0, count, count, chunks(SEGMENTS), (None,) * len(SEGMENTS))
        feed = FeedSegments(masks, self._keys, self._values)
        found = []
        for first in range(0, MOST_QUERIES, count):
            queries = self._queries[:, :, first : first + count]
            rows = queries.reshape(shape.kv_heads, -1, shape.head_dim)
            sums = partial_attention(rows, feed, shape.head_dim**-0.5)
            of_heads = (shape.kv_heads, shape.groups, count, -1)
            found.append(torch.cat([part.view(of_heads) for part in sums], dim=3))
        return torch.cat(found, dim=2)
