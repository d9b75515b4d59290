"""The verifier's own choice of a token.

The choice at a position is a function of (history, parameters, position)
alone: randomness is keyed by (seed, position), and no draft enters it. Blocks
are accepted by comparing the draft with these choices, which is speculative
sampling (Leviathan et al. 2023, Chen et al. 2023) for a draft that is a point
mass: token x is accepted with probability p(x), and given that it is not, the
choice is distributed as p without x, renormalised. So the acceptance rule is
exact with ids alone, and the stream cannot depend on the proposer, on the
block size or on where blocks begin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.errors import BadParameters, InvariantViolated
from engine.invariants import FINITE_LOGITS
from engine.randomness import check_seed, uniform
from engine.verifier import Logits

MAX_TEMPERATURE = 100.0


def _check_range(field: str, value: float, highest: float) -> None:
    if not math.isfinite(value):
        raise BadParameters(f"{field} is {value}, not a finite number", field=field)
    if not 0.0 <= value <= highest:
        raise BadParameters(f"{field} {value} is not between 0 and {highest:g}", field=field)


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How tokens are chosen.

    `temperature` 0 is greedy, otherwise logits are divided by it; `top_k` keeps
    the k most probable ids, 0 all; then `top_p` keeps the smallest set of the
    most probable ids whose probability reaches it, 0 or 1 all. Equal logits
    rank by id, the lower first. Raises `BadParameters` outside 0 <= temperature
    <= 100, 0 <= top_p <= 1, top_k >= 0, 0 <= seed < 2**64.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        _check_range("temperature", self.temperature, MAX_TEMPERATURE)
        _check_range("top_p", self.top_p, 1.0)
        if self.top_k < 0:
            raise BadParameters(f"top_k {self.top_k} is negative; 0 keeps all", field="top_k")
        check_seed(self.seed)

    @property
    def greedy(self) -> bool:
        """Whether the most probable id is always chosen."""
        return self.temperature == 0.0


GREEDY = SamplingParameters()


def choose(logits: Logits, parameters: SamplingParameters, first_position: int) -> list[int]:
    """The choice of each row of `logits` [n, vocabulary], float32.

    Row i decides the token at index `first_position` + i of the history.
    """
    return [
        choose_token(row, parameters, first_position + offset) for offset, row in enumerate(logits)
    ]


def choose_token(row: Logits, parameters: SamplingParameters, position: int) -> int:
    """The choice of one row of logits [vocabulary] for index `position`.

    Greedy is the largest logit, the lowest id among equals. Sampled is the
    inverse of the cumulative distribution over ids in ascending order, in
    float64, at `uniform(seed, position)`. Raises `InvariantViolated` when the
    largest logit is not finite: no such model's choice means anything.
    """
    best = int(np.argmax(row))
    if not math.isfinite(row[best]):
        raise InvariantViolated(
            f"the logits for position {position} are not finite", invariant=FINITE_LOGITS
        )
    if parameters.greedy:
        return best
    weights = _weights(row.astype(np.float64), parameters)
    cumulative = np.cumsum(weights)
    target = uniform(parameters.seed, position) * cumulative[-1]
    chosen = int(np.searchsorted(cumulative, target, side="right"))
    # target < cumulative[-1] up to rounding of the product; the last id with
    # weight is where rounding may have to be caught.
    return min(chosen, int(np.flatnonzero(weights)[-1]))


def _weights(row: NDArray[np.float64], parameters: SamplingParameters) -> NDArray[np.float64]:
    """Unnormalised probabilities by id; 0 where filtered away."""
    # Subtracting before dividing keeps the largest at exactly 0 for any
    # temperature; the rest may overflow to -inf, which weighs 0.
    with np.errstate(over="ignore"):
        weights: NDArray[np.float64] = np.exp((row - row.max()) / parameters.temperature)
    kept = min(parameters.top_k or row.size, row.size)
    if kept == row.size and parameters.top_p in (0.0, 1.0):
        return weights
    # Ranked by logit, not by weight: underflow must not create ties.
    order = np.argsort(-row, kind="stable")[:kept]
    if parameters.top_p not in (0.0, 1.0):
        cumulative = np.cumsum(weights[order])
        reached = np.searchsorted(cumulative, parameters.top_p * cumulative[-1], side="left")
        order = order[: int(reached) + 1]
    filtered = np.zeros_like(weights)
    filtered[order] = weights[order]
    return filtered
