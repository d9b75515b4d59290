"""What a model's queries, keys and values are on texts, and what an error in them would cost.

The model is run in float32 by transformers. Fisher's weights are squared gradients of the sum of a
window's losses, each number's own, as KVQuant takes them (arXiv 2401.18079, section 3.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM

from kakeya_fleet.engine.codecs.calibration import MEND
from kakeya_fleet.engine.codecs.refused import CalibrationRefused
from kakeya_fleet.engine.codecs.rotary import Rotary
from kakeya_fleet.engine.codecs.tile import TILE

SKIPPED = TILE
"""First positions of a window, which no codec packs."""


@dataclass
class Observed:
    """Of all layers, the windows' positions behind the first `SKIPPED` in order."""

    queries: list[np.ndarray]
    """A layer's [windows, heads, n, head_dim], not turned."""
    keys: list[np.ndarray]
    """A layer's [windows, kv_heads, n, head_dim], not turned."""
    values: list[np.ndarray]
    key_weights: list[np.ndarray]
    """Squared gradients of the keys; of the values likewise."""
    value_weights: list[np.ndarray]
    rotary: Rotary


def observed(folder: Path, windows: Sequence[Sequence[int]]) -> Observed:
    """Runs the model in `folder` on windows of equal length, a multiple of 64.

    Raises `CalibrationRefused` for a model whose positions turn keys in another way than plain
    rotary embedding.
    """
    # Its own numbers are bfloat16; gradients want more.
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    kind = model.config.rope_parameters.get("rope_type", "default")
    if kind != "default" or model.config.rope_parameters.get("partial_rotary_factor", 1.0) != 1.0:
        raise CalibrationRefused(f"positions of {folder.name} turn by {kind}, not plainly; {MEND}")
    model.eval().requires_grad_(requires_grad=False)
    seen = [_window(model, window) for window in windows]
    queries, keys, values, key_weights, value_weights = (
        [np.stack([each[part][layer] for each in seen]) for layer in range(len(seen[0][0]))]
        for part in range(5)
    )
    rotary = Rotary(model.model.rotary_emb.inv_freq.float().numpy())
    return Observed(queries, keys, values, key_weights, value_weights, rotary)


def _window(model: Any, window: Sequence[int]) -> list[list[np.ndarray]]:
    """Each layer's queries, keys, values and weights of one window."""
    # Families that norm each head's queries and keys do so before positions turn them.
    is_normed = hasattr(model.model.layers[0].self_attn, "k_norm")
    queries, keys = ("q_norm", "k_norm") if is_normed else ("q_proj", "k_proj")
    outputs: dict[str, list[torch.Tensor]] = {name: [] for name in (queries, keys, "v_proj")}
    hooks = [
        getattr(layer.self_attn, name).register_forward_hook(_keeping(kept, name != queries))
        for layer in model.model.layers
        for name, kept in outputs.items()
    ]
    ids = torch.tensor([list(window)])
    inputs = model.get_input_embeddings()(ids).requires_grad_()
    logits = model(inputs_embeds=inputs, use_cache=False).logits
    loss: Any = functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="sum")
    loss.backward()
    for hook in hooks:
        hook.remove()
    width = model.config.head_dim
    gradients = [[each.grad for each in outputs[name]] for name in (keys, "v_proj")]
    return [
        *([_heads(each.detach(), width) for each in kept] for kept in outputs.values()),
        *(
            [_heads(each.square(), width) for each in part if each is not None]
            for part in gradients
        ),
    ]


def _keeping(kept: list[torch.Tensor], with_gradient: bool) -> Any:  # noqa: FBT001
    """A hook that keeps a projection's outputs."""

    def keep(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> None:
        del module, inputs
        if with_gradient:
            output.retain_grad()
        kept.append(output)

    return keep


def _heads(numbers: Any, width: int) -> np.ndarray:
    """[1, positions, ...] of all heads as [heads, positions, width], without the skipped."""
    seen = numbers[0, SKIPPED:]
    found: np.ndarray = seen.reshape(len(seen), -1, width).transpose(0, 1).numpy()
    return found
