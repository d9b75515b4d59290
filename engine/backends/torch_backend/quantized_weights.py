"""Weights that a checkpoint stores as other tensors than its model has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from torch import Tensor

from kakeya_fleet.engine.backends.stored_tensors import StoredTensor


class QuantizedWeight(Protocol):
    """One weight: what is stored of it, and the numbers that this stands for."""

    @property
    def parts(self) -> tuple[StoredTensor, ...]:
        """What is stored, in the order in which `numbers` takes it."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the weight."""
        ...

    def numbers(self, *parts: Tensor) -> Tensor:
        """The weight, in the number format of its scales."""
        ...


class WeightQuantization(Protocol):
    """How the weights of one checkpoint are quantized, by its config."""

    @property
    def label(self) -> str:
        """A few characters for a card, such as `mlx-4bit-g64`."""
        ...

    def unpacked(
        self, folder: Path, stored: Mapping[str, StoredTensor]
    ) -> tuple[dict[str, StoredTensor], dict[str, QuantizedWeight]]:
        """`stored` with each quantized weight as what it stands for, and those by their names.

        Raises `WeightsMismatch` for parts that are missing or do not go together.
        """
        ...
