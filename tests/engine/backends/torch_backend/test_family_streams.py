"""Every family: neither the drafts, nor their size, nor the cache itself change a stream."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
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
from scripts.train.tiny_families import GEMMA4_26B
from tests.support.breadth import all_wide_but, wide


@dataclass(frozen=True)
class Case:
    """A family, the cache and the way to choose that it meets, and how many tokens a draft has."""

    architecture: str
    cache: str
    sampling: str
    size: int


# No cache knows how tokens are chosen: pairs. Drafts have sizes around each count of rows
# that a forward of one and the token before it may have.
CASES = [
    Case("LlamaForCausalLM", "full", "greedy", 1),
    Case("MistralForCausalLM", "sink_window", "seeded", 15),
    Case("Qwen3ForCausalLM", "sink_window", "greedy", 11),
    Case("Phi3ForCausalLM", "full", "greedy", 5),
    Case("Olmo2ForCausalLM", "sink_window", "seeded", 2),
    Case("Qwen3MoeForCausalLM", "sink_window", "seeded", 9),
    Case("MixtralForCausalLM", "full", "greedy", 13),
    Case("GptOssForCausalLM", "sink_window", "seeded", 10),
    Case(GEMMA4_26B, "sink_window", "greedy", 6),
    Case("Gemma3ForCausalLM", "full", "seeded", 4),
    Case("Gemma4ForCausalLM", "sink_window", "seeded", 7),
    Case("Qwen3_5ForCausalLM", "sink_window", "greedy", 3),
    Case("Qwen3_5ForCausalLM", "full", "seeded", 16),
]
CONFIG: dict[str, dict[str, object]] = {"MistralForCausalLM": {"sliding_window": 24}}
SPECS = {
    "full": CacheSpec(CacheKind.CONTIGUOUS, capacity=400),
    "sink_window": CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13),
}
SAMPLINGS = {
    "greedy": GREEDY,
    "seeded": SamplingParameters(
        temperature=0.9, top_p=0.95, min_p=0.01, repetition_penalty=1.1, seed=11
    ),
}
PROMPT = [(17 * index + index * index // 3) % 96 for index in range(58)]
"""With the answer it is past sink and window, and round the ring of 64 slots."""
COUNT = 24


KEPT = [case for case in CASES if case.size in {1, 3, 7}]
"""All is seen, layers that share keys, a recurrence; each cache and each way to choose."""


def loaded(random_checkpoint: Callable[..., Path], architecture: str) -> Verifier:
    path = random_checkpoint(architecture, **CONFIG.get(architecture, {}))
    return load_verifier(ModelFolder(path, "random"))


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


@pytest.mark.parametrize(
    "case",
    all_wide_but(KEPT, CASES),
    ids=lambda case: f"{case.architecture} {case.cache} {case.sampling}",
)
def test_neither_drafts_nor_the_cache_change_a_token(
    random_checkpoint: Callable[..., Path], case: Case
) -> None:
    verifier = loaded(random_checkpoint, case.architecture)
    spec, sampling = SPECS[case.cache], SAMPLINGS[case.sampling]
    alone = stream(verifier, spec, sampling, COUNT)
    assert len(set(alone)) > 5, "a stream of few tokens could hide a wrong window"
    rng = random.Random(case.size)

    def draft(first: int, most: int) -> list[int]:
        """Right for some seven tenths, then ones."""
        guesses = [
            token if rng.random() < 0.7 else rng.randrange(96)
            for token in alone[first : first + min(case.size, most)]
        ]
        return [*guesses, *[1] * (min(case.size, most) - len(guesses))]

    assert stream(verifier, spec, sampling, COUNT, draft) == alone, f"seed {case.size}"
    assert stream(RecomputingVerifier(verifier), spec, sampling, 8) == alone[:8]


# A plain family is held to it in `test_exactness`; these have every other kind of layer.
@pytest.mark.parametrize(
    "architecture", [wide("Gemma4ForCausalLM"), "Qwen3_5ForCausalLM", wide(GEMMA4_26B)]
)
def test_the_check_at_load_finds_every_kind_of_layer_exact(
    random_checkpoint: Callable[..., Path], architecture: str
) -> None:
    verifier = loaded(random_checkpoint, architecture)
    # Which of all agree is no matter of the kind of layer: the least, a block, the most.
    counts = verifier.row_counts
    verifier.use_row_counts(sorted({counts[0], verifier.info.width, counts[-1]}))
    assert settle(verifier).exact
