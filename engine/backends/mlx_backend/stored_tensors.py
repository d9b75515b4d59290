"""Tensors of a folder in the hub's format, read strictly with MLX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

import mlx.core as mx

from kakeya_fleet.engine.backends.stored_tensors import StoredTensor, listed
from kakeya_fleet.engine.errors import WeightsMismatch
from kakeya_fleet.engine.models.weight_reading import weights_read


def read_tensors(
    stored: Mapping[str, StoredTensor], names: Iterable[str], dtype: mx.Dtype
) -> dict[str, mx.array]:
    """The tensors `names` of `stored`, computed and in `dtype`; packed ones as they are.

    Raises `WeightsMismatch` for a file that breaks off and for numbers that are
    not finite.
    """
    wanted = list(names)
    weights: dict[str, mx.array] = {}
    for path in sorted({stored[name].file for name in wanted}):
        try:
            arrays = cast(dict[str, mx.array], mx.load(str(path)))
            for name in (name for name in wanted if stored[name].file == path):
                array = arrays.pop(stored[name].name)
                byte_count = array.nbytes
                kept = array if array.dtype == mx.uint32 else array.astype(dtype)
                mx.eval(kept)
                weights[name] = kept
                weights_read(byte_count)
        except (RuntimeError, ValueError) as error:
            raise _unreadable(path, error) from error
    broken = sorted(
        name
        for name, array in weights.items()
        if array.dtype != mx.uint32 and not mx.isfinite(array).all().item()
    )
    if broken:
        raise WeightsMismatch(f"numbers that are not finite: {listed(broken)}")
    return weights


def _unreadable(path: Path, error: Exception) -> WeightsMismatch:
    return WeightsMismatch(f"{path.name} cannot be read ({error}); fetch it again", path=str(path))
