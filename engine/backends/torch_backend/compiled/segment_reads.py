"""Attention to the segments of a store by the library: of numbers, or of tiles as they lie."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.compiled.structs import (
    BFLOAT16,
    FLOAT32,
    PackedSegments,
    Read,
    Segment,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.threads import threads_for, workers_of
from kakeya_fleet.engine.contracts.evicted_store import NOTHING_SEEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from kakeya_fleet.engine.backends.torch_backend.compiled.library import Library
    from kakeya_fleet.engine.kv.chunks import Run
    from kakeya_fleet.engine.kv.feed import FeedSegments, Partial, Spans

HEAD_MULTIPLE = 32
"""Channels of heads whose numbers the library reads."""
PRODUCTS_A_THREAD = 1 << 18
"""What one thread multiplies in some 0.1 ms at most: for less none is woken."""


class CompiledReads:
    """See `engine.kv.kernels.PackedReads`: the same bits on every processor, in any threads.

    Of segments that `packed` says how to read, or without it of numbers in `dtype`.
    """

    def __init__(
        self, found: Library, dtype: torch.dtype, packed: PackedSegments | None = None
    ) -> None:
        self._library = found
        self._format = BFLOAT16 if dtype is torch.bfloat16 else FLOAT32
        self._packed = packed
        self._place: Callable[[Any], int] = _of_numbers if packed is None else _of_tiles

    def attend(
        self, rows: Tensor, feed: FeedSegments[Any], scaling: float
    ) -> list[Partial[Tensor]]:
        """The attention to each chunk, in ascending order; the feed's masks have `spans`."""
        spans = feed.masks.spans
        if spans is None:
            raise ValueError("what queries see of a store is one run of slots")
        with torch.inference_mode():
            own = rows.to(torch.float32).contiguous()
            found, origin = [], 0
            for chunk in feed.masks.chunks:
                found.append(self._chunk(own, feed, chunk, spans - origin, scaling))
                origin += sum((run.last - run.first) * run.keys for run in chunk)
        return found

    def _chunk(
        self,
        rows: Tensor,
        feed: FeedSegments[Any],
        chunk: tuple[Run, ...],
        spans: Spans,
        scaling: float,
    ) -> Partial[Tensor]:
        """`spans` are of the chunk's own slots."""
        kv_heads, count, head_dim = rows.shape
        indices = [(index, run.keys) for run in chunk for index in range(run.first, run.last)]
        # What is unpacked for this lives as long as these.
        keys = [feed.keys[index] for index, _ in indices]
        values = [] if self._packed is not None else [feed.values[index] for index, _ in indices]
        places: list[Any] = [
            (self._place(own), slots) for own, (_, slots) in zip(keys, indices, strict=True)
        ]
        segments = (Segment * len(keys))(*places)
        firsts, ends = np.ascontiguousarray(spans)
        mixed = torch.empty((kv_heads, count, head_dim))
        totals = torch.empty((kv_heads, count, 1))
        maxima = torch.full((kv_heads, count, 1), NOTHING_SEEN)
        read = Read(
            packed=ctypes.pointer(self._packed) if self._packed is not None else None,
            segments=segments,
            values=(ctypes.c_void_p * len(values))(*(each.data_ptr() for each in values)),
            segment_count=len(keys),
            head_size=head_dim,
            format=self._format,
            kv_heads=kv_heads,
            groups=count // feed.masks.queries,
            queries=feed.masks.queries,
            scaling=scaling,
            rows=rows.data_ptr(),
            firsts=firsts.ctypes.data,
            ends=ends.ctypes.data,
            mixed=mixed.data_ptr(),
            totals=totals.data_ptr(),
            maxima=maxima.data_ptr(),
        )
        products = sum(slots for _, slots in indices) * head_dim * kv_heads * count
        self._library.functions.kakeya_attend(
            workers_of(self._library, os.getpid()),
            ctypes.byref(read),
            threads_for(products, PRODUCTS_A_THREAD),
        )
        return totals, mixed, maxima


def _of_tiles(keys: Any) -> int:
    """Where tiles [kv_heads, n, bytes] lie: a tile's values lie behind its keys."""
    place: int = keys.__array_interface__["data"][0]
    return place


def _of_numbers(keys: Tensor) -> int:
    """Where keys [kv_heads, head_dim, slots] lie, of memory [kv_heads, slots, head_dim]."""
    return keys.data_ptr()
