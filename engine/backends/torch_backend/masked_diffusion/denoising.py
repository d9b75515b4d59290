"""Denoising of a masked block, most confident tokens first.

Chang et al., "MaskGIT" (2022), as masked diffusion language models use it (Nie et
al., 2025). From x = [context, MASK * L], each of K steps predicts every masked
slot in one bidirectional pass and fills the ceil(L / K) most confident of them,
or all above a threshold if those are more. What is filled stays.

A pass computes the whole text: with attention in both directions each step changes
the hidden states of all positions, so that no keys and values can be kept between
steps, nor between blocks. What it costs to keep them all the same, see
`frozen_prefix`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Predictor(Protocol):
    """What denoising needs of a model; see `MaskedModel`."""

    mask_token_id: int
    prediction_shift: int

    def log_probabilities(self, ids: Tensor, rows: Sequence[int]) -> Tensor:
        """Float32 [texts, len(rows), vocabulary]."""
        ...


@dataclass(frozen=True, slots=True)
class Denoised:
    """A block without masks, and the steps it took, each one pass."""

    token_ids: tuple[int, ...]
    step_count: int


def denoise(
    model: Predictor,
    context: Sequence[int],
    block_size: int,
    step_count: int,
    confidence_threshold: float | None = None,
) -> Denoised:
    """The `block_size` tokens behind `context`, in at most `step_count` steps.

    Confidence is the probability of the likeliest token; among equals the earlier
    slot goes first. With `confidence_threshold` every slot above it is filled at
    once. Raises `ValueError` for a block or step count below 1.
    """
    if block_size < 1 or step_count < 1:
        raise ValueError(f"{block_size} tokens in {step_count} steps")
    each_step = -(-block_size // step_count)
    ids = torch.tensor([[*context, *[model.mask_token_id] * block_size]])
    masked = list(range(len(context), len(context) + block_size))
    steps = 0
    while masked:
        # The first position has no row before it; its own is the nearest there is.
        rows = [max(slot - model.prediction_shift, 0) for slot in masked]
        best = model.log_probabilities(ids, rows)[0].max(-1)
        order = best.values.sort(descending=True, stable=True).indices
        count = each_step
        if confidence_threshold is not None:
            count = max(count, int((best.values.exp() > confidence_threshold).sum()))
        filled = order[:count]
        slots = torch.tensor(masked)[filled]
        ids[0, slots] = best.indices[filled]
        done = set(slots.tolist())
        masked = [slot for slot in masked if slot not in done]
        steps += 1
    return Denoised(tuple(ids[0, len(context) :].tolist()), steps)
