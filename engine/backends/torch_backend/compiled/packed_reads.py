"""Attention to packed tiles as they lie, by the compiled library."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.compiled.structs import (
    PackedRead,
    PackedSegments,
    Segment,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.threads import threads_for, workers_of
from kakeya_fleet.engine.codecs.tile import TILE
from kakeya_fleet.engine.contracts.evicted_store import NOTHING_SEEN

if TYPE_CHECKING:
    from kakeya_fleet.engine.backends.torch_backend.compiled.library import Library
    from kakeya_fleet.engine.codecs.tile import Packed
    from kakeya_fleet.engine.kv.chunks import Run
    from kakeya_fleet.engine.kv.feed import FeedSegments, Partial, Spans

LEVELS_A_THREAD = 1 << 18
"""What one thread multiplies with a row in some 0.1 ms: for less none is woken."""


class CompiledReads:
    """See `engine.kv.kernels.PackedReads`: the same bits on every processor, in any threads."""

    def __init__(self, found: Library, packed: PackedSegments, dtype: torch.dtype) -> None:
        """`packed` says how; `dtype` is that of queries as they come."""
        self._library = found
        self._packed = packed
        self._dtype = dtype

    def attend(
        self, rows: Tensor, feed: FeedSegments[Packed], scaling: float
    ) -> list[Partial[Tensor]]:
        """The attention to each chunk, in ascending order."""
        spans = feed.masks.spans
        if spans is None:
            raise ValueError("what queries see of packed tiles is one run of slots")
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
        feed: FeedSegments[Packed],
        chunk: tuple[Run, ...],
        spans: Spans,
        scaling: float,
    ) -> Partial[Tensor]:
        """`spans` are of the chunk's own slots."""
        kv_heads, count, head_dim = rows.shape
        tiles = [feed.keys[index] for run in chunk for index in range(run.first, run.last)]
        segments = (Segment * len(tiles))(
            *(Segment(keys.__array_interface__["data"][0], TILE * keys.shape[1]) for keys in tiles)
        )
        packed = self._packed
        firsts, ends = np.ascontiguousarray(spans)
        mixed = torch.empty((kv_heads, count, head_dim))
        totals = torch.empty((kv_heads, count, 1))
        maxima = torch.full((kv_heads, count, 1), NOTHING_SEEN)
        read = PackedRead(
            packed=PackedSegments(
                packed.keys,
                packed.values,
                segments,
                len(tiles),
                packed.key_bytes,
                packed.tile_bytes,
            ),
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
        levels = sum(keys.shape[1] for keys in tiles) * TILE * head_dim * kv_heads * count
        self._library.functions.kakeya_attend_packed(
            workers_of(self._library, os.getpid()),
            ctypes.byref(read),
            threads_for(levels, LEVELS_A_THREAD),
        )
        return totals, mixed, maxima
