"""The target's part of a drafter: its embedding and its head, read from the target's folder."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig
from kakeya_fleet.engine.backends.dflash.target import EMBEDDING, HEAD, check_target
from kakeya_fleet.engine.backends.mlx_backend.architectures import (
    MlxArchitecture,
    read_architecture,
)
from kakeya_fleet.engine.backends.mlx_backend.stored_tensors import read_tensors
from kakeya_fleet.engine.backends.stored_tensors import StoredTensor, check_tensors, stored_tensors
from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.models.model_folder import ModelFolder

WEIGHT = ".weight"
GROUP_PARTS = (".scales", ".biases")
"""What a quantized matrix has beside its weight: [out, in / group_size] each."""
PACKED_BITS = 32
"""Bits of one number of a quantized weight, [out, in * bits / 32]."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """An embedding or a head [vocabulary_size, hidden_size], quantized where it is stored so.

    `groups` are the scales, the biases, the group's size and the bits.
    """

    weight: mx.array
    groups: tuple[mx.array, mx.array, int, int] | None = None

    def row(self, index: int) -> mx.array:
        """Row `index`, [hidden_size], in float32. Nothing is computed yet."""
        if self.groups is None:
            return self.weight[index].astype(mx.float32)
        scales, biases, group_size, bits = self.groups
        whole = mx.dequantize(
            self.weight[index : index + 1],
            scales[index : index + 1],
            biases[index : index + 1],
            group_size=group_size,
            bits=bits,
        )
        return whole[0].astype(mx.float32)

    def product(self, values: mx.array) -> mx.array:
        """[n, vocabulary_size] of `values` [n, hidden_size], both float32. Not computed yet."""
        if self.groups is None:
            made: mx.array = values.astype(self.weight.dtype) @ self.weight.T
            return made.astype(mx.float32)
        scales, biases, group_size, bits = self.groups
        return mx.quantized_matmul(
            values.astype(scales.dtype),
            self.weight,
            scales,
            biases,
            transpose=True,
            group_size=group_size,
            bits=bits,
        ).astype(mx.float32)


@dataclass(frozen=True, slots=True)
class TargetEnds:
    """The embedding and the head; one matrix when tied."""

    embedding: Matrix
    head: Matrix


def read_target(target: ModelFolder, config: DFlashConfig, dtype: mx.Dtype) -> TargetEnds:
    """The ends of the model in `target`, in `dtype`; no other tensor is read.

    Quantized ones stay packed. A tied head that is stored is not read. Raises
    `TrainedForAnother` when the target's layers, hidden size or vocabulary are not
    those that the drafter's config names, and what `read_architecture` and
    `read_tensors` raise.
    """
    architecture = read_architecture(target.path)
    text = architecture.config
    check_target(target, config, text)
    ends = (EMBEDDING,) if text.tie_word_embeddings else (EMBEDDING, HEAD)
    parts = {end.removesuffix(WEIGHT) + part for end in ends for part in (WEIGHT, *GROUP_PARTS)}
    stored = stored_tensors(
        target.path,
        lambda name: name if (name := architecture.text_name(name) or "") in parts else None,
    )
    shapes: dict[str, tuple[int, ...]] = {}
    packed: list[str] = []
    for end in ends:
        sizes = _quantized(architecture, end, stored)
        shapes |= _shapes(target, config, end, sizes)
        packed += [end] if sizes is not None else []
    check_tensors(target.path, shapes, stored, packed)
    weights = read_tensors(stored, shapes, dtype)
    matrices = [_matrix(weights, end, _quantized(architecture, end, stored)) for end in ends]
    return TargetEnds(matrices[0], matrices[-1])


def _quantized(
    architecture: MlxArchitecture, end: str, stored: dict[str, StoredTensor]
) -> tuple[int, int] | None:
    """Bits and group size of the matrix `end`; None when it is not quantized."""
    quantization = architecture.quantization
    name = end.removesuffix(WEIGHT)
    if quantization is None or name + GROUP_PARTS[0] not in stored:
        return None
    return quantization.layers.get(name, (quantization.bits, quantization.group_size))


def _shapes(
    target: ModelFolder, config: DFlashConfig, end: str, sizes: tuple[int, int] | None
) -> dict[str, tuple[int, ...]]:
    """The tensors that make up the matrix `end`, by name."""
    rows, columns = config.vocabulary_size, config.hidden_size
    if sizes is None:
        return {end: (rows, columns)}
    bits, group_size = sizes
    if columns % group_size or columns * bits % PACKED_BITS:
        raise ModelUnusable(
            f"{target.path}/config.json quantizes rows of {columns} numbers to {bits} bits in"
            f" groups of {group_size}",
            path=str(target.path),
        )
    name = end.removesuffix(WEIGHT)
    groups = {name + part: (rows, columns // group_size) for part in GROUP_PARTS}
    return {end: (rows, columns * bits // PACKED_BITS), **groups}


def _matrix(weights: dict[str, mx.array], end: str, sizes: tuple[int, int] | None) -> Matrix:
    if sizes is None:
        return Matrix(weights[end])
    bits, group_size = sizes
    scales, biases = (weights[end.removesuffix(WEIGHT) + part] for part in GROUP_PARTS)
    return Matrix(weights[end], (scales, biases, group_size, bits))
