"""Biases that a request adds to the logits of single ids."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.errors import BadParameters

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIELD = "logit_bias"
MAX_BIASES = 1024
MAX_BIAS = 1e4


@dataclass(frozen=True, slots=True)
class LogitBias:
    """What is added to the model's logits, by token id; ids in ascending order.

    `biases` are pairs (token id, bias), the bias -10,000 to 10,000, or -inf,
    which bans the id: it is never chosen. Raises `BadParameters` for more than
    1,024 pairs, an id twice or below 0, or a bias outside its range.
    """

    biases: tuple[tuple[int, float], ...] = ()
    ids: NDArray[np.int64] | None = field(default=None, init=False, repr=False, compare=False)
    values: NDArray[np.float64] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.biases) > MAX_BIASES:
            raise BadParameters(
                f"{FIELD} has {len(self.biases)} ids, at most {MAX_BIASES} may be biased",
                field=FIELD,
            )
        for token_id, bias in self.biases:
            _check(token_id, bias)
        ordered = sorted(self.biases)
        for (token_id, _), (behind, _) in pairwise(ordered):
            if token_id == behind:
                raise BadParameters(f"{FIELD} has id {token_id} twice", field=FIELD)
        object.__setattr__(self, "biases", tuple(ordered))
        if not ordered:
            # No arrays: an agent without models imports this, and not numpy for it.
            return
        object.__setattr__(self, "ids", np.array([pair[0] for pair in ordered], np.int64))
        object.__setattr__(self, "values", np.array([pair[1] for pair in ordered], np.float64))

    @staticmethod
    def of(biases: Mapping[int, float]) -> LogitBias:
        """The same from a mapping of token id to bias."""
        return LogitBias(tuple(biases.items()))

    def check_vocabulary(self, vocabulary_size: int) -> None:
        """Raises `BadParameters` for an id outside the vocabulary, or when all are banned."""
        if not self.biases:
            return
        highest = self.biases[-1][0]
        if highest >= vocabulary_size:
            raise BadParameters(
                f"{FIELD} has id {highest}, the vocabulary's ids are 0 to {vocabulary_size - 1}",
                field=FIELD,
            )
        if sum(bias == -math.inf for _, bias in self.biases) == vocabulary_size:
            raise BadParameters(
                f"{FIELD} bans all {vocabulary_size} ids of the vocabulary; leave at least one",
                field=FIELD,
            )

    def add_to(self, logits: NDArray[np.float64]) -> None:
        """Adds the biases to `logits` [vocabulary], in place."""
        if self.ids is not None and self.values is not None:
            logits[self.ids] += self.values


def _check(token_id: int, bias: float) -> None:
    if token_id < 0:
        raise BadParameters(f"{FIELD} has the negative id {token_id}", field=FIELD)
    if bias != -math.inf and not abs(bias) <= MAX_BIAS:
        raise BadParameters(
            f"{FIELD} of id {token_id} is {bias}, not between -{MAX_BIAS:g} and {MAX_BIAS:g};"
            " -inf bans the id",
            field=FIELD,
        )


NO_BIAS = LogitBias()
