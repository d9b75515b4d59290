"""What a GGUF file is of: a config in the hub's format, and where each tensor goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ConfigEntries = dict[str, object]

Values = Literal["as_they_are", "less_one", "log_of_negated"]
"""What is done to each number: llama.cpp keeps norms of some families as w + 1, and -exp(A)."""


@dataclass(frozen=True, slots=True)
class HalvesApart:
    """Rows of q and k of Llama lie in pairs, as llama.cpp rotates: back to halves, per head."""

    heads: int


@dataclass(frozen=True, slots=True)
class GroupsTogether:
    """Value heads lie with those of one key head `key_heads` apart: back beside each other.

    Of rows, or of columns if `of_columns`; each head has `width` of them, from `first` on.
    """

    key_heads: int
    heads_per_key: int
    width: int
    first: int = 0
    of_columns: bool = False


Order = HalvesApart | GroupsTogether


@dataclass(frozen=True, slots=True)
class Target:
    """A tensor of the hub's format: its name, and how its numbers come of the file's."""

    name: str
    values: Values = "as_they_are"
    order: Order | None = None
    new_axis: int | None = None
    """A dimension of 1 that the file leaves out."""


@dataclass(frozen=True, slots=True)
class Described:
    """`config` as `config.json` has it; `targets` by the file's names; `in_config` are read there.

    Names that are in none of both are no part of the model that is known here.
    """

    config: ConfigEntries
    targets: Mapping[str, Target]
    in_config: frozenset[str] = field(default=frozenset())
