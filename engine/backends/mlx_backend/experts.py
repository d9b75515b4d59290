"""Mixtures of experts whose products have one row each.

The library sorts rows by their experts where there are many, and multiplies those of one
expert together: which rows those are depends on what else is in the forward, and so may
their rounding. Here each row meets each of its experts alone: one kernel for all, at
the cost of reading an expert's weights once a row. The shape of a product, [rows, k]
times one row, is that of the forward, whatever the experts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, cast

import mlx.core as mx
import mlx.nn as nn

from kakeya_fleet.engine.backends.mlx_backend.library import model_module

LIBRARY = "switch_layers"
"""mlx-lm's module of experts."""
NAMES = ("switch_mlp", "switch_glu")
"""What its models call the experts of a layer."""

Joined = Callable[[mx.array, mx.array], mx.array]


class LibraryExperts(Protocol):
    """A gated feed-forward layer of experts of the library's."""

    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module
    activation: nn.Module


class Experts(nn.Module):  # type: ignore[misc]
    """The library's experts of one layer, with the same weights by the same names."""

    def __init__(self, library: LibraryExperts) -> None:
        super().__init__()
        self.gate_proj = library.gate_proj
        self.up_proj = library.up_proj
        self.down_proj = library.down_proj
        self._activation = library.activation

    def __call__(self, rows: mx.array, experts: mx.array) -> mx.array:
        """What each of its `experts` [1, n, k] makes of each of `rows`: [1, n, k, hidden]."""
        alone = mx.expand_dims(rows, (-2, -3))
        up = _products(self.up_proj, alone, experts)
        gate = _products(self.gate_proj, alone, experts)
        inner = cast(Joined, self._activation)(up, gate)
        return _products(self.down_proj, inner, experts).squeeze(-2)


def _products(layer: nn.Module, rows: mx.array, experts: mx.array) -> mx.array:
    """Of `rows` [1, n, 1 or k, 1, inputs] with the `layer` of each of their `experts` [1, n, k]."""
    weight: mx.array = layer.weight
    if weight.dtype not in (mx.bfloat16, mx.float16) or mx.default_device() != mx.cpu:
        return cast(Joined, layer)(rows, experts)
    # On the CPU the library gathers float32 alone. A row at a time: its experts are copied.
    turned = weight.swapaxes(-1, -2)
    found = [rows[:, row] @ turned[experts[:, row]] for row in range(experts.shape[1])]
    return mx.stack(found, axis=1)


def is_experts(name: str) -> bool:
    """Whether the weight `name` is one of all experts of a layer."""
    return not {*NAMES}.isdisjoint(name.split("."))


def replace_experts(model: nn.Module) -> None:
    """Puts `Experts` in the place of each of the library's modules of them."""
    library = model_module(LIBRARY).SwitchGLU
    for _, parent in model.named_modules():
        for name in NAMES:
            if type(parent.get(name)) is library:
                setattr(parent, name, Experts(parent[name]))


def expert_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The products of a model's experts, each of one tensor, by name."""
    for path, module in model.named_modules():
        if isinstance(module, Experts):
            for name in ("gate_proj", "up_proj", "down_proj"):
                yield f"{path}.{name}", module[name]
