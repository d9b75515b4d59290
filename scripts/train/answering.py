"""Many answers at a time of a verifier of Qwen3's or Llama's form, on any device.

Rows are padded on the left, so that all write their next token at the same place. Rows that have
ended are dropped now and then: what is left of a batch costs what it is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import PreTrainedModel

from scripts.train.layer_parts import joined_heads, normed, split_heads

LOOK_EVERY = 16
"""Steps between two looks at which rows have ended: a look waits for the device."""
DROPPED_FROM = 0.1
"""Rows are dropped once so many of them have ended: dropping copies the others' keys and values."""
READ_TOGETHER = 256
"""Rows whose prompts are read at a time."""


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
        self._kernel: Callable[..., torch.Tensor] | None = None
        if device.type == "cuda":
            # Triton comes with torch for CUDA, and with no other.
            kernel: Any = importlib.import_module("scripts.train.decode_attention")
            self._kernel = kernel.attend
        shape = (2, len(prompts), config.num_key_value_heads, self.places, config.head_dim)
        self.caches = [
            torch.zeros(shape, dtype=model.dtype, device=device)
            for _ in range(config.num_hidden_layers)
        ]

    def keep(self, rows: torch.Tensor) -> None:
        """Forget all but `rows`, indices in ascending order."""
        self.pads, self.tokens = self.pads[rows], self.tokens[rows]
        for layer, cache in enumerate(self.caches):
            self.caches[layer] = cache[:, rows]

    def read(self, first: int, end: int) -> torch.Tensor:
        """Logits of the last of the places `first` to `end` - 1: [rows, vocabulary]."""
        count = len(self.pads)
        together = READ_TOGETHER if end - first > 1 else count
        parts = [slice(at, at + together) for at in range(0, count, together)]
        return torch.cat([self._logits(part, first, end) for part in parts])

    def _logits(self, part: slice, first: int, end: int) -> torch.Tensor:
        body, device = self.model.model, self.tokens.device
        pads = self.pads[part]
        hidden = body.embed_tokens(self.tokens[part, first:end])
        places = torch.arange(end, device=device)
        positions = (places[first:] - pads[:, None]).clamp(min=0)
        cos, sin = body.rotary_emb(hidden, positions)
        rotation = torch.stack([cos, sin], dim=2)[:, None]
        several = end - first > 1
        attention = _of_many(places, first, pads) if several else self._of_one(pads, end)
        for layer, cache in zip(body.layers, self.caches, strict=True):
            own = cache[:, part]
            heads = split_heads(layer.self_attn, normed(layer.input_layernorm, hidden), rotation)
            own[0, :, :, first:end], own[1, :, :, first:end] = heads.keys, heads.values
            hidden = joined_heads(layer, hidden, attention(heads.queries, own[:, :, :, :end]))
        last: torch.Tensor = self.model.lm_head(normed(body.norm, hidden[:, -1]))
        return last.float()

    def _of_one(self, pads: torch.Tensor, end: int) -> _Attention:
        return partial(self._kernel or attention_of_one, pads=pads, end=end)


_Attention = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""What queries [rows, heads, n, head_dim] find in a cache [2, rows, kv_heads, places, head_dim]."""


def _of_many(places: torch.Tensor, first: int, pads: torch.Tensor) -> _Attention:
    """Of all places from `first` on, each with those before it."""
    seen = places <= places[first:, None]
    # A place before the row's first sees itself alone, as it must see something.
    own = places == places[first:, None]
    seen = ((seen & (places >= pads[:, None, None])) | own)[:, None]

    def attention(queries: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        shared = queries.shape[1] // cache.shape[2]
        keys, values = cache.repeat_interleave(shared, 2)
        return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)

    return attention


def attention_of_one(
    queries: torch.Tensor, cache: torch.Tensor, pads: torch.Tensor, end: int
) -> torch.Tensor:
    """What the queries of one place find at places `pads` [rows] to `end` - 1.

    The heads that share keys are rows of one product, which reads keys once.
    """
    seen = (torch.arange(end, device=pads.device) >= pads[:, None])[:, None, None]
    keys, values = cache
    grouped = queries.view(len(queries), keys.shape[1], -1, queries.shape[3])
    scores = grouped @ keys.transpose(2, 3) * queries.shape[3] ** -0.5
    shares = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    found: torch.Tensor = (shares @ values).view(queries.shape)
    return found


class _Choice:
    """The next tokens of rows: the likeliest, or a draw at the row's temperature."""

    def __init__(self, temperatures: np.ndarray, seed: int, device: torch.device) -> None:
        self._generator = torch.Generator(device).manual_seed(seed)
        self._heat = torch.from_numpy(temperatures).float().to(device)
        self.keep(torch.arange(len(temperatures), device=device))

    def keep(self, rows: torch.Tensor) -> None:
        """Forget all but `rows`."""
        self._heat = self._heat[rows]
        self._sampled = torch.nonzero(self._heat > 0)[:, 0]

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        """Of logits [rows, vocabulary]."""
        chosen = logits.argmax(-1)
        shares = (logits[self._sampled] / self._heat[self._sampled, None]).softmax(-1)
        # The least of exponential times, each as fast as its token is likely, is a sample.
        times = torch.empty_like(shares).exponential_(generator=self._generator)
        chosen[self._sampled] = shares.div_(times).argmax(-1)
        return chosen


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
    choice = _Choice(temperatures, seed, device)
    numbers = torch.arange(len(prompts), device=device)
    ends = torch.full((len(prompts),), rows.places, device=device)
    stopping = torch.tensor(list(stops), device=device)
    found: dict[int, np.ndarray] = {}

    def take(which: torch.Tensor) -> None:
        """Keep what the rows `which` [rows] say."""
        tokens, pads = rows.tokens[which].cpu().numpy(), rows.pads[which].cpu().numpy()
        last, index = ends[which].cpu().numpy(), numbers[which].cpu().numpy()
        for row, number in enumerate(index.tolist()):
            found[number] = tokens[row, pads[row] : last[row]].copy()

    first = 0
    for place in range(rows.width, rows.places):
        chosen = choice(rows.read(first, place))
        first = place
        rows.tokens[:, place] = chosen
        stopped = torch.isin(chosen, stopping) & (ends == rows.places)
        ends = torch.where(stopped, place + 1, ends)
        if place % LOOK_EVERY == 0:
            have_ended = ends < rows.places
            count = int(have_ended.sum())
            if count == len(ends):
                break
            if count >= DROPPED_FROM * len(ends) and count:
                take(have_ended)
                kept = torch.nonzero(~have_ended)[:, 0]
                rows.keep(kept)
                choice.keep(kept)
                numbers, ends = numbers[kept], ends[kept]
    take(torch.ones_like(ends, dtype=torch.bool))
    return [found[number] for number in range(len(prompts))]
