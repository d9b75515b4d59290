"""The shape of a masked model: the library's class, its config, how its tensors are stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import transformers

Entries = Mapping[str, object]
"""What is in a `config.json`."""

DERIVED = (r"\.rotary_emb\.inv_freq$", r"\.embeddings\.position_ids$")
"""Buffers that older checkpoints store and that the config determines."""


@dataclass(frozen=True, slots=True)
class StoredNames:
    """How the names of stored tensors become the library's.

    `renamed` are pairs (pattern, replacement), applied in turn; a tensor whose
    name matches one of `left_out` is of another part of the checkpoint.
    """

    renamed: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()

    def model_name(self, stored: str) -> str | None:
        """What the model calls the tensor `stored`; None if it is no part of it."""
        if any(re.search(pattern, stored) for pattern in (*DERIVED, *self.left_out)):
            return None
        name = stored
        for pattern, replacement in self.renamed:
            name = re.sub(pattern, replacement, name)
        return name


AS_STORED = StoredNames()
"""Stored under the library's own names."""


@dataclass(frozen=True, slots=True)
class Blueprint:
    """One masked model, before its weights.

    `architecture` is the name in the config, `model_class` the library's class
    that computes it. `context_length` is in positions. `usual_shift` is the
    prediction shift of the family; `keeps_keys` says whether its code can continue
    behind keys and values kept from before.
    """

    architecture: str
    model_class: type[transformers.PreTrainedModel]
    config: transformers.PretrainedConfig
    names: StoredNames
    vocabulary_size: int
    context_length: int
    usual_shift: int
    keeps_keys: bool


def named_architecture(entries: Entries) -> str:
    """The one architecture that a config names; empty when it names none or several."""
    named = entries.get("architectures")
    names = [str(name) for name in named] if isinstance(named, list) else []
    return names[0] if len(names) == 1 else ""


def positive(entries: Entries, name: str) -> int:
    """The entry `name`. Raises `ValueError` unless it is an integer of at least 1."""
    value = entries.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}")
    return value
