"""First weights: of a drafter the verifier's last layers, of its context vectors a regression.

Random layers first have to learn the scale of the verifier's embeddings and head. Its own last
layers know it, and the keys that its hidden states are found by. What a context vector must carry
to give back keys and values has a closed form: reduced-rank regression (Izenman, 1975).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from kakeya_fleet.engine.backends.torch_backend.projection import Projection
from scripts.train.drafter_model import Drafter
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


def _copy_neurons(mlp: Any, source: Any) -> None:
    """The neurons with the largest product of the norms of their weights."""
    gate, up, down = source.gate_proj.weight, source.up_proj.weight, source.down_proj.weight
    weight = gate.norm(dim=1) * up.norm(dim=1) * down.norm(dim=0)
    count = min(mlp.gate_proj.out_features, len(weight))
    chosen = weight.topk(count).indices.sort().values
    mlp.gate_proj.weight[:count] = gate[chosen]
    mlp.up_proj.weight[:count] = up[chosen]
    mlp.down_proj.weight[:, :count] = down[:, chosen]


RIDGE = 1e-6
"""Of the mean squared input, added to a regression's normal matrix."""


@torch.no_grad()
def start_context(drafter: Drafter, target: PreTrainedModel, rows: Sequence[torch.Tensor]) -> None:
    """Set `fc` to the best linear code of the taps for the keys and values of `rows`, [n] each.

    The code is turned so that a vector lies as near as it can to what the verifier's last layer
    reads, or to the tap that is nearest to that, which the drafter's layers were copied to read.
    """
    hidden = drafter.shape.hidden
    seen = [run_verifier(target, row[None], drafter.shape.taps) for row in rows]
    taps = torch.cat([one.taps[0] for one in seen]).double()
    wanted = torch.cat([_keys_values(target, one) for one in seen])
    scale = _scale(wanted, len(target.model.layers))
    fitted = _regression(taps, wanted / scale)
    code = (fitted @ _directions(taps, fitted, hidden)).T
    last_read = len(target.model.layers) - 2
    taps_read = drafter.shape.taps
    read = min(range(len(taps_read)), key=lambda at: abs(taps_read[at] - last_read))
    last = taps[:, read * hidden : (read + 1) * hidden]
    left, _, right = torch.linalg.svd(last.T @ (taps @ code.T))
    drafter.fc.weight.copy_(left @ right @ code)


@torch.no_grad()
def start_projection(
    projection: Projection, drafter: Drafter, target: PreTrainedModel, rows: Sequence[torch.Tensor]
) -> None:
    """Set f_theta to the regression of the verifier's keys and values on the drafter's vectors.

    With a rank to the best of that rank.
    """
    seen = [run_verifier(target, row[None], drafter.shape.taps) for row in rows]
    vectors = torch.cat([drafter.encode(one.taps)[0] for one in seen]).double()
    wanted = torch.cat([_keys_values(target, one) for one in seen])
    if projection.down is None:
        projection.up.weight.copy_(_regression(vectors, wanted).T)
        return
    fitted = _regression(vectors, wanted)
    down, up = cut(vectors, fitted, len(target.model.layers), projection.config.rank)
    projection.down.weight.copy_(down)
    projection.up.weight.copy_(up)


@torch.no_grad()
def context_vectors(
    drafter: Drafter, target: PreTrainedModel, rows: Sequence[torch.Tensor]
) -> torch.Tensor:
    """The drafter's of all of the rows, [n] each, together [positions, hidden] in float64."""
    seen = [run_verifier(target, row[None], drafter.shape.taps) for row in rows]
    return torch.cat([drafter.encode(one.taps)[0] for one in seen]).double()


def cut(
    inputs: torch.Tensor, full: torch.Tensor, layers: int, rank: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Down [rank, inputs] and up [outputs, rank] of the nearest map of a rank.

    Nearest to `full` [inputs, outputs] on what it makes of `inputs` [n, inputs].
    """
    scale = _scale(inputs @ full, layers)
    directions = _directions(inputs, full / scale, rank)
    return (full / scale @ directions).T, directions * scale[:, None]


def _scale(made: torch.Tensor, layers: int) -> torch.Tensor:
    """By which each layer's keys, and its values, count as much as any other's, [outputs]."""
    size = made.shape[1] // (2 * layers)
    return made.square().mean(0).view(-1, size).mean(1).sqrt().repeat_interleave(size)


def _directions(inputs: torch.Tensor, fitted: torch.Tensor, count: int) -> torch.Tensor:
    """The principal directions of inputs [n, inputs] @ fitted, [outputs, count].

    By way of the inputs, which are fewer than the outputs: with normal = L L^T, those of L^T
    fitted.
    """
    seen = torch.linalg.cholesky(_normal(inputs)).T @ fitted
    values, left = torch.linalg.eigh(seen @ seen.T)
    found: torch.Tensor = seen.T @ left[:, -count:] / values[-count:].clamp(min=1e-30).sqrt()
    return found


def _regression(inputs: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
    """The matrix [inputs, outputs] with the least squared error, by the normal equations."""
    solution: torch.Tensor = torch.linalg.solve(_normal(inputs), inputs.T @ outputs)
    return solution


def _normal(inputs: torch.Tensor) -> torch.Tensor:
    """The normal matrix of a regression, [inputs, inputs]."""
    normal = inputs.T @ inputs
    normal.diagonal().add_(RIDGE * normal.diagonal().mean())
    return normal


def _keys_values(target: PreTrainedModel, seen: Seen) -> torch.Tensor:
    """What f_theta gives before norm and rotation, [n, outputs] float64, of one row.

    Keys are divided by the norm's weights, which come after the map: only their direction counts.
    """
    parts = []
    layers = zip(target.model.layers, seen.plain_keys, seen.keys_values, strict=True)
    for layer, keys, (_, values) in layers:
        norm = getattr(layer.self_attn, "k_norm", None)
        plain = keys if norm is None else keys / norm.weight
        parts += [part[0].transpose(0, 1).flatten(1) for part in (plain, values)]
    return torch.cat(parts, dim=1).double()
