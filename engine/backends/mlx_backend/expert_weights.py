"""Experts' weights as mlx-lm's code has them, one tensor a layer, out of what is stored.

Checkpoints store one tensor an expert, or gate and up of all experts as one; mlx-lm's
conversion stores what its code has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from kakeya_fleet.engine.backends.mlx_backend.experts import NAMES
from kakeya_fleet.engine.backends.stored_tensors import FLOAT_TYPES, StoredTensor, refuse

HALVES = ("gate_proj", "up_proj")
"""In this order, where they are stored as one."""
EXPERTS = "experts"
WEIGHT = "weight"

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """The tensor `name` of all experts of a layer, and the stored ones that it is made of.

    There is one source an expert, or one for all. `half` is the place of its outputs in a
    source that has two layers'.
    """

    name: str
    shape: Shape
    sources: tuple[str, ...]
    half: int | None = None

    @property
    def is_stacked(self) -> bool:
        """Whether each expert is stored by itself."""
        return self.sources[0].endswith(f".{WEIGHT}")

    @property
    def source_shape(self) -> Shape:
        """What each source must be like."""
        count, outputs, inputs = self.shape
        if self.is_stacked:
            return outputs, inputs
        return count, outputs if self.half is None else len(HALVES) * outputs, inputs

    def made(
        self, arrays: Mapping[str, mx.array], kept: Callable[[mx.array], mx.array]
    ) -> mx.array:
        """The tensor, of its sources as they are `kept`; nothing is computed yet."""
        if self.is_stacked:
            # Converted before they are one: never are all there in a wider format.
            return mx.stack([kept(arrays[source]) for source in self.sources])
        whole = arrays[self.sources[0]]
        if self.half is None:
            return kept(whole)
        outputs = self.shape[1]
        return kept(mx.contiguous(whole[:, self.half * outputs : (self.half + 1) * outputs]))


def expert_weights(
    folder: Path, shapes: Mapping[str, Shape], stored: Mapping[str, StoredTensor]
) -> list[ExpertWeights]:
    """Which of a model's weights, of these `shapes`, are to be made of `stored` ones.

    Raises `WeightsMismatch` where some of an expert's are missing, or are not as they must be.
    """
    found = [
        own
        for name, shape in shapes.items()
        if name not in stored and (own := _sources(name, shape, stored)) is not None
    ]
    missing = [each for own in found for each in own.sources if each not in stored]
    there = [(own, stored[each]) for own in found for each in own.sources if each in stored]
    refuse(
        folder,
        {
            "missing": sorted(missing),
            "wrong shape": sorted({t.name for own, t in there if t.shape != own.source_shape}),
            "wrong type": sorted({t.name for _, t in there if t.dtype not in FLOAT_TYPES}),
        },
    )
    return found


def with_experts(
    stored: Mapping[str, StoredTensor], made: list[ExpertWeights]
) -> dict[str, StoredTensor]:
    """`stored` as if the tensors that are to be `made` were there, in place of their sources."""
    sources = {source for own in made for source in own.sources}
    found = {name: tensor for name, tensor in stored.items() if name not in sources}
    for own in made:
        first = stored[own.sources[0]]
        found[own.name] = StoredTensor(first.file, first.name, own.shape, first.dtype)
    return found


def _sources(name: str, shape: Shape, stored: Mapping[str, StoredTensor]) -> ExpertWeights | None:
    """What the weight `name` is made of; None for one that is no expert's, or is not there."""
    parent, _, own = name.rpartition(f".{WEIGHT}")[0].rpartition(".")
    block, _, module = parent.rpartition(".")
    if module not in NAMES:
        return None
    root = block if block.endswith(f".{EXPERTS}") else f"{block}.{EXPERTS}"
    halves = own in HALVES
    fused = f"{root}.gate_up_proj" if halves else f"{root}.{own}"
    if fused in stored:
        return ExpertWeights(name, shape, (fused,), HALVES.index(own) if halves else None)
    each = tuple(f"{root}.{expert}.{own}.{WEIGHT}" for expert in range(shape[0]))
    return ExpertWeights(name, shape, each) if stored.keys() & set(each) else None
