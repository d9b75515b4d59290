"""Every family: neither the drafts, nor their size, nor the cache itself change a stream."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from kakeya_fleet.engine.verifiers.exactness import settle
from scripts.support.recomputing import RecomputingVerifier

FAMILIES: dict[str, dict[str, object]] = {
    "LlamaForCausalLM": {},
    "MistralForCausalLM": {"sliding_window": 24},
    "Qwen3ForCausalLM": {},
    "Gemma3ForCausalLM": {},
    "Gemma4ForCausalLM": {},
    "Qwen3_5ForCausalLM": {},
}
# Of drafts, around each count of rows that a forward of one and the token before it may
# have. A family meets one in each cache: `test_family_exactness` cuts its rows otherwise.
SIZES = {
    "LlamaForCausalLM": (1, 16),
    "MistralForCausalLM": (2, 15),
    "Qwen3ForCausalLM": (3, 11),
    "Gemma3ForCausalLM": (8, 4),
    "Gemma4ForCausalLM": (7, 16),
    "Qwen3_5ForCausalLM": (15, 3),
}
SPECS = {
    "full": CacheSpec(CacheKind.CONTIGUOUS, capacity=400),
    "sink_window": CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13),
}
SAMPLED = SamplingParameters(
    temperature=0.9, top_p=0.95, min_p=0.01, repetition_penalty=1.1, seed=11
)
# No cache knows how tokens are chosen: each family meets both caches and both ways.
CASES = [("full", "greedy"), ("sink_window", "seeded")]
PROMPT = [(17 * index + index * index // 3) % 96 for index in range(70)]
COUNT = 60


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def verifier(family: str, random_checkpoint: Callable[..., Path]) -> Verifier:
    path = random_checkpoint(family, **FAMILIES[family])
    return load_verifier(ModelFolder(path, "random"))


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    spec, sampling = request.param
    return spec, sampling


@pytest.fixture(scope="module")
def spec(case: tuple[str, str]) -> CacheSpec:
    return SPECS[case[0]]


@pytest.fixture(scope="module")
def sampling(case: tuple[str, str]) -> SamplingParameters:
    return GREEDY if case[1] == "greedy" else SAMPLED


@pytest.fixture(scope="module")
def alone(verifier: Verifier, spec: CacheSpec, sampling: SamplingParameters) -> list[int]:
    """The stream of the verifier without a proposer."""
    return stream(verifier, spec, sampling, COUNT)


def stream(
    verifier: Verifier,
    spec: CacheSpec,
    sampling: SamplingParameters,
    count: int,
    draft: Callable[[int, int], list[int]] = lambda _first, _most: [],
) -> list[int]:
    """`count` tokens behind the prompt; `draft(first, most)` guesses from index `first` on."""
    session = Session(verifier, verifier.allocate(spec))
    try:
        session.append(PROMPT)
        while PrefillTurn(session)():
            pass
        while (done := len(session.history) - len(PROMPT)) < count:
            VerifyTurn(session, Block(draft(done, count - done - 1), sampling, count - done))()
        return list(session.history[len(PROMPT) :])
    finally:
        session.end("closed")


def test_the_stream_has_variety(alone: list[int]) -> None:
    assert len(set(alone)) > 5, "a stream of few tokens could hide a wrong window"


def test_drafts_that_are_half_right_change_no_token(
    family: str,
    verifier: Verifier,
    case: tuple[str, str],
    sampling: SamplingParameters,
    alone: list[int],
) -> None:
    size = SIZES[family][CASES.index(case)]
    rng = random.Random(size)

    def draft(first: int, most: int) -> list[int]:
        guesses = [
            token if rng.random() < 0.7 else rng.randrange(96)
            for token in alone[first : first + min(size, most)]
        ]
        return [*guesses, *[1] * (min(size, most) - len(guesses))]

    assert stream(verifier, SPECS[case[0]], sampling, COUNT, draft) == alone, f"seed {size}"


def test_without_a_cache_the_stream_is_the_same(
    verifier: Verifier, spec: CacheSpec, sampling: SamplingParameters, alone: list[int]
) -> None:
    assert stream(RecomputingVerifier(verifier), spec, sampling, 16) == alone[:16]


def test_the_check_at_load_finds_every_family_exact(verifier: Verifier) -> None:
    assert settle(verifier).exact
