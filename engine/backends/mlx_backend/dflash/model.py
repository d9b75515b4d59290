"""A DFlash drafter's forward: one bidirectional pass over a block behind its context."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx
import numpy as np

from kakeya_fleet.engine.backends.dflash.config import DFlashConfig
from kakeya_fleet.engine.backends.dflash.rotary import Angles
from kakeya_fleet.engine.backends.dflash.tensors import NORM
from kakeya_fleet.engine.backends.dflash.visible import visible_keys
from kakeya_fleet.engine.backends.mlx_backend.dflash.context_cache import ContextCache
from kakeya_fleet.engine.backends.mlx_backend.dflash.layers import (
    ContextProjection,
    DraftLayer,
    draft_layers,
    normed,
    product,
    turned,
)
from kakeya_fleet.engine.backends.mlx_backend.dflash.target import TargetEnds
from kakeya_fleet.engine.contracts.features import ContextVectors


class DFlashModel:
    """The drafter's weights and those of its target's ends. Holds no session's state.

    Each call computes all that it makes: nothing is left for another thread, whose
    stream would not be this one's.
    """

    def __init__(
        self, config: DFlashConfig, weights: Mapping[str, mx.array], target: TargetEnds
    ) -> None:
        """`weights` by their stored names."""
        self._config = config
        self._target = target
        self._mask = self._embedded(config.mask_token_id)
        self._norm = weights[NORM]
        self._layers = draft_layers(weights, config)
        self._rules = tuple(set(config.rules))
        self._projection = ContextProjection(weights, config)
        self._angles = Angles(config)
        mx.eval(self._mask)

    @property
    def config(self) -> DFlashConfig:
        """Its shape."""
        return self._config

    def new_context(self) -> ContextCache:
        """An empty context."""
        config = self._config
        return ContextCache(
            (config.layer_count, config.kv_heads, config.head_dim), config.context_positions
        )

    def extend(self, context: ContextCache, vectors: ContextVectors) -> None:
        """Takes context vectors [n, hidden_size] of the positions behind `context.end`."""
        unseen = max(0, len(vectors) - self._config.context_positions)
        if unseen:
            context.restart(context.end + unseen)
            vectors = vectors[unseen:]
        cos, sin = self._turns(context.end, len(vectors))
        given = mx.array(np.ascontiguousarray(vectors))
        context.extend(self._projection.keys_values(given, cos, sin))

    def draft(self, context: ContextCache, last_token: int, count: int) -> list[int]:
        """The `count` tokens behind `last_token`, whose position is `context.end`."""
        hidden = self.block_hidden(context, last_token, count + 1)
        tokens = mx.argmax(self.logits(hidden[1:]), axis=1)
        mx.eval(tokens)
        found: list[int] = np.array(tokens).tolist()
        return found

    def block_hidden(self, context: ContextCache, last_token: int, rows: int) -> mx.array:
        """What the head takes, [rows, hidden_size], of `last_token` and `rows` - 1 masks.

        Not computed yet.
        """
        masks = mx.broadcast_to(self._mask, (rows - 1, self._config.hidden_size))
        hidden = mx.concatenate([self._embedded(last_token)[None], masks])
        cos, sin = self._turns(context.end, rows)
        seen = {rule: visible_keys(rule, context.first, context.end, rows) for rule in self._rules}
        biases = {
            rule: None if visible.mask is None else mx.array(visible.mask)
            for rule, visible in seen.items()
        }
        for index, layer in enumerate(self._layers):
            queries, keys, values = self._heads(layer, hidden, cos[:, None], sin[:, None])
            before = context.layer(index, seen[layer.rule].first)
            found = attended(queries, before, (keys, values), biases[layer.rule])
            hidden = hidden + product(found, layer.output)
            inner = normed(hidden, layer.inner_norm, self._config.norm_eps)
            gate, up = mx.split(product(inner, layer.gate_up), 2, axis=-1)
            hidden = hidden + product(gate * mx.sigmoid(gate) * up, layer.down)
        return normed(hidden, self._norm, self._config.norm_eps)

    def logits(self, hidden: mx.array) -> mx.array:
        """[n, vocabulary_size] of `hidden` [n, hidden_size]. Not computed yet."""
        return self._target.head.product(hidden)

    def _embedded(self, token_id: int) -> mx.array:
        """The scaled embedding [hidden_size] of an id."""
        return self._target.embedding.row(token_id) * self._config.embedding_scale

    def _turns(self, first: int, count: int) -> tuple[mx.array, mx.array]:
        """Cosines and sines [n, head_dim] of positions `first` onwards."""
        cos, sin = self._angles.of(first, count)
        return mx.array(cos), mx.array(sin)

    def _heads(
        self, layer: DraftLayer, hidden: mx.array, cos: mx.array, sin: mx.array
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Queries, keys and values [heads, rows, head_dim], normed and turned."""
        config = self._config
        rows = normed(hidden, layer.attention_norm, config.norm_eps)
        made = product(rows, layer.queries_keys_values)
        made = made.reshape(len(hidden), -1, config.head_dim)
        turned_count = config.heads + config.kv_heads
        both = normed(made[:, :turned_count], layer.head_norm, config.norm_eps)
        both = turned(both, cos, sin).swapaxes(0, 1)
        values = made[:, turned_count:].swapaxes(0, 1)
        return both[: config.heads], both[config.heads :], values


def attended(
    queries: mx.array,
    before: tuple[mx.array, mx.array],
    block: tuple[mx.array, mx.array],
    mask: mx.array | None,
) -> mx.array:
    """Attention [rows, heads * head_dim] of scaled `queries` [heads, rows, head_dim].

    `before` and `block` are keys and values [kv_heads, n, head_dim] of the context and
    of the block: only their scores are joined, so that the context is never copied.
    `mask` [rows, n of both] is added to scores.
    """
    heads, rows, head_dim = queries.shape
    kv_heads, count, _ = before[0].shape
    grouped = queries.reshape(kv_heads, -1, head_dim)
    scores = mx.concatenate([grouped @ keys.swapaxes(1, 2) for keys, _ in (before, block)], axis=-1)
    if mask is not None:
        scores = (scores.reshape(heads, rows, -1) + mask).reshape(scores.shape)
    weights = mx.softmax(scores, axis=-1)
    output = weights[..., :count] @ before[1] + weights[..., count:] @ block[1]
    return output.reshape(heads, rows, head_dim).swapaxes(0, 1).reshape(rows, -1)
