"""One way to call the text part of every family of the library's models."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from kakeya_fleet.engine.backends.architectures import Architecture
from kakeya_fleet.engine.backends.torch_backend.activation import PiecewiseActivation
from kakeya_fleet.engine.backends.torch_backend.delta_rule import DeltaRule
from kakeya_fleet.engine.backends.torch_backend.experts import Experts
from kakeya_fleet.engine.backends.torch_backend.plain_decoder import (
    AttentionStep,
    PlainDecoder,
    PlainLayer,
)
from kakeya_fleet.engine.backends.torch_backend.recurrent_mixing import RecurrentMixing

NO_MASKS = {"full_attention": None, "sliding_attention": None, "linear_attention": None}
"""Masks come with the cache's segments: given these, the library builds none."""


class TextModel:
    """A loaded decoder with its head.

    Rows of a forward, [1, rows], may belong to several sessions: all but the
    layers' way into the cache, the `step`, is computed row by row.
    """

    def __init__(self, architecture: Architecture, model: PreTrainedModel) -> None:
        """`model` as `engine.backends.torch_backend.checkpoint.load_model` returns it."""
        config = architecture.config
        self.layers: nn.ModuleList = model.model.layers
        """The decoder layers, in order: the first output of each is its hidden states."""
        self._body = model.model
        plain = all(isinstance(layer, PlainLayer) for layer in self.layers)
        self._decoder = PlainDecoder(model) if plain else None
        self._head = model.lm_head
        self._experts = [module for module in model.modules() if isinstance(module, Experts)]
        self._masks = NO_MASKS if getattr(config, "layer_types", None) is not None else None
        self._softcap: float | None = getattr(config, "final_logit_softcapping", None)
        self._tanh = PiecewiseActivation(nn.Tanh())
        # Gemma 4 drops rows before its shared layers for any number of rows to keep,
        # 0 included, but not for a list of rows.
        shares = getattr(config, "num_kv_shared_layers", 0) > 0
        self._options: dict[str, Tensor] = {}
        if shares:
            place = model.model.embed_tokens.weight.device
            self._options["logits_to_keep"] = torch.zeros(0, dtype=torch.long, device=place)

    def prefix(self, depth: int) -> TextModel:
        """The first `depth` layers with the same head; shares all weights."""
        model = copy.copy(self)
        model.layers = self.layers[:depth]
        return model

    def hidden(self, input_ids: Tensor, position_ids: Tensor, step: AttentionStep) -> Tensor:
        """The last layer's normed hidden states [1, rows, hidden].

        `input_ids` and `position_ids` are [1, rows]. Attention layers call
        `step.update(keys, values, layer_idx)`, recurrent ones `step.recurrent(layer_idx)`.
        """
        if self._decoder is not None:
            return self._decoder.hidden(self.layers, input_ids, position_ids, step)
        for experts in self._experts:
            experts.rows = step.rows
        body = self._body
        whole, body.layers = body.layers, self.layers
        try:
            hidden: Tensor = body(
                input_ids=input_ids,
                position_ids=position_ids,
                past_key_values=step,
                attention_mask=self._masks,
                use_cache=False,
                **self._options,
            ).last_hidden_state
        finally:
            body.layers = whole
        return hidden

    def delta_rule(self, layer: int) -> DeltaRule:
        """How the state of the recurrent layer `layer` moves."""
        mixing = self.layers[layer].linear_attn
        if not isinstance(mixing, RecurrentMixing):
            raise TypeError(f"layer {layer} is not recurrent")
        return mixing.rule

    def logits(self, hidden: Tensor) -> Tensor:
        """The logits [1, n, vocabulary] of hidden states [1, n, hidden], in their dtype."""
        logits: Tensor = self._head(hidden)
        if self._softcap is None:
            return logits
        capped: Tensor = self._tanh(logits / self._softcap)
        return capped * self._softcap
