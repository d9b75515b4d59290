"""Whether a model predicts at the shift that it declares, found without any text.

A probe is a pattern of distinct random ids, repeated, with the token at one
position i masked; whoever can read knows it from the other copies. At shift 0 the
row of i holds it, at shift 1 the row of i - 1. In half of the probes i - 1 is
masked too, so that neither row sees its own token: a model adapted from a causal
one may still know the next token where it sees the text, whatever its shift.
Every period meets every place of i, so that a model that counts badly at one of
them does not pass for one of the other shift.

Two paired statistics over n probes, each a Student t = mean / (sd / sqrt(n)):

    margin = log p(truth | row i) - log p(truth | row i - 1)
    skill  = log p(truth | row) - mean of log p(another token of the pattern | row)

The margin says which row is better, skill that the better row reads the pattern
at all: without training the margin can be large, since a row favours the token
that it sees, but all tokens of the pattern are alike. Those beside i are left
out of the mean: they are what a row is right about at the other shift.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.denoising import Predictor

LENGTH = 32
"""Positions of a probe."""
PERIODS = (5, 6, 7, 8)
"""Distinct ids of a pattern; all but three are others than the truth and its neighbours."""
PLACES = (16, 21, 26, 30)
"""Of the masked token: two copies or more of every pattern are before it."""
PROBES = len(PERIODS) * len(PLACES)
"""Of each kind."""
CLEAR_T = 5.0
"""Of all probes: with 31 degrees of freedom chance alone exceeds it once in 90,000."""
KIND_T = 3.0
"""Of each kind alone: with 15 degrees of freedom once in 220."""
CLEAR_SKILL = 1.0
"""Nats: the truth is e times likelier than the rest of its pattern."""


@dataclass(frozen=True, slots=True)
class ShiftEvidence:
    """What the probes say: `shift` 0 or 1, or None without clear evidence.

    `margin` is the mean margin in nats, positive for shift 0, `margin_t` its t;
    `skill` and `skill_t` are of the better row.
    """

    shift: int | None
    margin: float
    margin_t: float
    skill: float
    skill_t: float
    probe_count: int


UNPROBED = ShiftEvidence(None, 0.0, 0.0, 0.0, 0.0, 0)


def probe_shift(
    model: Predictor,
    vocabulary_size: int,
    context_length: int,
    *,
    excluded: Sequence[int] = (),
    seed: int = 0,
) -> ShiftEvidence:
    """Evidence of the shift of `model`; the same for the same `seed`.

    `excluded` are ids that no text holds. `UNPROBED` where the vocabulary or the
    positions do not hold a probe.
    """
    unusable = {model.mask_token_id, *excluded}
    usable = [token for token in range(vocabulary_size) if token not in unusable]
    if len(usable) < max(PERIODS) or context_length < LENGTH:
        return UNPROBED
    generator = torch.Generator().manual_seed(seed)
    alone = _scores(model, torch.tensor(usable), generator, width=1)
    beside = _scores(model, torch.tensor(usable), generator, width=2)
    return judge(alone, beside)


@dataclass(frozen=True, slots=True)
class Scores:
    """Of the probes of one kind, float64 [probes]; the skills of rows i and i - 1."""

    margin: Tensor
    skills: tuple[Tensor, Tensor]


def judge(alone: Scores, beside: Scores) -> ShiftEvidence:
    """The verdict of two kinds of probes: clear only where both say it."""
    margin = torch.cat([alone.margin, beside.margin])
    shift = 0 if margin.mean() >= 0 else 1
    skill = torch.cat([alone.skills[shift], beside.skills[shift]])
    sign = 1.0 if shift == 0 else -1.0
    clear = (
        sign * student_t(margin) >= CLEAR_T
        and student_t(skill) >= CLEAR_T
        and float(skill.mean()) >= CLEAR_SKILL
        and min(sign * student_t(alone.margin), sign * student_t(beside.margin)) >= KIND_T
    )
    return ShiftEvidence(
        shift=shift if clear else None,
        margin=float(margin.mean()),
        margin_t=student_t(margin),
        skill=float(skill.mean()),
        skill_t=student_t(skill),
        probe_count=len(margin),
    )


def student_t(values: Tensor) -> float:
    """Student's t = mean / (sd / sqrt(n)) of at least two values; 0 for a mean of 0."""
    mean, spread = float(values.mean()), float(values.std())
    if mean == 0.0:
        return 0.0
    return mean / (spread / math.sqrt(len(values))) if spread else math.copysign(math.inf, mean)


def _scores(model: Predictor, usable: Tensor, generator: torch.Generator, *, width: int) -> Scores:
    """Scores of `PROBES` texts in which the last `width` tokens up to i are masked."""
    truths: list[Tensor] = []
    others: list[Tensor] = []
    for at in PLACES:
        picked = [torch.randperm(len(usable), generator=generator)[:size] for size in PERIODS]
        patterns = [usable[chosen] for chosen in picked]
        ids = torch.stack([pattern.repeat(LENGTH)[:LENGTH] for pattern in patterns])
        ids[:, at - width + 1 : at + 1] = model.mask_token_id
        found = model.log_probabilities(ids, [at, at - 1]).to(torch.float64)
        for rows, pattern in zip(found, patterns, strict=True):
            # The truth, what follows it, ..., what precedes it.
            own = rows[:, pattern.roll(-(at % len(pattern)))]
            truths.append(own[:, 0])
            others.append(own[:, 2:-1].mean(-1))
    truth, other = torch.stack(truths), torch.stack(others)
    skill = truth - other
    return Scores(truth[:, 0] - truth[:, 1], (skill[:, 0], skill[:, 1]))
