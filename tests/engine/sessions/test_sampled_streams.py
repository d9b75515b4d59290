"""Sampled streams of 1,000 tokens are drawn from the verifier's own distribution.

The randomized probability integral transform of a token x with probability p(x), of
which others that come first in some order have the probability F(x) together, is
F(x) + V p(x) with V uniform. It is uniform, and independent from position to position,
exactly when x is drawn from p, whatever order the history alone decides. Here the
likeliest come first: what is accepted too readily gathers at the low end. Source:
Czado, Gneiting and Held, "Predictive Model Assessment for Count Data" (2009).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest

from kakeya_fleet.engine.sampling.choice import SamplingParameters
from kakeya_fleet.engine.sessions.acceptance import decide
from kakeya_fleet.engine.sessions.history import History
from tests.support.breadth import all_wide_but

VOCABULARY = 40
POSITIONS = 1_000
SEED = 2026
LEAST_P = 1e-3
"""Right streams are called wrong as often; the seed is fixed, so that none is by chance."""
PLANTED = 0.1
ROWS = np.random.default_rng(7).normal(0, 2, (VOCABULARY, VOCABULARY)).astype(np.float32)

Row = NDArray[np.float32]
Draft = Callable[[Sequence[int]], list[int]]

PARAMETERS = {
    "temperature": SamplingParameters(temperature=1.3, seed=SEED),
    "top_k": SamplingParameters(temperature=0.8, top_k=7, seed=SEED),
    "top_p": SamplingParameters(temperature=1.1, top_p=0.85, seed=SEED),
    "min_p": SamplingParameters(temperature=1.0, min_p=0.05, seed=SEED),
    "all": SamplingParameters(temperature=0.9, top_k=20, top_p=0.95, min_p=0.02, seed=SEED),
}


# Each alone: `test_sampling_blocks`.
@pytest.fixture(params=all_wide_but(["temperature", "all"], PARAMETERS))
def parameters(request: pytest.FixtureRequest) -> SamplingParameters:
    return PARAMETERS[request.param]


def distribution(row: Row, parameters: SamplingParameters) -> tuple[list[int], list[float]]:
    """The ids that may come, the likeliest first, and their probabilities: from the definitions."""
    weights = np.exp((row.astype(float) - row.max()) / parameters.temperature)
    kept = sorted(range(len(row)), key=lambda token: -weights[token])
    kept = kept[: parameters.top_k or len(kept)]
    if parameters.top_p:
        sums = np.cumsum(weights[kept])
        kept = kept[: int(np.argmax(sums >= parameters.top_p * sums[-1])) + 1]
    kept = [token for token in kept if weights[token] >= parameters.min_p]
    return kept, list(weights[kept] / weights[kept].sum())


def transformed(tokens: Sequence[int], parameters: SamplingParameters) -> list[float]:
    """The transform of each token but the first, which the others follow."""
    rng = random.Random(SEED)
    found = []
    for last, token in itertools.pairwise(tokens):
        ids, chances = distribution(ROWS[last], parameters)
        # One that cannot come at all raises.
        rank = ids.index(token)
        found.append(sum(chances[:rank]) + rng.random() * chances[rank])
    return found


def streamed(parameters: SamplingParameters, draft: Draft) -> list[int]:
    """A token and the 1,000 that follow it, in blocks of what `draft` proposes."""
    history = History([0])
    while len(history) <= POSITIONS:
        proposed = draft(history)
        rows = ROWS[[history[-1], *proposed]]
        history.extend(choice.token_id for choice in decide(rows, proposed, parameters, history))
    return history[: POSITIONS + 1]


def p_value(tokens: Sequence[int], parameters: SamplingParameters) -> float:
    return float(kstest(transformed(tokens, parameters), "uniform").pvalue)


def test_what_is_drawn_is_the_verifiers_own_distribution(parameters: SamplingParameters) -> None:
    """Alone; and with perfect and half right drafts it is the same stream, token for token."""
    rng = random.Random(SEED)
    truth = streamed(parameters, lambda _: [])
    p = p_value(truth, parameters)
    assert p > LEAST_P, f"seed {SEED}: p = {p}"
    for rightness in (1.0, 0.5):

        def draft(history: Sequence[int], rightness: float = rightness) -> list[int]:
            right = truth[len(history) : len(history) + 4]
            return [
                token if rng.random() < rightness else rng.randrange(VOCABULARY) for token in right
            ]

        assert streamed(parameters, draft) == truth, f"seed {SEED}: {rightness} right"


def test_a_sampler_that_accepts_too_readily_is_found_out(parameters: SamplingParameters) -> None:
    """Drafts the likeliest token, and accepts it with p + 0.1; else draws another of p."""
    rng = random.Random(SEED)

    def biased(extra: float) -> list[int]:
        tokens = [0]
        while len(tokens) <= POSITIONS:
            ids, chances = distribution(ROWS[tokens[-1]], parameters)
            if rng.random() < chances[0] + extra or len(ids) == 1:
                tokens.append(ids[0])
            else:
                tokens += rng.choices(ids[1:], chances[1:])
        return tokens

    assert p_value(biased(PLANTED), parameters) < LEAST_P, f"seed {SEED}"
    assert p_value(biased(0.0), parameters) > LEAST_P, f"seed {SEED}"
