"""Experts that a checkpoint stores as one tensor for a layer, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kakeya_fleet.engine.backends.torch_backend.packed_linear import GATE_UP
from kakeya_fleet.engine.backends.torch_backend.stored_tensors import Part, StoredTensor

GATE_UP_SUFFIX = ".experts.gate_up_proj"
DOWN_SUFFIX = ".experts.down_proj"
BIAS_SUFFIX = "_bias"


def unfused(
    stored: Mapping[str, StoredTensor], *, turned: bool
) -> tuple[dict[str, StoredTensor], dict[str, Part]]:
    """`stored` with each expert's weights by names of their own, and their parts of what is stored.

    Of a layer's experts [experts, outputs, inputs], gate before up, or, `turned`, [experts,
    inputs, outputs], gate and up by turns, with biases. Other tensors stay as they are.
    """
    found: dict[str, StoredTensor] = {}
    parts: dict[str, Part] = {}
    for name, tensor in stored.items():
        own = list(_experts(name, tensor, turned=turned))
        if not own:
            found[name] = tensor
        for weight, shape, part in own:
            found[weight] = replace(tensor, shape=shape)
            parts[weight] = part
    return found, parts


def _experts(
    name: str, tensor: StoredTensor, *, turned: bool
) -> Iterator[tuple[str, tuple[int, ...], Part]]:
    """Name, shape and part of each weight in `tensor`; nothing where it is not all experts'."""
    is_bias = turned and name.endswith(BIAS_SUFFIX)
    whole = name.removesuffix(BIAS_SUFFIX) if is_bias else name
    layers: tuple[str, ...] = ()
    if whole.endswith(GATE_UP_SUFFIX):
        layers = GATE_UP
    elif whole.endswith(DOWN_SUFFIX):
        layers = ("down_proj",)
    if not layers or len(tensor.shape) != (2 if is_bias else 3):
        return
    count, *sizes = tensor.shape
    outputs, *inputs = reversed(sizes) if turned and not is_bias else sizes
    # Two halves that are not of one size are no gate with its input: named as they are stored.
    if outputs % len(layers):
        return
    own, root = outputs // len(layers), whole.rpartition(".")[0]
    for expert in range(count):
        for place, layer in enumerate(layers):
            weight = f"{root}.{expert}.{layer}.{'bias' if is_bias else 'weight'}"
            if turned:
                part = Part((expert,), not is_bias, place, len(layers))
            else:
                part = Part((expert, slice(place * own, (place + 1) * own)))
            yield weight, (own, *inputs), part
