"""Tiles packed and unpacked by the compiled library, where it knows the codec."""

from __future__ import annotations

import ctypes
import os

import numpy as np
import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.compiled.grids import (
    MOST_HEAD,
    grid_of,
    packed_segments,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.library import library
from kakeya_fleet.engine.backends.torch_backend.compiled.segment_reads import (
    HEAD_MULTIPLE,
    CompiledReads,
)
from kakeya_fleet.engine.backends.torch_backend.compiled.threads import threads_for, workers_of
from kakeya_fleet.engine.backends.torch_backend.kernels import TorchKernels
from kakeya_fleet.engine.codecs.kv_codec import KvCodec
from kakeya_fleet.engine.codecs.refused import CodecRefused
from kakeya_fleet.engine.codecs.tile import TILE, Codec, Packed, check_packed
from kakeya_fleet.engine.contracts.evicted_store import Floats, Raw
from kakeya_fleet.engine.contracts.kv_layout import AttentionLayer
from kakeya_fleet.engine.kv.feed import FeedSegments, Partial
from kakeya_fleet.engine.kv.kernels import ALL_QUERY_COUNTS

NUMBERS_UNPACKED_A_THREAD, NUMBERS_PACKED_A_THREAD = 1 << 18, 1 << 15
"""What one thread does in some 0.2 ms, or in 1 ms: for less none is woken."""


_REFUSALS = {
    1: "a tile has numbers that are not finite",
    2: "a tile has numbers beyond 65,504, which its scales cannot hold",
}


class PackingKernels(TorchKernels):
    """Torch's kernels, with the library's packing and unpacking, and its attention for stores.

    The library's are the host's: on another device it packs and unpacks what is on its way
    there, and attends to nothing.
    """

    def tiles_of(self, codec: Codec, tiles: Raw) -> Packed:
        """By the library where it can."""
        found = compiled_pack(codec, tiles)
        return super().tiles_of(codec, tiles) if found is None else found

    def packed_reads(self, codec: KvCodec, head_dim: int) -> CompiledReads | None:
        """The library's, of codecs that it knows."""
        found = library() if self._device.is_host else None
        packed = None if found is None else packed_segments(codec, head_dim)
        if found is None or packed is None:
            return None
        return CompiledReads(found, self._dtype, packed)

    def query_counts(self, shape: AttentionLayer) -> tuple[int, ...]:
        """Any, where the library attends; see `Kernels`."""
        if self._reads(shape.head_dim) is not None:
            return ALL_QUERY_COUNTS
        return super().query_counts(shape)

    def rows(self, queries: Floats, kv_heads: int) -> Tensor:
        """Where the library attends, it reads them wherever they lie."""
        if self._reads(queries.shape[2]) is None:
            return super().rows(queries, kv_heads)
        with torch.inference_mode():
            own = torch.from_numpy(queries).to(self._dtype)
            return own.view(kv_heads, -1, queries.shape[2])

    def attend(
        self, rows: Tensor, feed: FeedSegments[Tensor], scaling: float
    ) -> list[Partial[Tensor]]:
        """By the library where it can, of what a store keeps."""
        reads = self._reads(rows.shape[2]) if feed.masks.spans is not None else None
        if reads is None:
            return super().attend(rows, feed, scaling)
        return reads.attend(rows, feed, scaling)

    def _reads(self, head_dim: int) -> CompiledReads | None:
        found = library() if self._device.is_host else None
        if found is None or head_dim % HEAD_MULTIPLE or head_dim > MOST_HEAD:
            return None
        return CompiledReads(found, self._dtype)

    def numbers_of(self, codec: Codec, tiles: Packed, head_dim: int) -> Tensor:
        """By the library where it can."""
        found = compiled_unpack(codec, tiles, head_dim, self._dtype)
        return super().numbers_of(codec, tiles, head_dim) if found is None else found


def compiled_unpack(
    codec: Codec, tiles: Packed, head_dim: int, dtype: torch.dtype
) -> Tensor | None:
    """The numbers [n, 64, head_dim] of tiles [n, bytes], rounded to `dtype`.

    Those of `codec.decode`, bit for bit. None where there is no library, or where it does not
    know the codec or such heads. Raises `CodecRefused` for another size; what the tiles hold
    was checked before they were kept.
    """
    found = library()
    grid = grid_of(codec, head_dim, narrow=dtype == torch.bfloat16)
    if found is None or grid is None:
        return None
    check_packed(codec, tiles, head_dim)
    if tiles.strides[1] != 1:
        tiles = np.ascontiguousarray(tiles)
    numbers = torch.empty((len(tiles), TILE, head_dim), dtype=dtype)
    found.functions.kakeya_unpack(
        workers_of(found, os.getpid()),
        ctypes.byref(grid),
        tiles.ctypes.data,
        tiles.strides[0],
        len(tiles),
        numbers.data_ptr(),
        threads_for(numbers.numel(), NUMBERS_UNPACKED_A_THREAD),
    )
    return numbers


def compiled_pack(codec: Codec, numbers: Raw) -> Packed | None:
    """Numbers [n, 64, head_dim], contiguous, as tiles [n, bytes].

    Those of `codec.encode`, byte for byte. None where there is no library, or where it does not
    know the codec or such heads. Raises `CodecRefused` as that does.
    """
    found = library()
    head_dim = numbers.shape[2]
    grid = grid_of(codec, head_dim, narrow=numbers.dtype == np.uint16)
    if found is None or grid is None:
        return None
    packed = np.empty((len(numbers), codec.tile_bytes(head_dim)), np.uint8)
    refused = found.functions.kakeya_pack(
        workers_of(found, os.getpid()),
        ctypes.byref(grid),
        numbers.ctypes.data,
        len(numbers),
        packed.ctypes.data,
        packed.strides[0],
        threads_for(numbers.size, NUMBERS_PACKED_A_THREAD),
    )
    if refused:
        raise CodecRefused(_REFUSALS[refused])
    return packed
