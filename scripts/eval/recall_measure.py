"""How many recall cases a model answers, with full attention or with sink + window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from scripts.eval.recall_task import RecallCase

Z_95 = 1.959964


@dataclass(frozen=True)
class Budget:
    """Which positions a query may attend to, besides all those before it."""

    sink: int
    """The first positions, always visible."""
    window: int
    """The latest positions, the query's own included."""


def attention_mask(length: int, budget: Budget, device: torch.device) -> torch.Tensor:
    """Whether query i sees key j, bool of shape (1, 1, length, length).

    j <= i and (j < sink or j > i - window).
    """
    positions = torch.arange(length, device=device)
    query, key = positions[:, None], positions[None, :]
    seen = (key <= query) & ((key < budget.sink) | (key > query - budget.window))
    return seen[None, None]


@torch.no_grad()
def greedy_hits(
    model: PreTrainedModel,
    cases: Sequence[RecallCase],
    budget: Budget | None = None,
    batch_tokens: int = 8192,
) -> np.ndarray:
    """Whether the likeliest next token is the answer, bool of shape (cases,).

    All prompts are of one length. `budget` None means full attention.
    """
    length = cases[0].prompt.size
    device = model.device
    mask = None if budget is None else attention_mask(length, budget, device)
    hits = []
    rows = max(1, batch_tokens // length)
    for start in range(0, len(cases), rows):
        part = cases[start : start + rows]
        prompts = torch.from_numpy(np.stack([case.prompt for case in part])).to(device)
        seen = None if mask is None else mask.expand(len(part), -1, -1, -1)
        output = model(input_ids=prompts, attention_mask=seen, use_cache=False, logits_to_keep=1)
        best = output.logits[:, -1].argmax(-1).cpu().numpy()
        hits += [best[row] == case.answer[0] for row, case in enumerate(part)]
    return np.asarray(hits, dtype=bool)


def wilson_interval(hits: int, cases: int) -> tuple[float, float]:
    """The Wilson 95 % interval of a share of `hits` out of `cases`."""
    share = hits / cases
    spread = Z_95**2 / cases
    middle = (share + spread / 2) / (1 + spread)
    half = Z_95 / (1 + spread) * math.sqrt(share * (1 - share) / cases + spread / (4 * cases))
    return max(0.0, middle - half), min(1.0, middle + half)
