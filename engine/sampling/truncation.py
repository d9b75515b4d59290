"""Which ids may be sampled: top-k, then top-p, then min-p.

Ids rank by logit, the larger first, the lower id first among equals, so that
each filter keeps a well defined set. Top-k: Fan, Lewis and Dauphin,
"Hierarchical Neural Story Generation" (2018). Top-p: Holtzman et al., "The
Curious Case of Neural Text Degeneration" (2019). Min-p: Nguyen et al., "Turning
Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs" (2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.sampling.ranking import highest

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Bins of weights: 256 to an octave, which are the upper bits of a float64 from 1
# down to 2**-58; all ids below that together are nothing beside the largest.
_DROPPED_BITS = 44
_LAST_BIN = 58 * 256


@dataclass(frozen=True, slots=True)
class Truncation:
    """The filters in their order, each over what the ones before it kept.

    `top_k` keeps the k first ranked ids, 0 all. `top_p` keeps the smallest set
    of first ranked ids whose probability among the kept reaches it, 0 or 1 all.
    `min_p` keeps the ids whose probability is at least min_p times the largest,
    0 all. The first ranked id is always kept.
    """

    top_k: int
    top_p: float
    min_p: float


def truncated(
    logits: NDArray[np.float64], temperature: float, truncation: Truncation
) -> tuple[NDArray[np.int64] | None, NDArray[np.float64]]:
    """The kept ids, ascending, and their weights: the softmax times one factor.

    `logits` [vocabulary] hold no NaN, their largest is finite, and they may be
    overwritten; `temperature` > 0. Ids are None when all are kept. The weight of
    an id is the exponential of (logit - largest) / temperature, so the first
    ranked weighs exactly 1 and underflow gives 0, never NaN.
    """
    ids = None
    if 0 < truncation.top_k < logits.size:
        ids = highest(logits, truncation.top_k)
        logits = logits[ids]
    has_nucleus = truncation.top_p not in (0.0, 1.0)
    # In place where the logits are of no more use, for the memory of a large
    # vocabulary costs more than the arithmetic. Subtracting before dividing keeps
    # the largest at exactly 0 for any temperature; the rest may overflow to -inf,
    # which weighs 0.
    weights = np.subtract(logits, logits.max(), out=None if has_nucleus else logits)
    with np.errstate(over="ignore"):
        weights /= temperature
    np.exp(weights, out=weights)
    if has_nucleus:
        nucleus = _nucleus(logits, weights, truncation.top_p)
        ids = nucleus if ids is None else ids[nucleus]
        weights = weights[nucleus]
    if truncation.min_p > 0.0:
        likely = (weights >= truncation.min_p).nonzero()[0]
        ids = likely if ids is None else ids[likely]
        weights = weights[likely]
    return ids, weights


def _nucleus(
    logits: NDArray[np.float64], weights: NDArray[np.float64], top_p: float
) -> NDArray[np.int64]:
    """The ids, ascending, of the smallest set of first ranked ids that reaches `top_p`.

    `weights` rank as `logits` do, up to rounding, the largest 1. Sums are
    float64. Sorts only ids around the border: those before are summed by bins of
    their weight, which keep the order of ranks.
    """
    # Positive floats order as their bits do.
    bins = weights.view(np.int64) >> _DROPPED_BITS
    np.subtract(bins.max(), bins, out=bins)
    np.minimum(bins, _LAST_BIN, out=bins)
    sums = np.bincount(bins, weights).cumsum()
    target = top_p * sums[-1]
    border = int(sums.searchsorted(target, side="left"))
    before = sums[border - 1] if border else 0.0
    inside = (bins == border).nonzero()[0]
    reached = before + np.sort(weights[inside])[::-1].cumsum()
    count = int(reached.searchsorted(target, side="left")) + 1
    kept = bins < border
    # Ranked by logit, not by weight: rounding must not create ties.
    kept[inside[highest(logits[inside], min(count, inside.size))]] = True
    return kept.nonzero()[0]
