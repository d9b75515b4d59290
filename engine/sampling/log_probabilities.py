"""Log-probabilities of tokens: what the model itself says, before any processing.

The log-probability of an id is the natural logarithm of the softmax of the
model's own float32 logits, computed in float64: no bias, no penalty, no
temperature and no filter enters it, so it says how likely the model held a
token, not how likely the parameters made it. An id that the parameters chose
may therefore be missing among the alternatives, and greedy with a bias may have
chosen an id that is not the first of them.
"""

from __future__ import annotations

import math

import numpy as np

from kakeya_fleet.engine.contracts.verifier import Logits
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.engine.sampling.ranking import highest

MAX_ALTERNATIVES = 20
FIELD = "top_log_probabilities"


def check_alternatives(count: int | None) -> None:
    """Raises `BadParameters` unless None or 0 <= count <= 20."""
    if count is not None and not 0 <= count <= MAX_ALTERNATIVES:
        raise BadParameters(
            f"{FIELD} {count} is not between 0 and {MAX_ALTERNATIVES}; 0 is the chosen token alone",
            field=FIELD,
        )


def log_probability_of(
    row: Logits, token_id: int, count: int
) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The log-probability of `token_id`, and the `count` most probable ids with theirs.

    `row` is [vocabulary], its largest finite. The most probable first, the
    lower id first among equals; ids whose logit is -inf are left out, so there
    may be fewer than `count`.
    """
    largest = float(row.max())
    # In place, for the memory of a large vocabulary costs more than the arithmetic.
    weights = row.astype(np.float64)
    weights -= largest
    np.exp(weights, out=weights)
    log_sum = largest + math.log(float(weights.sum()))
    ids = highest(row, min(count, row.size))
    ranked = ids[np.argsort(-row[ids], kind="stable")]
    alternatives = tuple(
        (int(ranked_id), float(row[ranked_id]) - log_sum)
        for ranked_id in ranked
        if row[ranked_id] > -math.inf
    )
    return float(row[token_id]) - log_sum, alternatives
