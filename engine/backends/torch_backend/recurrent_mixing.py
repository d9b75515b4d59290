"""Qwen3.5's recurrent layers over this engine's own states.

The projections stay the library's, over all rows of a forward. What mixes
tokens is `DeltaRule`, session by session.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from kakeya_fleet.engine.backends.torch_backend.activation import PiecewiseGates
from kakeya_fleet.engine.backends.torch_backend.delta_rule import DeltaRule
from kakeya_fleet.engine.backends.torch_backend.recurrent import RecurrentState
from kakeya_fleet.engine.backends.torch_backend.recurrent_shape import RecurrentShape

if TYPE_CHECKING:
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet

LIBRARY = "transformers.models.qwen3_5.modeling_qwen3_5"
"""The library's module of these layers; there once a model of the family was built."""


class RecurrentStep(Protocol):
    """What a recurrent layer needs of a forward's cache."""

    def recurrent(self, layer_idx: int) -> list[tuple[slice, RecurrentState]]:
        """Each session's rows in the forward, and its state of the layer."""
        ...


class RecurrentMixing(nn.Module):
    """Takes the place of `layer` in a decoder layer, with the same weights."""

    def __init__(self, layer: Qwen3_5GatedDeltaNet, shape: RecurrentShape) -> None:
        super().__init__()
        self.rule = DeltaRule(layer, shape)
        self._layer = layer
        self._norm = PiecewiseGates(layer.norm)

    def forward(self, hidden_states: Tensor, cache_params: RecurrentStep, **_: object) -> Tensor:
        """The layer's output [1, rows, hidden] of `hidden_states`, same shape.

        Rows of no session touch no state; theirs are of no meaning.
        """
        layer, shape = self._layer, self.rule.shape
        count = hidden_states.shape[1]
        inputs = layer.in_proj_qkv(hidden_states)[0]
        gate = layer.in_proj_z(hidden_states)
        gates = torch.stack((layer.in_proj_b(hidden_states), layer.in_proj_a(hidden_states)), dim=2)
        mixed = inputs.new_zeros((count, shape.value_heads, shape.value_dim))
        for rows, state in cache_params.recurrent(layer.layer_idx):
            mixed[rows] = state.extend(inputs[rows], gates[0, rows]).to(mixed.dtype)
        normed = self._norm(mixed.view(-1, shape.value_dim), gate.reshape(-1, shape.value_dim))
        output: Tensor = layer.out_proj(normed.view(1, count, -1))
        return output


def fix_recurrent(model: nn.Module, dtype: torch.dtype) -> None:
    """Replaces the mixing of Qwen3.5's recurrent layers and wraps its gated attention, in place.

    The weights must be loaded already.
    """
    library = sys.modules.get(LIBRARY)
    if library is None:
        return
    mixing, attention = library.Qwen3_5GatedDeltaNet, library.Qwen3_5Attention
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, mixing) and not isinstance(module, RecurrentMixing):
                shape = RecurrentShape.of(model.config, dtype)
                setattr(module, name, RecurrentMixing(child, shape))
            elif isinstance(child, attention) and not isinstance(module, PiecewiseGates):
                setattr(module, name, PiecewiseGates(child))
