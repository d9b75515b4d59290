"""Tensors of a folder in the hub's format, read strictly with torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from kakeya_fleet.engine.backends.stored_tensors import (
    StoredTensor,
    check_tensors,
    listed,
    stored_tensors,
)
from kakeya_fleet.engine.errors import OutOfMemory, WeightsMismatch
from kakeya_fleet.engine.models.weight_reading import weights_read

__all__ = ["StoredTensor", "check_tensors", "listed", "read_tensors", "stored_tensors"]

NO_PARTS: Mapping[str, tuple[slice, ...]] = MappingProxyType({})
"""Every tensor is read whole."""


def read_tensors(
    stored: Mapping[str, StoredTensor],
    names: Iterable[str],
    dtype: torch.dtype,
    parts: Mapping[str, tuple[slice, ...]] = NO_PARTS,
) -> dict[str, Tensor]:
    """The tensors `names` of `stored`, in memory of their own and in `dtype`.

    Of those that `parts` names only that part is read. Raises `WeightsMismatch`
    for a file that breaks off and for numbers that are not finite, `OutOfMemory`.
    """
    wanted = list(names)
    weights: dict[str, Tensor] = {}
    for path in sorted({stored[name].file for name in wanted}):
        try:
            with safe_open(path, framework="pt") as file:
                for name in (name for name in wanted if stored[name].file == path):
                    # A copy: the file's mapping is not aligned to vectors, and can change.
                    found = _read(file, stored[name], parts.get(name))
                    weights[name] = found.to(dtype, copy=True)
                    weights_read(found.nbytes)
        except (SafetensorError, OSError) as error:
            raise WeightsMismatch(
                f"{path.name} cannot be read ({error}); fetch it again", path=str(path)
            ) from error
        except (MemoryError, RuntimeError) as error:  # torch's allocator raises the latter
            raise OutOfMemory(f"{path} does not fit into memory", path=str(path)) from error
    broken = sorted(name for name, tensor in weights.items() if not tensor.isfinite().all())
    if broken:
        raise WeightsMismatch(f"numbers that are not finite: {listed(broken)}")
    return weights


def _read(file: safe_open, tensor: StoredTensor, part: tuple[slice, ...] | None) -> Tensor:
    if part is None:
        whole: Tensor = file.get_tensor(tensor.name)  # type: ignore[no-untyped-call]
        return whole
    found: Tensor = file.get_slice(tensor.name)[part]  # type: ignore[no-untyped-call]
    return found
