"""First weights: of a drafter the verifier's last layers, of its context vectors a regression.

Random layers first have to learn the scale of the verifier's embeddings and head. Its own last
layers know it, and the keys that its hidden states are found by. What a context vector must carry
to give back keys and values has a closed form: reduced-rank regression (Izenman, 1975).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from kakeya_fleet.engine.backends.torch_backend.projection import Projection
from scripts.train.drafter_model import Drafter
from scripts.train.regression import Regression, layer_scale
from scripts.train.restored_forward import Seen, run_verifier

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")
NORMS = ("input_layernorm", "post_attention_layernorm")


@torch.no_grad()
def start_from(drafter: Drafter, target: PreTrainedModel) -> None:
    """Copy the last layers of `target` into `drafter`, whose heads and hidden size are its.

    A feed-forward with fewer neurons keeps those that weigh most.
    """
    depth, kept = len(target.model.layers), len(drafter.layers)
    drafter.norm.weight.copy_(target.model.norm.weight)
    first = depth - kept
    for layer, source in zip(drafter.layers, target.model.layers[first:], strict=True):
        for name in ATTENTION:
            if hasattr(source.self_attn, name):
                getattr(layer.self_attn, name).weight.copy_(getattr(source.self_attn, name).weight)
        for name in NORMS:
            getattr(layer, name).weight.copy_(getattr(source, name).weight)
        _copy_neurons(layer.mlp, source.mlp)


def without_version_2(drafter: Drafter) -> Drafter:
    """A drafter of version 1 that has the weights which both versions have."""
    smaller = Drafter(replace(drafter.shape, version_2=None))
    kept = smaller.state_dict().keys()
    weights = {name: tensor for name, tensor in drafter.state_dict().items() if name in kept}
    smaller.load_state_dict(weights)
    return smaller


def _copy_neurons(mlp: Any, source: Any) -> None:
    """The neurons with the largest product of the norms of their weights."""
    gate, up, down = source.gate_proj.weight, source.up_proj.weight, source.down_proj.weight
    weight = gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)
    count = min(mlp.gate_proj.out_features, len(weight))
    chosen = weight.topk(count).indices.sort().values
    mlp.gate_proj.weight[:count] = gate[chosen]
    mlp.up_proj.weight[:count] = up[chosen]
    mlp.down_proj.weight[:, :count] = down[:, chosen]


@torch.no_grad()
def start_context(drafter: Drafter, target: PreTrainedModel, rows: Sequence[torch.Tensor]) -> None:
    """Set `fc` to the best linear code of the taps for the keys and values of `rows`, [n] each.

    The code is turned so that a vector lies as near as it can to what the verifier's last layer
    reads, or to the tap that is nearest to that, which the drafter's layers were copied to read.
    """
    hidden = drafter.shape.hidden
    taps_read = drafter.shape.taps
    found = _fitted_on(rows, target, taps_read, lambda taps: taps)
    scale = layer_scale(found.output_squares, len(target.model.layers))
    fitted = found.fitted() / scale
    code = (fitted @ found.directions(fitted, hidden)).T
    last_read = len(target.model.layers) - 2
    read = min(range(len(taps_read)), key=lambda at: abs(taps_read[at] - last_read))
    last = found.products[read * hidden : (read + 1) * hidden]
    left, _, right = torch.linalg.svd(last @ code.T)
    drafter.fc.weight.copy_(left @ right @ code)


@torch.no_grad()
def start_projection(projection: Projection, found: Regression) -> None:
    """Set f_theta to what was `found` by `context_regression`, with a rank to the best of it."""
    fitted = found.fitted()
    if projection.down is None:
        projection.up.weight.copy_(fitted.T)
        return
    down, up = found.cut(fitted, len(projection.config.layers), projection.config.rank)
    projection.down.weight.copy_(down)
    projection.up.weight.copy_(up)


def context_regression(
    drafter: Drafter, target: PreTrainedModel, rows: Iterable[torch.Tensor]
) -> Regression:
    """The verifier's keys and values of rows, [n] each, on the drafter's context vectors."""
    return _fitted_on(rows, target, drafter.shape.taps, drafter.encode)


@torch.no_grad()
def _fitted_on(
    rows: Iterable[torch.Tensor],
    target: PreTrainedModel,
    taps: tuple[int, ...],
    inputs_of: Callable[[torch.Tensor], torch.Tensor],
) -> Regression:
    found = None
    for row in rows:
        seen = run_verifier(target, row[None], taps)
        inputs, wanted = inputs_of(seen.taps)[0], _keys_values(target, seen)
        if found is None:
            found = Regression(inputs.shape[1], wanted.shape[1], inputs.device)
        found.add(inputs, wanted)
    if found is None:
        raise ValueError("there are no rows to fit on")
    return found


def _keys_values(target: PreTrainedModel, seen: Seen) -> torch.Tensor:
    """What f_theta gives before norm and rotation, [n, outputs], of one row.

    Keys are divided by the norm's weights, which come after the map: only their direction counts.
    """
    parts = []
    layers = zip(target.model.layers, seen.plain_keys, seen.keys_values, strict=True)
    for layer, keys, (_, values) in layers:
        norm = getattr(layer.self_attn, "k_norm", None)
        plain = keys if norm is None else keys / norm.weight
        parts += [part[0].transpose(0, 1).flatten(1) for part in (plain, values)]
    return torch.cat(parts, dim=1)
