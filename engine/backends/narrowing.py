"""The first part of a learned map that narrows, as it is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kakeya_fleet.engine.backends.stored_tensors import (
    ReadTensors,
    check_tensors,
    stored_tensors,
)
from kakeya_fleet.engine.contracts.feature_encoder import Rows
from kakeya_fleet.engine.restoration.learned_map import LearnedMap
from kakeya_fleet.engine.restoration.narrowed_encoder import NARROWING

Array = TypeVar("Array")
Dtype = TypeVar("Dtype")


def read_narrowing(
    found: LearnedMap,
    inputs: int,
    read: ReadTensors[Dtype, Array],
    float32: Dtype,
    host: Callable[[Array], Rows],
) -> Rows:
    """The matrix [map's width, inputs]; nothing else of the map is read.

    Raises `WeightsMismatch` where it is missing, of another shape or not finite.
    """
    stored = stored_tensors(found.path, lambda name: name if name == NARROWING else None)
    check_tensors(found.path, {NARROWING: (found.width, inputs)}, stored)
    return host(read(stored, (NARROWING,), float32)[NARROWING])
