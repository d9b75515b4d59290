"""A model as it would be served, known by its headers or by its sizes alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kakeya_fleet.engine.contracts.kv_layout import KvLayout


@dataclass(frozen=True)
class ModelOnPaper:
    """What a verifier of the model keeps, without one of its numbers.

    `dtype` is that of its keys and values. `weight_bytes` are those of its weights in memory at
    most, by what products take them as (`engine.models.weight_choice.WEIGHTS`); `refused` says
    why it has no weights of the others. `loading_bytes` are, by the same names, what must be free
    before it is loaded: the most that is there at once while weights are read, or they and the
    `working_bytes` that a forward computes in. Beside both the check of exactness, at a first load,
    takes up to `checking_bytes`, and gives them back. `file_bytes` are those of its weights' files,
    0 when they were not looked at. One that `is_bounded` has as many positions as its layout says.
    """

    name: str
    architecture: str
    dtype: str
    layout: KvLayout
    weight_bytes: Mapping[str, int]
    loading_bytes: Mapping[str, int]
    working_bytes: int = 0
    checking_bytes: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    file_bytes: int = 0
    is_bounded: bool = True
