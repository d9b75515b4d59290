"""The mean of a text's hidden states, as one vector of length 1.

Mean pooling: Reimers and Gurevych, "Sentence-BERT" (2019), section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from kakeya_fleet.engine.contracts.features import Features
from kakeya_fleet.engine.errors import InvariantViolated
from kakeya_fleet.engine.invariants import FINITE_LOGITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

TextVector: TypeAlias = "NDArray[np.float32]"
"""[hidden_size], of length 1 within rounding."""


class MeanPool:
    """Adds hidden states up in the order of their positions, each once.

    In float64 and one after the other: the sum's bits do not depend on how many came together.
    """

    def __init__(self, hidden_size: int) -> None:
        self._sum = np.zeros(hidden_size, np.float64)
        self._count = 0

    @property
    def count(self) -> int:
        """Positions that are added."""
        return self._count

    def add(self, first: int, hidden_states: Features) -> None:
        """Takes [n, 1, hidden_size] of positions `first` onwards; none is added twice.

        Raises `ValueError` where positions before them are missing.
        """
        if first > self._count:
            raise ValueError(f"position {self._count} comes next, not {first}")
        for row in hidden_states[self._count - first :, 0]:
            self._sum += row
            self._count += 1

    def vector(self) -> TextVector:
        """The mean's direction. Raises `InvariantViolated` for one that is not finite, or none."""
        length = float(np.sqrt(np.sum(np.square(self._sum))))
        if not (np.isfinite(length) and length > 0.0):
            raise InvariantViolated(
                "the hidden states of a text are not finite, or all zero", invariant=FINITE_LOGITS
            )
        vector: TextVector = (self._sum / length).astype(np.float32)
        return vector
