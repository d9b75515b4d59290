"""Weights that MLX has quantized, made into numbers as they are read.

A weight is scale x level + bias, with one scale and one bias for each group of a row. Levels
lie one behind the other in the bits of a row's words, lowest first. Both steps are computed
in the number format of the scales, as `mlx.core.dequantize` computes them, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.affine_quantization import Quantization
from kakeya_fleet.engine.backends.stored_tensors import (
    FLOAT_TYPES,
    PACKED_TYPES,
    StoredTensor,
    refuse,
)
from kakeya_fleet.engine.backends.torch_backend.quantized_weights import QuantizedWeight

WEIGHT, SCALES, BIASES = ".weight", ".scales", ".biases"
WORD_BITS = 32
SLICE_VALUES = 1 << 22
"""Numbers that are made at once."""


@dataclass(frozen=True, slots=True)
class AffineWeight:
    """Where a quantized weight's parts are stored, its bits, and how many share a scale."""

    words: StoredTensor
    scales: StoredTensor
    biases: StoredTensor
    bits: int
    group_size: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows, and numbers in one."""
        rows, groups = self.scales.shape
        return rows, groups * self.group_size

    @property
    def parts(self) -> tuple[StoredTensor, ...]:
        """Words, scales and biases."""
        return self.words, self.scales, self.biases

    def numbers(self, *parts: Tensor) -> Tensor:
        """See `affine_numbers`."""
        words, scales, biases = parts
        return affine_numbers(words, scales, biases, self.bits, self.group_size)


@dataclass(frozen=True, slots=True)
class AffineQuantization:
    """What MLX's part of a config says, as a `WeightQuantization`."""

    said: Quantization

    @property
    def label(self) -> str:
        """Such as `mlx-4bit-g64`."""
        return self.said.label

    def unpacked(
        self, folder: Path, stored: Mapping[str, StoredTensor]
    ) -> tuple[dict[str, StoredTensor], dict[str, QuantizedWeight]]:
        """See `WeightQuantization.unpacked`."""
        found = dict(stored)
        packed: dict[str, QuantizedWeight] = {}
        missing, wrong = [], []
        for name in [each for each in stored if each.endswith(SCALES)]:
            layer = name.removesuffix(SCALES)
            own = self.said.layers.get(layer, (self.said.bits, self.said.group_size))
            words, scales, biases = (
                found.pop(f"{layer}{part}", None) for part in (WEIGHT, SCALES, BIASES)
            )
            if words is None or scales is None or biases is None:
                missing.append(f"{layer}{BIASES if words is not None else WEIGHT}")
                continue
            if own is None or not _together(words, scales, biases, *own):
                wrong.append(layer)
                continue
            weight = f"{layer}{WEIGHT}"
            each = AffineWeight(words, scales, biases, *own)
            packed[weight] = each
            found[weight] = StoredTensor(words.file, words.name, each.shape, scales.dtype)
        refuse(folder, {"missing": sorted(missing), "not quantized as it says": sorted(wrong)})
        return found, packed


def _together(
    words: StoredTensor, scales: StoredTensor, biases: StoredTensor, bits: int, group_size: int
) -> bool:
    """Whether the parts are of one weight in groups of `group_size` numbers of `bits` each."""
    if not (len(words.shape) == len(scales.shape) == 2 and scales.shape == biases.shape):
        return False
    columns = scales.shape[1] * group_size
    return (
        words.dtype in PACKED_TYPES
        and scales.dtype == biases.dtype
        and scales.dtype in FLOAT_TYPES
        and 2 <= bits <= 8
        and group_size > 0
        and words.shape[0] == scales.shape[0]
        and words.shape[1] * WORD_BITS == columns * bits
    )


def affine_numbers(
    words: Tensor, scales: Tensor, biases: Tensor, bits: int, group_size: int
) -> Tensor:
    """The numbers of a quantized weight, [rows, columns], in the format of its scales.

    `words`: uint32 [rows, columns x bits / 32]; `scales`, `biases`: [rows, columns / group_size].
    """
    rows, groups = scales.shape
    columns = groups * group_size
    numbers = torch.empty((rows, columns), dtype=scales.dtype)
    step = max(1, SLICE_VALUES // columns)
    for start in range(0, rows, step):
        part = slice(start, start + step)
        levels = _levels(words[part], bits, columns).to(scales.dtype).view(-1, groups, group_size)
        made = levels * scales[part].unsqueeze(-1) + biases[part].unsqueeze(-1)
        numbers[part] = made.view(-1, columns)
    return numbers


def _levels(words: Tensor, bits: int, columns: int) -> Tensor:
    """uint8 [rows, columns]: each the next `bits` of its row's bytes, lowest first."""
    bytes_ = words.contiguous().view(torch.uint8)
    # One more, so that the last number's second byte is there.
    padded = torch.nn.functional.pad(bytes_, (0, 1)).to(torch.int16)
    begins = torch.arange(columns) * bits
    first = begins // 8
    both = padded[:, first] | (padded[:, first + 1] << 8)
    # Bits above those of the number are masked off, the sign's copies too.
    return ((both >> (begins % 8).to(torch.int16)) & ((1 << bits) - 1)).to(torch.uint8)
