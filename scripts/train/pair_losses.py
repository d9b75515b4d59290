"""What a drafter and f_theta are trained on: blocks of the verifier's own text, and its K/V."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional
from transformers import PreTrainedModel

from kakeya_fleet.engine.backends.torch_backend.projection import Projection
from scripts.train.drafter_model import Drafter
from scripts.train.guess_loss import Edges, Guesses, guess_loss
from scripts.train.placing import on_device
from scripts.train.restored_forward import KeysValues, restore, run_restored, run_verifier

MOST_WRITTEN = 288
"""Blocks begin within so many of the verifier's tokens: later on greedy text runs in circles."""
SHORT_CONTEXT_SHARE = 0.15
"""Rows whose oldest context vectors are missing, as after a drafter was restarted."""


@dataclass(frozen=True)
class Blocks:
    """Where blocks begin in the rows of a batch."""

    anchors: torch.Tensor
    """Positions of the last committed tokens, [rows, blocks]."""
    starts: torch.Tensor
    """The first position with a context vector, [rows]."""

    def to(self, device: str) -> Blocks:
        """The same on a device."""
        return Blocks(on_device(self.anchors, device), on_device(self.starts, device))


@dataclass(frozen=True)
class Written:
    """A verifier's full-attention forward over rows that it has written."""

    taps: torch.Tensor
    """The tapped layers' outputs, concatenated, [rows, n, taps * hidden], bfloat16."""
    hidden: torch.Tensor
    """Normed last hidden states [rows, n, hidden], bfloat16."""


@torch.no_grad()
def read_written(model: PreTrainedModel, tokens: torch.Tensor, taps: tuple[int, ...]) -> Written:
    """`tokens` [rows, n], read by the verifier."""
    # A model in bfloat16 has nothing to be cast.
    is_cast = model.dtype == torch.float32 and torch.is_autocast_enabled(tokens.device.type)
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=is_cast):
        seen = run_verifier(model, tokens, taps)
    return Written(seen.taps.to(torch.bfloat16), seen.hidden.to(torch.bfloat16))


@dataclass(frozen=True)
class DraftFigures:
    """What a batch of blocks measured."""

    loss: torch.Tensor
    """Nats a guess; see `guess_loss`."""
    accepted: torch.Tensor
    """Tokens a verify forward commits: 1 + the guesses before the first wrong one, mean.

    Of a selector the steps behind the verifier's own tokens: what it walks as long as it is right.
    """
    first: torch.Tensor
    """The share of first guesses that are right."""


@dataclass(frozen=True)
class RestoreFigures:
    """What a batch of restored rows measured."""

    loss: torch.Tensor
    key_error: torch.Tensor
    """Squared error over squared norm of evicted keys, a layer."""
    value_error: torch.Tensor
    gap: torch.Tensor
    """KL divergence of the logits from full attention's in nats, mean over positions."""
    agreement: float
    """Share of positions past the window with full attention's likeliest token."""
    answers: float
    """The same of the positions that answer a question; NaN where there are none."""


def draw_blocks(
    generator: torch.Generator,
    prompts: torch.Tensor,
    lengths: torch.Tensor,
    size: int,
    count: int,
) -> Blocks:
    """`count` anchors a row among the verifier's own tokens, blocks of `size` whole.

    In a row that is too short for that a block begins in the prompt.
    """
    rows = len(prompts)
    last = (lengths - size).clamp(min=1)
    first = torch.minimum((prompts - 1).clamp(min=1), last)
    room = (last - first).clamp(min=1, max=MOST_WRITTEN)
    draws = torch.rand(rows, count, generator=generator)
    anchors = first[:, None] + (draws * room[:, None]).long()
    cut = torch.rand(rows, generator=generator) < SHORT_CONTEXT_SHARE
    oldest = anchors.amin(dim=1).float()
    starts = (torch.rand(rows, generator=generator) * oldest).long()
    return Blocks(anchors, torch.where(cut, starts, torch.zeros_like(starts)))


def draft_loss(
    model: PreTrainedModel,
    drafter: Drafter,
    tokens: torch.Tensor,
    seen: Written,
    blocks: Blocks,
    *,
    size: int,
    late_weight: float,
) -> DraftFigures:
    """The loss of blocks of `size` in rows [rows, n] that the verifier has written.

    `seen` is the verifier's forward over them. A block's k-th guess weighs
    exp(-(k - 1) / late_weight): late ones are seldom reached.
    """
    shape, device = drafter.shape, tokens.device
    index = blocks.anchors[:, :, None] + torch.arange(size, device=device)
    rows = torch.arange(len(tokens), device=device)[:, None, None]
    labels = tokens[rows, index[:, :, 1:]]
    fed = torch.full_like(index, shape.mask_token)
    fed[:, :, 0] = tokens[rows[:, :, 0], blocks.anchors]
    hidden = drafter(
        model.model.embed_tokens(fed), drafter.encode(seen.taps), blocks.anchors, blocks.starts
    )[:, :, 1:].flatten(0, 2)
    weights = torch.exp(-torch.arange(size - 1, device=device) / late_weight)
    weights = weights / weights.sum() / labels[:, :, 0].numel()
    guesses = Guesses(
        labels.flatten(),
        seen.hidden[rows, index[:, :, :-1]].flatten(0, 2),
        weights.expand_as(labels).flatten(),
    )
    edges = None
    if drafter.candidate_selector is not None:
        before = tokens[rows, index[:, :, :-1]].flatten()
        selector = drafter.candidate_selector
        edges = Edges(selector.gates(hidden, before), selector.successor_codebook)
    loss, best = guess_loss(hidden, model.lm_head.weight, guesses, edges)
    right = (best.view(labels.shape) == labels).float()
    kept = right.cumprod(-1).sum(-1)
    return DraftFigures(loss, 1.0 + kept.mean(), right[:, :, 0].mean())


def restore_loss(
    model: PreTrainedModel,
    drafter: Drafter,
    projection: Projection,
    tokens: torch.Tensor,
    answers: torch.Tensor,
    *,
    sink: int,
    window: int,
    gap_weight: float,
) -> RestoreFigures:
    """Error of restored K/V, and with `gap_weight` > 0 the logit gap on the verifier's own path.

    `answers` [rows, n] marks the positions whose next token answers a question: they weigh as
    much as all others together. The path is the verifier's own in that the context vectors are of
    a forward that itself saw restored K/V, as they will be when it serves.
    """
    taps = drafter.shape.taps
    with torch.no_grad():
        full = run_verifier(model, tokens, taps)
    nothing = torch.zeros(())

    def restored_of(seen: torch.Tensor, first: int) -> KeysValues:
        return restore(projection, drafter.encode(seen), drafter, first)

    if not gap_weight:
        key_error, value_error = errors(restored_of(full.taps, 0), full.keys_values)
        loss = key_error.mean() + value_error.mean()
        return RestoreFigures(loss, key_error.detach(), value_error.detach(), nothing, 0.0, 0.0)
    own = run_restored(model, tokens, taps, restored_of, sink=sink, window=window)
    key_error, value_error = errors(own.keys_values, full.keys_values)
    loss = key_error.mean() + value_error.mean()
    late = torch.arange(tokens.shape[1], device=tokens.device) >= sink + window
    found = model.lm_head(own.hidden[:, late]).float().log_softmax(-1)
    with torch.no_grad():
        wanted = model.lm_head(full.hidden[:, late]).float().log_softmax(-1)
    each = (wanted.exp() * (wanted - found)).sum(-1)
    asked = answers[:, late]
    gap = each.mean()
    answer_gap = each[asked].mean() if asked.any() else nothing
    same = (found.argmax(-1) == wanted.argmax(-1)).float()
    return RestoreFigures(
        loss + gap_weight * (gap + answer_gap),
        key_error.detach(),
        value_error.detach(),
        gap.detach(),
        same.mean().item(),
        same[asked].mean().item(),
    )


def errors(
    restored: list[tuple[torch.Tensor, torch.Tensor]],
    exact: list[tuple[torch.Tensor, torch.Tensor]],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Squared error over squared norm of keys and of values, [layers] each."""
    found = []
    for part in (0, 1):
        pairs = [
            (mine[part].float(), its[part].float())
            for mine, its in zip(restored, exact, strict=True)
        ]
        found.append(torch.stack([functional.mse_loss(a, b) / b.square().mean() for a, b in pairs]))
    return found[0], found[1]
