"""The tensors of a GGUF file, written as safetensors a slice at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.gguf.dequantize import dequantize
from kakeya_fleet.engine.errors import GgufInvalid, WeightsMismatch
from kakeya_fleet.engine.models.gguf.described import (
    GroupsTogether,
    HalvesApart,
    Order,
    Target,
    Values,
)
from kakeya_fleet.engine.models.gguf.header import GgufTensor

SLICE_VALUES = 1 << 22
"""Numbers that are made at once: 16 MiB of float32, and as much again while they are changed."""
STORED = {torch.float32: "F32", torch.bfloat16: "BF16"}
"""What safetensors calls the formats."""
ALIGNMENT = 8

Written = Callable[[int], None]
"""Hears of bytes of the GGUF file that were made into numbers and written."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor of the file and where it goes."""

    tensor: GgufTensor
    target: Target

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape in the hub's format."""
        shape, axis = self.tensor.shape, self.target.new_axis
        return shape if axis is None else (*shape[:axis], 1, *shape[axis:])


def write_weights(
    source: Path, placed: Mapping[str, Placed], to: Path, dtype: torch.dtype, written: Written
) -> None:
    """Writes `placed`, by the hub's names, from the GGUF file `source` into the file `to`.

    Numbers are float32 until all is done to them, then rounded once. Raises `WeightsMismatch`
    for numbers that are not finite, `GgufInvalid` for a file that became shorter or an order
    that its shape does not have, `OSError` of the disk.
    """
    with source.open("rb") as file, to.open("wb") as out:
        out.write(_table(placed, dtype))
        for each in placed.values():
            for values in _slices(file, source, each):
                numbers = values.to(dtype)
                if not numbers.isfinite().all():
                    raise WeightsMismatch(
                        f"{source} has numbers that are not finite in {each.tensor.name}",
                        path=str(source),
                        tensor=each.tensor.name,
                    )
                out.write(numbers.contiguous().view(torch.uint8).numpy().tobytes())
            written(each.tensor.byte_count)


def _table(placed: Mapping[str, Placed], dtype: torch.dtype) -> bytes:
    """The head of a safetensors file: its size, then where each tensor is."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, each in placed.items():
        end = start + math.prod(each.shape) * dtype.itemsize
        entries[name] = {
            "dtype": STORED[dtype],
            "shape": list(each.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _slices(file: BinaryIO, source: Path, each: Placed) -> Iterator[Tensor]:
    """The numbers of a tensor, float32, in the order of the hub's format."""
    tensor, target = each.tensor, each.target
    if target.order is not None or len(tensor.shape) == 1:
        # Rows that are put elsewhere: of products alone, none of them is a vocabulary.
        whole = _numbers(file, source, tensor, 0, tensor.byte_count).reshape(tensor.shape)
        changed = _changed(whole, target.values)
        yield changed if target.order is None else _ordered(changed, target.order, each, source)
        return
    columns = tensor.shape[-1]
    rows = math.prod(tensor.shape[:-1])
    row_bytes = tensor.kind.row_bytes(columns)
    step = max(1, SLICE_VALUES // columns)
    for row in range(0, rows, step):
        byte_count = min(step, rows - row) * row_bytes
        values = _numbers(file, source, tensor, row * row_bytes, byte_count)
        yield _changed(values, target.values)


def _numbers(
    file: BinaryIO, source: Path, tensor: GgufTensor, start: int, byte_count: int
) -> Tensor:
    """The numbers in `byte_count` bytes of `tensor`, from its byte `start` on."""
    raw = bytearray(byte_count)
    file.seek(tensor.start + start)
    if file.readinto(raw) != byte_count:  # type: ignore[attr-defined]  # of a buffered file
        raise GgufInvalid(f"{source} became shorter while it was read", path=str(source))
    blocks = torch.frombuffer(raw, dtype=torch.uint8).view(-1, tensor.kind.block_bytes)
    return dequantize(blocks, tensor.kind)


def _changed(values: Tensor, change: Values) -> Tensor:
    if change == "less_one":
        return values - 1
    if change == "log_of_negated":
        return torch.log(-values)
    return values


def _ordered(values: Tensor, order: Order, each: Placed, source: Path) -> Tensor:
    """`values` in the hub's order. Raises `GgufInvalid` for a shape that does not have it."""
    of_columns = isinstance(order, GroupsTogether) and order.of_columns
    count = values.shape[1 if of_columns and values.ndim > 1 else 0]
    places = _places(order, count)
    if places is None:
        raise GgufInvalid(
            f"{source} has {each.tensor.name} in the shape {each.tensor.shape}, which does not"
            " go with its heads",
            path=str(source),
        )
    return values[:, places] if of_columns and values.ndim > 1 else values[places]


def _places(order: Order, count: int) -> Tensor | None:
    """Where each of `count` rows or columns lies in the file; None if they do not fit."""
    if isinstance(order, HalvesApart):
        if count % (2 * order.heads):
            return None
        # Within a head the file has rows 0, half, 1, half + 1 and so on.
        return torch.arange(count).view(order.heads, -1, 2).transpose(1, 2).reshape(-1)
    behind = count - order.first
    if behind != order.key_heads * order.heads_per_key * order.width:
        return None
    tiled = torch.arange(behind).view(order.heads_per_key, order.key_heads, order.width)
    grouped = tiled.transpose(0, 1).reshape(-1) + order.first
    return torch.cat((torch.arange(order.first), grouped))
