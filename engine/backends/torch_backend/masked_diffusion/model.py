"""A masked model's predictions at chosen rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel
from transformers.utils import ModelOutput

from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.declaration import Declaration

KeysValues = tuple[Tensor, Tensor]
"""Of one layer, each [1, heads, positions, head size]; keys are rotated."""


@dataclass(frozen=True, slots=True)
class Past:
    """Keys and values of earlier positions, by layer, before a text that starts at `first`."""

    first: int
    layers: tuple[KeysValues, ...]

    def positions(self, length: int) -> Tensor:
        """Those of a text of `length` tokens, int64 [1, length]."""
        return torch.arange(self.first, self.first + length)[None]


class MaskedModel:
    """A loaded bidirectional model. Holds nothing between calls; one thread at a time."""

    def __init__(self, model: PreTrainedModel, declaration: Declaration) -> None:
        self._model = model
        self._rows: Tensor | None = None
        self.mask_token_id = declaration.mask_token_id
        self.prediction_shift = declaration.prediction_shift
        self.vocabulary_size = declaration.blueprint.vocabulary_size
        self.context_length = declaration.blueprint.context_length
        # The head, at 30,000 and more rows of a vocabulary, is dear where nothing is asked.
        model.base_model.register_forward_hook(self._keep_rows)

    @torch.inference_mode()
    def log_probabilities(
        self, ids: Tensor, rows: Sequence[int], past: Past | None = None
    ) -> Tensor:
        """Of each token behind each of `rows`, float32 [texts, len(rows), vocabulary].

        `ids` is int64 [texts, length]; every position attends to every other, and
        to those of `past`, which only decoders take. The mask itself has
        probability 0: it is never what a text says. Which token a row predicts is
        the shift's matter.
        """
        behind = {}
        if past is not None:
            behind = {
                "past_key_values": _cache(past),
                "position_ids": past.positions(ids.shape[1]),
                "use_cache": True,
            }
        self._rows = torch.tensor(list(rows))
        try:
            output = self._model(input_ids=ids, return_dict=True, **behind)
        finally:
            self._rows = None
        logits: Tensor = output.logits[..., : self.vocabulary_size].to(torch.float32)
        logits[..., self.mask_token_id] = -torch.inf
        return logits.log_softmax(-1)

    @torch.inference_mode()
    def keys_values(self, ids: Tensor, past: Past) -> list[KeysValues]:
        """Of the text `ids`, int64 [1, length], by layer; decoders only."""
        cache, length = _cache(past), ids.shape[1]
        self._model.base_model(
            input_ids=ids,
            past_key_values=cache,
            position_ids=past.positions(length),
            use_cache=True,
        )
        return [
            (layer.keys[:, :, -length:], layer.values[:, :, -length:]) for layer in cache.layers
        ]

    def _keep_rows(self, _module: nn.Module, _inputs: object, output: ModelOutput) -> ModelOutput:
        """Leaves the head only the rows that are asked for."""
        if self._rows is not None:
            output["last_hidden_state"] = output["last_hidden_state"][:, self._rows]
        return output


def _cache(past: Past) -> DynamicCache:
    """The library's cache of `past`, which itself is not written to."""
    cache = DynamicCache()
    for index, (keys, values) in enumerate(past.layers):
        cache.update(keys, values, index)
    return cache
