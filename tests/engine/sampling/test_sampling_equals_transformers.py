"""Each filter, and all in their order, against the transformers library's own processors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import LogitsProcessorList
from transformers.generation import logits_process as theirs

from kakeya_fleet.engine.sampling.choice import SamplingParameters, choose_token
from kakeya_fleet.engine.sampling.logit_bias import LogitBias
from kakeya_fleet.engine.sampling.randomness import uniform
from kakeya_fleet.engine.sampling.truncation import Truncation, truncated

VOCABULARY = 500
HISTORY = [3, 14, 15, 92, 65, 35, 89, 79, 3, 3, 400]
BIAS = {3: 2.5, 7: -4.0, 250: 1.0, 499: -100.0}


def random_logits(seed, scale: float = 3.0):
    # With the same order in float32 and float64, and no ties.
    return (np.random.default_rng(seed).standard_normal(VOCABULARY) * scale).astype(np.float32)


def processed(logits, *processors):
    """Their scores in float64, which all of these processors keep."""
    ids = torch.tensor([HISTORY])
    scores = torch.from_numpy(logits.astype(np.float64))[None].clone()
    return LogitsProcessorList(processors)(ids, scores)[0].numpy()


def filters(temperature, top_k, top_p, min_p):
    made = [theirs.TemperatureLogitsWarper(temperature)] if temperature != 1.0 else []
    if top_k:
        made.append(theirs.TopKLogitsWarper(top_k))
    if top_p not in (0.0, 1.0):
        made.append(theirs.TopPLogitsWarper(top_p))
    if min_p:
        made.append(theirs.MinPLogitsWarper(min_p))
    return made


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [
        (0.5, 0, 0.0, 0.0),
        *((1.0, top_k, 0.0, 0.0) for top_k in (1, 2, 50, 499, 500, 9999)),
        *((1.0, 0, top_p, 0.0) for top_p in (0.001, 0.3, 0.9, 0.999, 1.0)),
        *((1.0, 0, 0.0, min_p) for min_p in (1e-4, 0.05, 0.9, 1.0)),
        (1.3, 60, 0.9, 0.02),
        (0.2, 5, 0.5, 0.5),
        (90.0, 300, 0.7, 0.9),
    ],
)
def test_the_same_ids_with_the_same_probabilities_are_kept(
    temperature, top_k, top_p, min_p
) -> None:
    for seed in range(5):
        logits = random_logits(seed)
        scores = processed(logits, *filters(temperature, top_k, top_p, min_p))
        ids, weights = truncated(
            logits.astype(np.float64), temperature, Truncation(top_k, top_p, min_p)
        )
        kept = np.arange(VOCABULARY) if ids is None else ids
        assert kept.tolist() == np.flatnonzero(np.isfinite(scores)).tolist(), seed
        wanted = np.exp(scores[kept] - scores.max())
        np.testing.assert_allclose(weights, wanted, rtol=1e-12)


@pytest.mark.parametrize(("penalty", "seed"), [(0.7, 0), (1.1, 1), (2.0, 2)])
def test_the_repetition_penalty_with_the_bias_before_it(penalty: float, seed: int) -> None:
    logits = random_logits(seed, scale=1.0)
    bias = theirs.SequenceBiasLogitsProcessor([[[key], value] for key, value in BIAS.items()])
    scores = processed(logits, bias, theirs.RepetitionPenaltyLogitsProcessor(penalty))
    seen = np.zeros(VOCABULARY, bool)
    seen[HISTORY] = True
    # What is left when the best are banned one by one shows the order of all scores.
    order = np.argsort(-scores, kind="stable")[:100]
    banned: dict[int, float] = dict(BIAS)
    for wanted in order:
        parameters = SamplingParameters(repetition_penalty=penalty, logit_bias=LogitBias.of(banned))
        assert choose_token(logits, parameters, 0, seen) == wanted
        banned[int(wanted)] = -np.inf


def test_all_of_them_together_draw_the_same_token_from_the_same_number() -> None:
    parameters = SamplingParameters(
        temperature=1.4,
        top_p=0.92,
        top_k=80,
        seed=5,
        min_p=0.01,
        repetition_penalty=1.3,
        logit_bias=LogitBias.of(BIAS),
    )
    seen = np.zeros(VOCABULARY, bool)
    seen[HISTORY] = True
    processors = [
        theirs.SequenceBiasLogitsProcessor([[[key], value] for key, value in BIAS.items()]),
        theirs.RepetitionPenaltyLogitsProcessor(1.3),
        *filters(1.4, 80, 0.92, 0.01),
    ]
    drawn = set()
    for position in range(400):
        logits = random_logits(position)
        scores = processed(logits, *processors)
        below = np.cumsum(np.exp(scores - scores.max()))
        wanted = int(np.argmax(below > uniform(5, position) * below[-1]))
        assert choose_token(logits, parameters, position, seen) == wanted
        drawn.add(wanted)
    assert len(drawn) > 100
