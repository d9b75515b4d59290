"""The loss of guesses over a large vocabulary, with no more than a slice of its logits in memory.

Logits of all guesses of a step, in float32 and once for each operation, would be tens of gigabytes:
the gradient is made with the loss, slice by slice, of its closed form, and kept in bfloat16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

SLICE = 2048
"""Guesses at a time: their logits take 0.4 GB a copy, of a vocabulary of 49,152."""
UNARY_SHARE = 0.3
"""What the logits alone weigh beside those with a selector's edges: they choose the candidates."""


@dataclass(frozen=True)
class Guesses:
    """What is guessed, and what it is held against; n guesses."""

    labels: torch.Tensor
    """The verifier's own tokens [n]."""
    wanted: torch.Tensor
    """The verifier's normed hidden states before them [n, hidden]."""
    weights: torch.Tensor
    """What each counts in the loss [n]."""


@dataclass(frozen=True)
class Edges:
    """A selector's part of the logits: those of `gates` [n, rank] and `successors` [.., rank]."""

    gates: torch.Tensor
    successors: torch.Tensor


class _GuessLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        gates: torch.Tensor,
        successors: torch.Tensor,
        head: torch.Tensor,
        guesses: Guesses,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        kind = torch.bfloat16
        table, edges = head.to(kind), successors.to(kind)
        has_edges = edges.shape[1] > 0
        loss = torch.zeros((), device=hidden.device)
        for_hidden = torch.empty(hidden.shape, dtype=kind, device=hidden.device)
        for_gates = torch.zeros(gates.shape, dtype=kind, device=hidden.device)
        for_edges = torch.zeros(edges.shape, device=hidden.device)
        best = []
        for first in range(0, len(hidden), SLICE):
            part = slice(first, first + SLICE)
            rows, labels = hidden[part].to(kind), guesses.labels[part, None]
            weights = guesses.weights[part, None]
            # Half against the verifier's token, half against its probabilities.
            goal = (guesses.wanted[part].to(kind) @ table.T).float().softmax(-1).mul_(0.5)
            goal.scatter_add_(1, labels, torch.full_like(labels, 0.5, dtype=goal.dtype))
            logits = (rows @ table.T).float()
            slope = None
            if has_edges:
                alone = UNARY_SHARE * weights
                loss += _nats(logits, goal, alone)
                slope = _slope(logits, goal, alone)
                logits += gates[part].to(kind) @ edges.T
            best.append(logits.argmax(-1))
            loss += _nats(logits, goal, weights)
            own = _slope(logits, goal, weights)
            if slope is not None:
                steep = own.to(kind)
                for_gates[part] = steep @ edges
                for_edges += (steep.T @ gates[part].to(kind)).float()
                own.add_(slope)
            for_hidden[part] = own.to(kind) @ table
        ctx.save_for_backward(for_hidden, for_gates, for_edges)
        ctx.kinds = (hidden.dtype, gates.dtype, successors.dtype)
        best_of_all = torch.cat(best)
        ctx.mark_non_differentiable(best_of_all)
        return loss, best_of_all

    @staticmethod
    def backward(ctx: Any, *slopes: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        made = (
            (given * slopes[0]).to(kind)
            for given, kind in zip(ctx.saved_tensors, ctx.kinds, strict=True)
        )
        return (*made, None, None)


def _nats(logits: torch.Tensor, goal: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Cross entropy to `goal`, whose rows add up to 1, summed with its weights [n, 1]."""
    each = logits.logsumexp(-1) - (goal * logits).sum(-1)
    return (each * weights[:, 0]).sum()


def _slope(logits: torch.Tensor, goal: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The gradient of `_nats`, [n, vocabulary]."""
    return logits.softmax(-1).sub_(goal).mul_(weights)


def guess_loss(
    hidden: torch.Tensor, head: torch.Tensor, guesses: Guesses, edges: Edges | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weighted sum of the guesses' losses in nats, and the likeliest tokens [n].

    `hidden` [n, hidden] is what `head` [vocabulary, hidden], which is not trained, makes logits
    of. A loss is the mean of the cross entropies against the verifier's token and against its
    probabilities, with a selector's `edges` and, less, without.
    """
    if edges is None:
        none = hidden.new_zeros(len(hidden), 0)
        edges = Edges(none, hidden.new_zeros(len(head), 0))
    made: tuple[torch.Tensor, torch.Tensor] = _GuessLoss.apply(
        hidden, edges.gates, edges.successors, head, guesses
    )  # type: ignore[no-untyped-call]
    return made
