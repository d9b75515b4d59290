"""The products and norms of a drafter, fused into as few operations as they can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig, DraftLayerRule
from kakeya_fleet.engine.backends.torch_backend.half_linear import HalfLinear
from kakeya_fleet.engine.backends.torch_backend.packed_linear import can_pack, packed
from kakeya_fleet.engine.backends.torch_backend.rms_norm import RmsNorm

Product = Callable[[Tensor], Tensor]
Norm = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class DraftLayer:
    """One layer. `head_norm` is of queries and keys [n, heads + kv_heads, head_dim].

    The scale of scores, head_dim ** -0.5, is part of the queries' weight.
    """

    rule: DraftLayerRule
    queries_keys_values: Product
    head_norm: Norm
    output: Product
    gate_up: Product
    down: Product


def product(weight: Tensor, rows: int) -> Product:
    """Multiplies [n, in] float32 by the transposed `weight` [out, in], n about `rows`.

    In the weight's number format, with a result in float32; float32 weights are
    kept in half the bytes where that loses nothing.
    """
    linear = _linear(weight, rows)
    if weight.dtype == torch.float32:
        return linear.forward
    return lambda values: linear(values.to(weight.dtype)).to(torch.float32)


def normed_product(norm: Tensor, eps: float, weight: Tensor, rows: int) -> Product:
    """`product` of what the root mean square norm of weight `norm` [in] makes of its input."""
    linear = _linear(weight, rows)
    if weight.dtype != torch.float32:
        alone, multiply = RmsNorm(norm, eps).forward, product(weight, rows)
        return lambda values: multiply(alone(values))
    scaled = RmsNorm(norm, eps, linear.fold() if isinstance(linear, HalfLinear) else 1).forward
    forward = linear.forward
    return lambda values: forward(scaled(values))


def _linear(weight: Tensor, rows: int) -> nn.Module:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    return packed(linear, rows) if can_pack(weight.dtype) else linear


def draft_layers(weights: Mapping[str, Tensor], config: DFlashConfig) -> tuple[DraftLayer, ...]:
    """All layers, from a checkpoint's tensors by their stored names."""
    return tuple(
        _layer(weights, f"layers.{index}.", config, rule) for index, rule in enumerate(config.rules)
    )


def _layer(
    weights: Mapping[str, Tensor], name: str, config: DFlashConfig, rule: DraftLayerRule
) -> DraftLayer:
    def weight(part: str) -> Tensor:
        return weights[f"{name}{part}.weight"]

    def normed(norm: str, *parts: str) -> Product:
        joint = torch.cat([weight(part) for part in parts])
        return normed_product(weight(norm), config.norm_eps, joint, config.block_size)

    queries = weight("self_attn.q_norm").expand(config.heads, -1) * config.head_dim**-0.5
    keys = weight("self_attn.k_norm").expand(config.kv_heads, -1)
    return DraftLayer(
        rule=rule,
        queries_keys_values=normed(
            "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"
        ),
        head_norm=RmsNorm(torch.cat((queries, keys)), config.norm_eps).forward,
        output=product(weight("self_attn.o_proj"), config.block_size),
        gate_up=normed("post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj"),
        down=product(weight("mlp.down_proj"), config.block_size),
    )


class ContextProjection:
    """Keys and values of context positions in all layers, by one product.

    Those of a position are a function of its vector and its place alone.
    """

    def __init__(self, weights: Mapping[str, Tensor], config: DFlashConfig) -> None:
        layers = range(config.layer_count)
        parts = [
            weights[f"layers.{index}.self_attn.{part}.weight"]
            for part in ("k_proj", "v_proj")
            for index in layers
        ]
        self._product = product(torch.cat(parts), config.block_size)
        norms = [weights[f"layers.{index}.self_attn.k_norm.weight"] for index in layers]
        self._norm = RmsNorm(torch.stack(norms)[:, None, :], config.norm_eps).forward
        self._shape = (2, config.layer_count, config.kv_heads, config.head_dim)

    def keys_values(self, vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[2, layers, kv_heads, n, head_dim] of `vectors` [n, hidden_size], keys first.

        `cos` and `sin` [n, head_dim] are the angles of their positions.
        """
        made = self._product(vectors).view(len(vectors), *self._shape)
        keys = turned(self._norm(made[:, 0]), cos[:, None, None], sin[:, None, None])
        return torch.stack((keys, made[:, 1])).permute(0, 2, 3, 1, 4)


def turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`heads` [..., head_dim] turned by angles of `Rotary.angles` that broadcast against it."""
    return (heads * cos).addcmul_(heads.roll(heads.shape[-1] // 2, -1), sin)
