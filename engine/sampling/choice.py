"""The verifier's own choice of a token.

The choice at a position is a function of (history before it, where in it the
generation began, parameters, position) alone: randomness is keyed by (seed,
position), and neither a draft nor a block enters it. Blocks are accepted by
comparing the draft with these choices, which is speculative sampling (Leviathan
et al. 2023, Chen et al. 2023) for a draft that is a point mass: token x is
accepted with probability p(x), and given that it is not, the choice is
distributed as p without x, renormalised. So the acceptance rule is exact with
ids alone, whatever p is made of, and the stream cannot depend on the proposer,
on the block size or on where blocks begin.

The order, as in the transformers library's `generate`: the model's logits,
logit bias, repetition penalty, frequency and presence penalty, the ids that a grammar
allows, temperature, top-k, top-p, min-p, all in float64. Stop ids are no part of it: they
end a generation, and a bias alone bans them, or a grammar that may not end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.verifier import Logits
from kakeya_fleet.engine.errors import BadParameters, GrammarRefused, InvariantViolated
from kakeya_fleet.engine.invariants import FINITE_LOGITS
from kakeya_fleet.engine.sampling.answer import Answer
from kakeya_fleet.engine.sampling.count_penalties import check_count_penalty, penalise_counts
from kakeya_fleet.engine.sampling.inversion import drawn
from kakeya_fleet.engine.sampling.log_probabilities import check_alternatives
from kakeya_fleet.engine.sampling.logit_bias import FIELD as LOGIT_BIAS
from kakeya_fleet.engine.sampling.logit_bias import NO_BIAS, LogitBias
from kakeya_fleet.engine.sampling.randomness import check_seed, uniform
from kakeya_fleet.engine.sampling.repetition_penalty import check_repetition_penalty, penalise
from kakeya_fleet.engine.sampling.truncation import Truncation, truncated

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_TEMPERATURE = 100.0
_NEGLIGIBLE = 16.0
"""Temperatures below the largest logit: such an id weighs 1e-7 of the likeliest one."""


def _check_range(field: str, value: float, highest: float) -> None:
    if not math.isfinite(value):
        raise BadParameters(f"{field} is {value}, not a finite number", field=field)
    if not 0.0 <= value <= highest:
        raise BadParameters(f"{field} {value} is not between 0 and {highest:g}", field=field)


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """How tokens are chosen.

    `temperature` 0 is greedy: the largest logit after bias and penalty, the
    filters are then without effect. Otherwise logits are divided by it, and
    `top_k` (0 keeps all), `top_p` (0 or 1 keeps all) and `min_p` (0 keeps all)
    filter as `engine.sampling.truncation` says. `seed` names the sampled stream.
    `repetition_penalty` is that of `engine.sampling.repetition_penalty`, 1 none, over all
    of the history, `logit_bias` that of `engine.sampling.logit_bias`. `frequency_penalty` and
    `presence_penalty` are those of `engine.sampling.count_penalties`, over the generation.
    `top_log_probabilities` asks for the log-probability of each chosen token and
    of so many alternatives; None for none.

    Raises `BadParameters` outside 0 <= temperature <= 100, 0 <= top_p <= 1,
    top_k >= 0, 0 <= seed < 2**64, 0 <= min_p <= 1, 1/64 <= repetition_penalty
    <= 64, 0 <= top_log_probabilities <= 20, -2 <= frequency_penalty <= 2,
    -2 <= presence_penalty <= 2.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: LogitBias = NO_BIAS
    top_log_probabilities: int | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0

    def __post_init__(self) -> None:
        _check_range("temperature", self.temperature, MAX_TEMPERATURE)
        _check_range("top_p", self.top_p, 1.0)
        _check_range("min_p", self.min_p, 1.0)
        if self.top_k < 0:
            raise BadParameters(f"top_k {self.top_k} is negative; 0 keeps all", field="top_k")
        check_seed(self.seed)
        check_repetition_penalty(self.repetition_penalty)
        check_alternatives(self.top_log_probabilities)
        check_count_penalty("frequency_penalty", self.frequency_penalty)
        check_count_penalty("presence_penalty", self.presence_penalty)

    def check_vocabulary(self, vocabulary_size: int) -> None:
        """Raises `BadParameters` for a biased id outside the vocabulary, or all banned."""
        self.logit_bias.check_vocabulary(vocabulary_size)

    @property
    def greedy(self) -> bool:
        """Whether the largest logit after bias and penalty is always chosen."""
        return self.temperature == 0.0

    @property
    def drawing(self) -> Drawing | None:
        """What a drafter needs to draw as these do; None for greedy ones."""
        if self.greedy:
            return None
        return Drawing(self.temperature, self.seed, self.top_p, self.top_k, self.min_p)

    @property
    def penalises_repetition(self) -> bool:
        """Whether a choice depends on which ids the history has."""
        return self.repetition_penalty != 1.0

    @property
    def penalises_counts(self) -> bool:
        """Whether a choice depends on how often the generation has said which ids."""
        return self.frequency_penalty != 0.0 or self.presence_penalty != 0.0


GREEDY = SamplingParameters()


def choose(logits: Logits, parameters: SamplingParameters, first_position: int) -> list[int]:
    """The choice of each row of `logits` [n, vocabulary], float32, without penalties and grammar.

    Row i decides the token at index `first_position` + i of the history.
    Raises as `choose_token`.
    """
    return [
        choose_token(row, parameters, first_position + offset) for offset, row in enumerate(logits)
    ]


def likeliest_token(row: Logits) -> tuple[int, float]:
    """A drafter's choice of a row of its own logits [vocabulary], and its lead on the next."""
    best = int(row.argmax())
    others = max(row[:best].max(initial=-math.inf), row[best + 1 :].max(initial=-math.inf))
    lead = float(row[best]) - float(others)
    return best, lead if lead >= 0 else 0.0


def drawn_token(row: Logits, drawing: Drawing, position: int) -> tuple[int, float]:
    """A drafter's choice of a row of its own logits [vocabulary], with its verifier's numbers.

    And how much of the probability lies between the number and what would choose another token.
    Of logits that are not finite what `argmax` makes of them: a guess may be wrong.
    """
    best = row.max()
    if not math.isfinite(best):
        return int(row.argmax()), 0.0
    # Most ids weigh nothing beside the likeliest: a guess may leave them out.
    likely = np.flatnonzero(row >= best - _NEGLIGIBLE * drawing.temperature)
    filters = Truncation(drawing.top_k, drawing.top_p, drawing.min_p)
    ids, weights = truncated(row[likely].astype(np.float64), drawing.temperature, filters)
    kept = likely if ids is None else likely[ids]
    index, margin = drawn(weights, uniform(drawing.seed, position))
    return int(kept[index]), margin


def choose_token(
    row: Logits,
    parameters: SamplingParameters,
    position: int,
    seen: NDArray[np.bool_] | None = None,
    answer: Answer | None = None,
) -> int:
    """The choice of one row of logits [vocabulary] for index `position`.

    `seen` [vocabulary] marks the ids that the history before `position` has; it
    is needed with a repetition penalty and not looked at without. `answer` is what the
    generation has said before `position`; it is needed with penalties by counts, and where
    a grammar holds the generation. Greedy is the
    largest logit, the lowest id among equals. Sampled is the inverse of the
    cumulative distribution over the kept ids in ascending order at
    `uniform(seed, position)`.

    Raises `InvariantViolated` when the largest logit is not finite: no such
    model's choice means anything; `BadParameters` when the bias bans every id
    to which the model and the grammar give a chance; `GrammarRefused` when the grammar
    allows none, or costs too much; `ValueError` without `seen` or `answer` where it is needed.
    """
    best = int(row.argmax())
    if not math.isfinite(row[best]):
        raise InvariantViolated(
            f"the logits for position {position} are not finite", invariant=FINITE_LOGITS
        )
    allowed = None if answer is None else answer.allowed()
    adjusts = (
        bool(parameters.logit_bias.biases)
        or parameters.penalises_repetition
        or parameters.penalises_counts
    )
    if parameters.greedy and not adjusts and (allowed is None or allowed[best]):
        return best
    logits = row.astype(np.float64)
    if adjusts:
        _adjust(logits, parameters, seen, answer)
    if allowed is not None:
        _hold(logits, allowed, position)
    if adjusts or allowed is not None:
        best = int(logits.argmax())
        if logits[best] == -math.inf:
            also = "" if allowed is None else " and the grammar"
            raise BadParameters(
                f"{LOGIT_BIAS} bans every id that the model{also} allows at position {position}",
                field=LOGIT_BIAS,
            )
        if parameters.greedy:
            return best
    truncation = Truncation(parameters.top_k, parameters.top_p, parameters.min_p)
    ids, weights = truncated(logits, parameters.temperature, truncation)
    index, _ = drawn(weights, uniform(parameters.seed, position))
    return index if ids is None else int(ids[index])


def _hold(logits: NDArray[np.float64], allowed: NDArray[np.bool_], position: int) -> None:
    """Leaves what the grammar allows."""
    if not allowed.any():
        raise GrammarRefused(
            f"the grammar allows no token of this model's vocabulary at position {position}, and"
            " may not end there either"
        )
    logits[~allowed] = -math.inf


def _adjust(
    logits: NDArray[np.float64],
    parameters: SamplingParameters,
    seen: NDArray[np.bool_] | None,
    answer: Answer | None,
) -> None:
    parameters.logit_bias.add_to(logits)
    if parameters.penalises_repetition:
        if seen is None:
            raise ValueError("a repetition penalty needs the ids that the history has")
        penalise(logits, seen, parameters.repetition_penalty)
    if parameters.penalises_counts:
        if answer is None:
            raise ValueError("penalties by counts need what the generation has said")
        frequency, presence = parameters.frequency_penalty, parameters.presence_penalty
        penalise_counts(logits, answer.counts, frequency, presence)
