"""Packed tiles as torch's tensors, unpacked by the compiled library where it knows the codec."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.compiled.library import Library, library
from kakeya_fleet.engine.backends.torch_backend.compiled.structs import Grid
from kakeya_fleet.engine.backends.torch_backend.kernels import TorchKernels
from kakeya_fleet.engine.codecs.grid_codec import Axis, GridCodec
from kakeya_fleet.engine.codecs.hadamard import rotation_block
from kakeya_fleet.engine.codecs.tile import TILE, Codec, Packed, check_packed

LANES = 16
"""Numbers of which the library takes multiples: channels of a head, and of a grid."""


class UnpackingKernels(TorchKernels):
    """Torch's kernels, over tiles that the library unpacks."""

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
    grid = _grid(codec, head_dim, narrow=dtype == torch.bfloat16)
    if found is None or grid is None:
        return None
    check_packed(codec, tiles, head_dim)
    if tiles.strides[1] != 1:
        tiles = np.ascontiguousarray(tiles)
    numbers = torch.empty((len(tiles), TILE, head_dim), dtype=dtype)
    found.functions.kakeya_unpack(
        _workers(found, os.getpid()),
        ctypes.byref(grid),
        tiles.ctypes.data,
        tiles.strides[0],
        len(tiles),
        numbers.data_ptr(),
        torch.get_num_threads(),
    )
    return numbers


def _grid(codec: Codec, head_dim: int, *, narrow: bool) -> Grid | None:
    if not isinstance(codec, GridCodec):
        return None
    group = codec.group_size(head_dim)
    if head_dim % LANES or group % LANES:
        return None
    return Grid(
        head_size=head_dim,
        bits=codec.bits,
        group=group,
        rotation=rotation_block(head_dim) if codec.rotates else 0,
        is_by_channel=codec.axis is Axis.CHANNEL,
        balances=codec.balances,
        is_narrow=narrow,
    )


@lru_cache(maxsize=1)
def _workers(found: Library, process: int) -> int:  # noqa: ARG001 - a fork has no threads
    """Threads of the process's own, for as long as it lives: they sleep between calls."""
    workers: int = found.functions.kakeya_workers()
    return workers
