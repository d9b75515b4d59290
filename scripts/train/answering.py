"""Many answers at a time of a verifier of Qwen3's or Llama's form, on any device.

Rows are padded on the left, so that all write their next token at the same place. The keys and
values of a batch lie in one tensor, [layers, 2, rows, kv_heads, places, head_dim].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import PreTrainedModel

from scripts.train.drafter_model import rotate

LOOK_EVERY = 16
"""Steps between two looks at whether all rows have ended: a look waits for the device."""


class _Rows:
    """A batch under way: what was read of it, and where its rows stand."""

    def __init__(self, model: PreTrainedModel, prompts: Sequence[np.ndarray], most: int) -> None:
        config, device = model.config, model.device
        self.model = model
        self.width = max(len(prompt) for prompt in prompts)
        self.places = self.width + most
        self.pads = torch.tensor([self.width - len(prompt) for prompt in prompts], device=device)
        tokens = np.zeros((len(prompts), self.places), np.int64)
        for row, prompt in enumerate(prompts):
            tokens[row, self.width - len(prompt) : self.width] = prompt
        self.tokens = torch.from_numpy(tokens).to(device)
        self.cache = torch.zeros(
            config.num_hidden_layers,
            2,
            len(prompts),
            config.num_key_value_heads,
            self.places,
            config.head_dim,
            dtype=model.dtype,
            device=device,
        )

    def logits(self, first: int, end: int) -> torch.Tensor:
        """Of the last of the places `first` to `end` - 1, which are read: [rows, vocabulary]."""
        body, device = self.model.model, self.tokens.device
        hidden = body.embed_tokens(self.tokens[:, first:end])
        places = torch.arange(end, device=device)
        positions = (places[first:] - self.pads[:, None]).clamp(min=0)
        cos, sin = body.rotary_emb(hidden, positions)
        rotation = torch.stack([cos, sin], dim=2)[:, None]
        seen = places <= places[first:, None]
        # A place before the row's first sees itself alone, as it must see something.
        own = places == places[first:, None]
        seen = (seen & (places >= self.pads[:, None, None])) | own
        for index, layer in enumerate(body.layers):
            hidden = self._layer(index, layer, hidden, rotation, seen[:, None], first, end)
        last: torch.Tensor = self.model.lm_head(body.norm(hidden[:, -1]))
        return last.float()

    def _layer(
        self,
        index: int,
        layer: Any,
        hidden: torch.Tensor,
        rotation: torch.Tensor,
        seen: torch.Tensor,
        first: int,
        end: int,
    ) -> torch.Tensor:
        attention = layer.self_attn
        normed = layer.input_layernorm(hidden)
        split = (*normed.shape[:2], -1, attention.head_dim)
        queries = attention.q_proj(normed).view(split)
        keys = attention.k_proj(normed).view(split)
        if hasattr(attention, "q_norm"):
            queries, keys = attention.q_norm(queries), attention.k_norm(keys)
        queries = rotate(queries.transpose(1, 2), rotation)
        cache = self.cache[index]
        cache[0, :, :, first:end] = rotate(keys.transpose(1, 2), rotation)
        cache[1, :, :, first:end] = attention.v_proj(normed).view(split).transpose(1, 2)
        keys, values = cache[0, :, :, :end], cache[1, :, :, :end]
        if end - first > 1:
            found = functional.scaled_dot_product_attention(
                queries, keys, values, attn_mask=seen, enable_gqa=True
            )
        else:
            # The heads that share keys are rows of one product: keys are read once.
            grouped = queries.view(len(queries), keys.shape[1], -1, attention.head_dim)
            scores = grouped @ keys.transpose(2, 3) * attention.head_dim**-0.5
            shares = scores.masked_fill(~seen, -torch.inf).softmax(-1)
            found = (shares @ values).view(queries.shape)
        hidden = hidden + attention.o_proj(found.transpose(1, 2).flatten(2))
        changed: torch.Tensor = layer.mlp(layer.post_attention_layernorm(hidden))
        return hidden + changed


@torch.inference_mode()
def answer(
    model: PreTrainedModel,
    prompts: Sequence[np.ndarray],
    temperatures: np.ndarray,
    most: int,
    stops: Sequence[int],
    seed: int,
) -> list[np.ndarray]:
    """Rows of `prompts` and answers of at most `most` tokens; a temperature of 0 is greedy.

    An answer ends with the first of the `stops`, which is in it. Rows are int64 [prompt + answer].
    """
    device = model.device
    rows = _Rows(model, prompts, most)
    generator = torch.Generator(device).manual_seed(seed)
    sampled = torch.from_numpy(temperatures > 0).to(device)
    heat = torch.from_numpy(np.where(temperatures > 0, temperatures, 1.0)).float().to(device)
    ends = torch.full((len(prompts),), rows.places, device=device)
    stopping = torch.tensor(list(stops), device=device)
    first = 0
    for place in range(rows.width, rows.places):
        logits = rows.logits(first, place)
        first = place
        # Gumbel-max: the likeliest token after adding noise is a sample.
        drawn = torch.rand(logits.shape, generator=generator, device=device).clamp_(min=1e-20)
        noisy = logits / heat[:, None] - (-drawn.log()).clamp_(min=1e-20).log()
        chosen = torch.where(sampled, noisy.argmax(-1), logits.argmax(-1))
        rows.tokens[:, place] = chosen
        stopped = torch.isin(chosen, stopping) & (ends == rows.places)
        ends = torch.where(stopped, place + 1, ends)
        if place % LOOK_EVERY == 0 and bool((ends < rows.places).all()):
            break
    tokens, pads = rows.tokens.cpu().numpy(), rows.pads.cpu().numpy()
    last = ends.clamp(max=first + 1).cpu().numpy()
    return [tokens[row, pads[row] : last[row]] for row in range(len(prompts))]
