"""A DFlash drafter's forward: one bidirectional pass over a block behind its context."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig
from kakeya_fleet.engine.backends.dflash.tensors import NORM
from kakeya_fleet.engine.backends.dflash.visible import visible_keys
from kakeya_fleet.engine.backends.torch_backend.dflash.context_cache import ContextCache
from kakeya_fleet.engine.backends.torch_backend.dflash.layers import (
    ContextProjection,
    DraftLayer,
    Norm,
    draft_layers,
    product,
    turned,
)
from kakeya_fleet.engine.backends.torch_backend.dflash.rotary import Rotary
from kakeya_fleet.engine.backends.torch_backend.dflash.target import TargetEnds
from kakeya_fleet.engine.backends.torch_backend.rms_norm import RmsNorm
from kakeya_fleet.engine.contracts.features import ContextVectors


class DFlashModel:
    """The drafter's weights and those of its target's ends. Holds no session's state."""

    def __init__(
        self, config: DFlashConfig, weights: Mapping[str, Tensor], target: TargetEnds
    ) -> None:
        """`weights` by their stored names."""
        self.config = config
        self._embedding = target.embedding
        self._masks = self._embedded(config.mask_token_id).repeat(config.block_size, 1)
        self._head = product(target.head, config.block_size)
        self._norm: Norm = RmsNorm(weights[NORM], config.norm_eps).forward
        self._layers = draft_layers(weights, config)
        self._rules = tuple(set(config.rules))
        self._projection = ContextProjection(weights, config)
        self._rotary = Rotary(config)

    def new_context(self) -> ContextCache:
        """An empty context."""
        config = self.config
        return ContextCache(
            (config.layer_count, config.kv_heads, config.head_dim),
            self.config.context_positions,
            config.block_size,
        )

    @torch.inference_mode()
    def extend(self, context: ContextCache, vectors: ContextVectors) -> None:
        """Takes context vectors [n, hidden_size] of the positions behind `context.end`."""
        unseen = max(0, len(vectors) - self.config.context_positions)
        if unseen:
            context.restart(context.end + unseen)
            vectors = vectors[unseen:]
        cos, sin = self._rotary.angles(context.end, len(vectors))
        given = torch.from_numpy(np.ascontiguousarray(vectors))
        context.extend(self._projection.keys_values(given, cos, sin))

    @torch.inference_mode()
    def draft(self, context: ContextCache, last_token: int, count: int) -> list[int]:
        """The `count` tokens behind `last_token`, whose position is `context.end`."""
        hidden = self.block_hidden(context, last_token, count + 1)
        logits = self.logits(hidden[1:])
        # NumPy compares with vector instructions, torch does not: a tenth of the time.
        tokens: list[int] = logits.numpy().argmax(axis=1).tolist()
        return tokens

    @torch.inference_mode()
    def block_hidden(self, context: ContextCache, last_token: int, rows: int) -> Tensor:
        """What the head takes, [rows, hidden_size], of `last_token` and `rows` - 1 masks."""
        hidden = self._masks[:rows].clone()
        hidden[0] = self._embedded(last_token)
        angles = self._rotary.angles(context.end, rows)
        cos, sin = angles[0][:, None], angles[1][:, None]
        context.make_room(rows)
        seen = {rule: visible_keys(rule, context.first, context.end, rows) for rule in self._rules}
        masks = {
            rule: None if visible.mask is None else torch.from_numpy(visible.mask)
            for rule, visible in seen.items()
        }
        for index, layer in enumerate(self._layers):
            made = layer.queries_keys_values(hidden)
            queries, keys, values = self._turned_heads(made, layer, cos, sin)
            visible = seen[layer.rule]
            keys, values = context.with_block(index, visible.first, keys, values)
            hidden += layer.output(attended(queries, keys, values, masks[layer.rule]))
            gate, up = layer.gate_up(hidden).chunk(2, dim=-1)
            hidden += layer.down(functional.silu(gate).mul_(up))
        return self._norm(hidden)

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, vocabulary_size] of `hidden` [n, hidden_size]."""
        return self._head(hidden)

    def _embedded(self, token_id: int) -> Tensor:
        """The scaled embedding [hidden_size] of an id."""
        return self._embedding[token_id].to(torch.float32) * self.config.embedding_scale

    def _turned_heads(
        self, made: Tensor, layer: DraftLayer, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [heads, rows, head_dim] of `made`, normed and turned."""
        heads = self.config.heads
        turned_count = heads + self.config.kv_heads
        made = made.view(len(made), -1, self.config.head_dim)
        both = turned(layer.head_norm(made[:, :turned_count]), cos, sin).transpose(0, 1)
        return both[:heads], both[heads:], made[:, turned_count:].transpose(0, 1)


def attended(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention [rows, heads * head_dim] of scaled `queries` [heads, rows, head_dim].

    `keys` and `values` [kv_heads, n, head_dim]; `mask` [rows, n] is added to scores.
    """
    heads, rows, head_dim = queries.shape
    kv_heads = len(keys)
    scores = torch.bmm(queries.reshape(kv_heads, -1, head_dim), keys.transpose(1, 2))
    if mask is not None:
        scores = (scores.view(heads, rows, -1) + mask).view(scores.shape)
    output = torch.bmm(torch.softmax(scores, dim=-1), values)
    return output.view(heads, rows, head_dim).transpose(0, 1).reshape(rows, -1)
