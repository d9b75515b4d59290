"""Logits of ids that the history has already.

The penalised sampling of Keskar et al., "CTRL: A Conditional Transformer
Language Model for Controllable Generation" (2019), section 4.1, in the form
that the transformers library gave it (`RepetitionPenaltyLogitsProcessor`):
negative logits are multiplied where others are divided, once an id however
often it occurs, and the prompt counts as history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.errors import BadParameters

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Powers of two, which every float type holds.
LOWEST = 1 / 64
HIGHEST = 64.0


def check_repetition_penalty(penalty: float) -> None:
    """Raises `BadParameters` unless 1/64 <= penalty <= 64."""
    if not LOWEST <= penalty <= HIGHEST:
        raise BadParameters(
            f"repetition_penalty {penalty} is not between {LOWEST:g} and {HIGHEST:g};"
            " 1 is none, above 1 discourages repetition",
            field="repetition_penalty",
        )


def penalise(logits: NDArray[np.float64], seen: NDArray[np.bool_], penalty: float) -> None:
    """Penalises in place the `logits` [vocabulary] of the ids that `seen` [vocabulary] marks.

    A negative logit is multiplied by `penalty`, any other divided by it.
    """
    ids = np.flatnonzero(seen)
    values = logits[ids]
    logits[ids] = np.where(values < 0.0, values * penalty, values / penalty)
