"""One way to call the text part of every family of mlx-lm's models."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import mlx.core as mx
import mlx.nn as nn

from kakeya_fleet.engine.backends.families import RECURRENT
from kakeya_fleet.engine.backends.mlx_backend.architectures import MlxArchitecture
from kakeya_fleet.engine.backends.mlx_backend.forward_step import LayerFeed
from kakeya_fleet.engine.backends.mlx_backend.layer_plan import recurrent_shape
from kakeya_fleet.engine.backends.mlx_backend.library import (
    RECURRENCE,
    let_in_segments,
    let_in_states,
    model_module,
)
from kakeya_fleet.engine.backends.mlx_backend.recurrent import RecurrentRule


class TextModel:
    """A loaded decoder with its head, whose layers take this engine's caches."""

    def __init__(
        self, architecture: MlxArchitecture, model: nn.Module, dtype: mx.Dtype, *, ranks: int = 1
    ) -> None:
        """`model` as `engine.backends.mlx_backend.checkpoint.load_model` returns it.

        It may be the part of one of `ranks`.
        """
        code, config = architecture.code, architecture.config
        let_in_segments(code.attention)
        self._model = model
        self.layers: list[object] = model.model.layers
        """The decoder layers, in order: the first output of each is its hidden states."""
        self.rules: dict[int, RecurrentRule] = {}
        """The recurrent layers' recurrences by index."""
        if RECURRENT in architecture.layer_kinds:
            update = getattr(model_module(code.module), RECURRENCE)
            let_in_states(code.module)
            shape = recurrent_shape(config, ranks)
            for index, kind in enumerate(architecture.layer_kinds):
                if kind == RECURRENT:
                    layer = model.model.layers[index].linear_attn
                    self.rules[index] = RecurrentRule(layer, shape, dtype, update)
        self._embedding_factor = 1.0
        if code.module == "gemma3_text" and dtype == mx.float32:
            # The library rounds the embedding's scale to bfloat16, in every dtype.
            scale = config.hidden_size**0.5
            self._embedding_factor = scale / mx.array(scale, mx.bfloat16).item()

    def prefix(self, depth: int) -> TextModel:
        """The first `depth` layers with the same head; shares all weights."""
        model = copy.copy(self)
        model.layers = self.layers[:depth]
        model.rules = {layer: rule for layer, rule in self.rules.items() if layer < depth}
        return model

    def run(self, ids: Sequence[int], feeds: list[LayerFeed], *, want_logits: bool) -> mx.array:
        """Logits [1, rows, vocabulary] of the tokens `ids`, else the last hidden states.

        `feeds` are the layers' ways into a cache. Nothing is computed yet.
        """
        inputs = mx.array([ids])
        options = {}
        if self._embedding_factor != 1.0:
            options["input_embeddings"] = (
                self._model.model.embed_tokens(inputs) * self._embedding_factor
            )
        model = self._model if want_logits else self._model.model
        body = self._model.model
        whole, body.layers = body.layers, self.layers
        try:
            found: mx.array = model(inputs, cache=feeds, **options)
        finally:
            body.layers = whole
        return found
