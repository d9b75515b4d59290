"""The decoder of the plain families, with few operator calls and little Python between them.

Llama, Mistral, Qwen2 and Qwen3 are one architecture: attention behind a norm,
then a gated feed-forward layer behind a norm, each added to its input. A step
of a small model spends more time around its products than in them. Here
products of the same input are one, angles and masks are made once a forward,
and nothing asks per layer what is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from kakeya_fleet.engine.backends.torch_backend.activation import bare, gated
from kakeya_fleet.engine.backends.torch_backend.attention import LayerSegments, segment_attention
from kakeya_fleet.engine.backends.torch_backend.half_linear import HalfLinear
from kakeya_fleet.engine.backends.torch_backend.packed_linear import Made, Read, taken
from kakeya_fleet.engine.backends.torch_backend.plain_families import (
    JOINT,
    LibraryAttention,
    LibraryLayer,
    LibraryNorm,
)
from kakeya_fleet.engine.backends.torch_backend.rms_norm import RmsNorm
from kakeya_fleet.engine.backends.torch_backend.rotary import Angles, Rotary


class AttentionStep(Protocol):
    """A forward's way into the caches; see `engine.backends.torch_backend.forward_step`."""

    rows: int
    """Of the forward's rows so many are tokens; those behind them fill it up."""

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int
    ) -> tuple[LayerSegments, LayerSegments]:
        """Writes keys and values [1, kv_heads, rows, head_dim]; the layer's segments."""
        ...


Take = Callable[[object, tuple[str, ...]], nn.Module]
"""Makes one layer of the linear layers of a parent that have these names, who loses them."""


class PlainAttention(nn.Module):
    """A layer's attention: queries, keys and values in one product."""

    def __init__(self, attention: LibraryAttention, take: Take) -> None:
        """Takes the weights of the library's `attention`, which is of no use afterwards."""
        super().__init__()
        self.layer_idx = attention.layer_idx
        self._head_dim = attention.head_dim
        self._scaling = attention.scaling
        self._heads = attention.q_proj.out_features // self._head_dim
        self._kv_heads = attention.k_proj.out_features // self._head_dim
        # A plain object: asking a module for its children takes longer than a small product's call.
        self._parts = (take(attention, JOINT[0]), take(attention, ("o_proj",)))
        self.input_scale = _folded(self._parts[0])
        """What `forward` takes its input times: the norm before it does that in passing."""
        self._norms: tuple[RmsNorm, ...] = ()
        query_norm: LibraryNorm | None = getattr(attention, "q_norm", None)
        if query_norm is not None:
            key_norm: LibraryNorm = getattr(attention, "k_norm")  # noqa: B009 - only Qwen3's has it
            weights = (
                query_norm.weight.expand(self._heads, -1),
                key_norm.weight.expand(self._kv_heads, -1),
            )
            self._norms = (RmsNorm(torch.cat(weights), query_norm.variance_epsilon),)

    def forward(self, normed: Tensor, angles: Angles, step: AttentionStep) -> Tensor:
        """What attention adds to [1, rows, hidden]."""
        product, output = self._parts
        heads, kv_heads = self._heads, self._kv_heads
        rows = normed.shape[1]
        all_heads = product(normed).view(1, rows, heads + 2 * kv_heads, self._head_dim)
        turned, values = all_heads.split_with_sizes((heads + kv_heads, kv_heads), 2)
        for norm in self._norms:
            turned = norm(turned)
        query, keys = angles.rotate_(turned).transpose(1, 2).split_with_sizes((heads, kv_heads), 1)
        segments, _ = step.update(keys, values.transpose(1, 2), self.layer_idx)
        mixed, _ = segment_attention(self, query, segments, segments, None, scaling=self._scaling)
        added: Tensor = output(mixed.reshape(1, rows, -1))
        return added


class PlainLayer(nn.Module):
    """A decoder layer of a plain family."""

    def __init__(self, layer: LibraryLayer, take: Take) -> None:
        """Takes the weights of the library's `layer`, which is of no use afterwards."""
        super().__init__()
        self._activation = bare(layer.mlp.act_fn)
        attention = PlainAttention(layer.self_attn, take)
        gate_up = take(layer.mlp, JOINT[1])
        self._parts = (
            _norm(layer.input_layernorm, attention.input_scale),
            attention,
            _norm(layer.post_attention_layernorm, _folded(gate_up)),
            gate_up,
            take(layer.mlp, ("down_proj",)),
        )

    def forward(self, hidden: Tensor, angles: Angles, step: AttentionStep) -> Tensor:
        """The next layer's hidden states [1, rows, hidden], in memory of their own."""
        before, attention, between, gate_up, down = self._parts
        hidden = hidden + attention(before(hidden), angles, step)
        inner = gated(self._activation, gate_up(between(hidden)))
        result: Tensor = down(inner).add_(hidden)
        return result


class PlainDecoder:
    """A plain family's model between the token ids and the head."""

    def __init__(self, model: PreTrainedModel) -> None:
        """`model`, whose layers are `simplified`."""
        body = model.model
        self._embedding: Tensor = body.embed_tokens.weight
        self._norm = _norm(body.norm)
        rotary = body.rotary_emb
        self._rotary = Rotary(rotary.inv_freq, rotary.attention_scaling, self._embedding.dtype)

    def hidden(
        self, layers: nn.ModuleList, input_ids: Tensor, position_ids: Tensor, step: AttentionStep
    ) -> Tensor:
        """See `engine.backends.torch_backend.text_model.TextModel.hidden`; through `layers`."""
        hidden = functional.embedding(input_ids, self._embedding)
        angles = self._rotary.angles(position_ids)
        for layer in layers:
            hidden = layer(hidden, angles, step)
        normed: Tensor = self._norm(hidden)
        return normed


def simplified(layer: nn.Module, read: Read, made: Made) -> nn.Module:
    """What takes the place of a layer of a model that `is_plain`, its norms loaded.

    `read` and `made` are those of `packed_linear.taken`; the library's layers are freed.
    """
    return PlainLayer(cast(LibraryLayer, layer), partial(taken, read=read, made=made))


def _folded(linear: nn.Module) -> float:
    """The scale of the inputs of `linear`, which the norm before it applies from now on."""
    return linear.fold() if isinstance(linear, HalfLinear) else 1


def _norm(norm: LibraryNorm, scale: float = 1) -> RmsNorm:
    return RmsNorm(norm.weight, norm.variance_epsilon, scale)
