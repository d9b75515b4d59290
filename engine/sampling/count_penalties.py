"""Penalties by how often this generation has said an id.

Those of OpenAI's API ("Frequency and presence penalties" in its documentation):

    logit[j] - count[j] * frequency_penalty - (count[j] > 0) * presence_penalty

with count[j] the times that j was generated before; the prompt does not count, unlike with
`engine.sampling.repetition_penalty`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kakeya_fleet.engine.errors import BadParameters

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HIGHEST = 2.0
"""OpenAI's range: -2 to 2."""


def check_count_penalty(field: str, penalty: float) -> None:
    """Raises `BadParameters` unless -2 <= penalty <= 2."""
    if not -HIGHEST <= penalty <= HIGHEST:
        raise BadParameters(
            f"{field} {penalty} is not between -{HIGHEST:g} and {HIGHEST:g}; 0 is none, above 0"
            " discourages repetition",
            field=field,
        )


def penalise_counts(
    logits: NDArray[np.float64], counts: NDArray[np.int64], frequency: float, presence: float
) -> None:
    """Penalises in place the `logits` [vocabulary] by `counts` [vocabulary]."""
    ids = counts.nonzero()[0]
    logits[ids] -= counts[ids] * frequency + presence
