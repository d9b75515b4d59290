"""What is drawn is the filtered softmax: many draws, and the same ones with drafts.

The probabilities are worked out here from the definitions, one token at a time
and with no drafts, by plain Python.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest
from scipy.stats import chisquare

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Logits
from kakeya_fleet.engine.sampling.choice import SamplingParameters, choose_token
from kakeya_fleet.engine.sampling.logit_bias import LogitBias
from kakeya_fleet.engine.sessions.acceptance import decide
from kakeya_fleet.engine.sessions.history import History
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_driver import SessionDriver
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from kakeya_fleet.engine.speculation.generation import generate
from kakeya_fleet.engine.speculation.generation_parameters import GenerationParameters
from kakeya_fleet.engine.speculation.generation_report import Committed, Done
from kakeya_fleet.engine.speculation.roster import Roster
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support.breadth import wide
from tests.support.forwards import told

VOCABULARY = 6
DRAWS = 6_000
PROMPT = (2, 4)
# The chance that a right distribution is called wrong; seeds are fixed.
LEAST_P = 1e-4
TABLE = np.random.default_rng(12).uniform(-1.5, 2.5, (VOCABULARY, VOCABULARY)).astype(np.float32)

FILTERED = SamplingParameters(temperature=0.9, top_p=0.9, top_k=5, min_p=0.06)
ALL = SamplingParameters(
    temperature=1.2,
    top_p=0.97,
    top_k=5,
    min_p=0.04,
    repetition_penalty=1.4,
    logit_bias=LogitBias.of({1: 0.5, 5: -math.inf}),
)


Outcome = TypeVar("Outcome", bound=Hashable)


def probabilities(
    row: Logits, parameters: SamplingParameters, history: Sequence[int]
) -> list[float]:
    """By id, from the definitions: 0 for what is filtered away."""
    logits = [float(logit) for logit in row]
    for token_id, bias in parameters.logit_bias.biases:
        logits[token_id] += bias
    for token_id in set(history):
        penalty = parameters.repetition_penalty
        logits[token_id] *= penalty if logits[token_id] < 0 else 1 / penalty
    scaled = [logit / parameters.temperature for logit in logits]
    ranked = sorted(range(len(scaled)), key=lambda token_id: (-scaled[token_id], token_id))
    kept = ranked[: parameters.top_k or len(ranked)]
    weights = {token_id: math.exp(scaled[token_id] - scaled[ranked[0]]) for token_id in kept}
    if parameters.top_p not in (0.0, 1.0):
        sums = itertools.accumulate(weights[token_id] for token_id in kept)
        wanted = parameters.top_p * sum(weights.values())
        kept = kept[: next(count for count, total in enumerate(sums, 1) if total >= wanted)]
    kept = [token_id for token_id in kept if weights[token_id] >= parameters.min_p]
    total = sum(weights[token_id] for token_id in kept)
    return [weights[token_id] / total if token_id in kept else 0.0 for token_id in range(len(row))]


def check(counts: Counter[Outcome], expected: Mapping[Outcome, float]) -> None:
    """`counts` and `expected` probabilities by outcome; what is impossible never came."""
    possible = [outcome for outcome, probability in expected.items() if probability > 0]
    draws = sum(counts.values())
    assert sum(counts[outcome] for outcome in possible) == draws
    assert len(possible) > 1
    observed = [counts[outcome] for outcome in possible]
    wanted = [expected[outcome] * draws for outcome in possible]
    assert min(wanted) > 5, "too few for the chi-square distribution"
    assert chisquare(observed, wanted).pvalue > LEAST_P


def spoiled(right: Sequence[int], rightness: float, rng: random.Random) -> list[int]:
    """`right`, of which each token is wrong with probability 1 - `rightness`."""
    return [
        token
        if rng.random() < rightness
        else (token + 1 + rng.randrange(VOCABULARY - 1)) % VOCABULARY
        for token in right
    ]


PARAMETERS = replace(FILTERED, seed=5)


SPECULATED = 1_500
"""Of the draws, as many as are also taken in other ways."""


def drawn(tokens: list[int], count: int) -> list[int]:
    """`tokens` up to so many, one at a time: each is drawn from the row of the last."""
    while len(tokens) <= count:
        tokens.append(choose_token(TABLE[tokens[-1]], PARAMETERS, len(tokens)))
    return tokens


@pytest.fixture(scope="module")
def truth() -> list[int]:
    """`DRAWS` tokens behind [0]."""
    return drawn([0], DRAWS)


@pytest.mark.parametrize("draws", [DRAWS, wide(8 * DRAWS)])
def test_a_long_stream_follows_the_filtered_softmax_after_every_token(
    truth: list[int], draws: int
) -> None:
    pairs = Counter(itertools.pairwise(drawn(truth, draws)[:draws]))
    assert pairs.total() == draws - 1
    for before in {pair[0] for pair in pairs}:
        counts = Counter({pair[1]: count for pair, count in pairs.items() if pair[0] == before})
        check(counts, dict(enumerate(probabilities(TABLE[before], PARAMETERS, ()))))


@pytest.mark.parametrize("count", [SPECULATED, wide(2 * SPECULATED)])
@pytest.mark.parametrize(
    ("rightness", "sizes"), [(None, {1}), (1.0, {4}), (0.5, {1, 2, 3, 4})], ids=str
)
def test_the_long_stream_is_drawn_whatever_is_proposed(
    truth: list[int], rightness: float | None, sizes: set[int], count: int
) -> None:
    """Without a proposer, with one that is always right, and with one right half of the time."""
    rng = random.Random(1)
    history, seen_sizes = History([0]), set()
    while len(history) < count:
        draft: list[int] = []
        if rightness is not None:
            draft = spoiled(truth[len(history) : len(history) + 3], rightness, rng)
        choices = decide(TABLE[[history[-1], *draft]], draft, PARAMETERS, history)
        seen_sizes.add(len(choices))
        history.extend(choice.token_id for choice in choices)
    assert seen_sizes == sizes
    assert history[:count] == truth[:count]


def joint_probabilities(
    row_after: Callable[[Sequence[int]], Logits],
    prompt: Sequence[int],
    parameters: SamplingParameters,
    size: int,
) -> dict[tuple[int, int], float]:
    """Of pairs of tokens behind `prompt`: the second knows of the first."""
    expected = {}
    for first, chance in enumerate(probabilities(row_after(prompt), parameters, prompt)):
        if chance > 0:
            text = [*prompt, first]
            second = probabilities(row_after(text), parameters, text)
            for token in range(size):
                expected[first, token] = chance * second[token]
    return expected


@pytest.mark.parametrize("pairs", [1_500, wide(4_000)])
def test_two_tokens_together_under_every_parameter_and_a_half_right_proposer(pairs: int) -> None:
    """Pairs of tokens, a seed each. The penalty ties the second to the first."""
    rng = random.Random(3)
    counts: Counter[tuple[int, int]] = Counter()
    sizes: set[int] = set()
    for seed in range(pairs):
        parameters = replace(ALL, seed=seed)
        history = History(PROMPT)
        (first,) = decide(TABLE[[PROMPT[-1]]], [], parameters, history)
        draft = spoiled([first.token_id], 0.5, rng)
        while len(history) < len(PROMPT) + 2:
            choices = decide(TABLE[[history[-1], *draft]], draft, parameters, history)
            sizes.add(len(choices))
            history.extend(choice.token_id for choice in choices)
            draft = []
        counts[history[len(PROMPT)], history[len(PROMPT) + 1]] += 1
    assert sizes == {1, 2}
    check(counts, joint_probabilities(lambda text: TABLE[text[-1]], PROMPT, ALL, VOCABULARY))


async def test_sessions_draw_pairs_as_often_with_a_half_right_proposer() -> None:
    """The whole loop: session, forwards, draft source, commits, forks."""
    draws, prompt = 300, [index * 7 % hashing.VOCABULARY for index in range(20)]
    shape = SamplingParameters(
        temperature=0.4, top_p=0.95, top_k=3, min_p=0.05, repetition_penalty=1.2
    )
    verifier = hashing.HashVerifier()
    spec = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=8)

    def opened(tokens: Sequence[int]) -> Session:
        session = Session(verifier, verifier.allocate(spec))
        session.append(tokens)
        while PrefillTurn(session)():
            pass
        return session

    class Rows:
        """Stands for a row's logits after a text, as the verifier gives them."""

        def after(self, text: Sequence[int]) -> Logits:
            session = opened(text)
            (output,) = verifier.forward_batch([session.verify_feed([], 1)])
            row: Logits = told(output)[0]
            return row

    counts: Counter[tuple[int, int]] = Counter()
    drafted = accepted = 0
    for seed in range(draws):
        sampling = replace(shape, seed=seed)
        alone = opened(prompt)
        for _ in range(3):
            VerifyTurn(alone, Block([], sampling, 1))()
        source = sources.AdversarialSource(list(alone.history), hashing.VOCABULARY)
        # The first draft has 0, 1 or 2 right tokens in turn.
        source.call_count = seed
        session = opened(prompt)
        asked = GenerationParameters(2, sampling, block_size=2, adaptive=False)
        events = [
            event
            async for event in generate(
                session, Roster.of_one(source), asked, SessionDriver(sources.yielding, lambda: 0.0)
            )
        ]
        *committed, done = events
        tokens = [
            token
            for event in committed
            if isinstance(event, Committed)
            for token in event.token_ids
        ]
        assert isinstance(done, Done)
        assert tokens == alone.history[len(prompt) : len(prompt) + 2]
        drafted += done.speculation.drafted_count
        accepted += done.speculation.accepted_count
        counts[tokens[0], tokens[1]] += 1
        for each in (alone, session):
            each.end("counted")
    assert 0.3 < accepted / drafted < 0.7
    check(counts, joint_probabilities(Rows().after, prompt, shape, hashing.VOCABULARY))
