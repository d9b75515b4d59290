"""Experts that a checkpoint stores as one tensor for a layer, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kakeya_fleet.engine.backends.torch_backend.packed_linear import GATE_UP
from kakeya_fleet.engine.backends.torch_backend.stored_tensors import Part, StoredTensor

GATE_UP_SUFFIX = ".experts.gate_up_proj"
DOWN_SUFFIX = ".experts.down_proj"
DIMENSIONS = 3
"""Experts, outputs, inputs."""


def unfused(
    stored: Mapping[str, StoredTensor],
) -> tuple[dict[str, StoredTensor], dict[str, Part]]:
    """`stored` with each expert's weights by names of their own, and their parts of what is stored.

    Other tensors stay as they are.
    """
    found: dict[str, StoredTensor] = {}
    parts: dict[str, Part] = {}
    for name, tensor in stored.items():
        names: tuple[str, ...] = ()
        if len(tensor.shape) == DIMENSIONS:
            names = GATE_UP if name.endswith(GATE_UP_SUFFIX) else names
            names = ("down_proj",) if name.endswith(DOWN_SUFFIX) else names
        # Two halves that are not of one size are no gate with its input: named as they are stored.
        if not names or tensor.shape[1] % len(names):
            found[name] = tensor
            continue
        count, outputs, inputs = tensor.shape
        own = outputs // len(names)
        for expert in range(count):
            for place, layer in enumerate(names):
                weight = f"{name.rpartition('.')[0]}.{expert}.{layer}.weight"
                found[weight] = replace(tensor, shape=(own, inputs))
                parts[weight] = (expert, slice(place * own, (place + 1) * own))
    return found, parts
