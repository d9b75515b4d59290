"""Every family, its weights rounded or in whole numbers: past the window, one stream.

However its history came, whoever drafted, whoever else was computed meanwhile, and where it went
on. On torch every kind of products with every choice; on MLX, whose products are its library's,
three.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kakeya_fleet.engine.backends import installed_backends, load_verifier
from kakeya_fleet.engine.backends.families import FAMILIES
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Logits, Verifier
from kakeya_fleet.engine.errors import WeightFormatUnsupported
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.models.weight_choice import AUTO, BITS, GROUP, WEIGHTS
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from kakeya_fleet.engine.proposers.ngram import NgramProposer
from kakeya_fleet.engine.sampling.choice import SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from scripts.train.tiny_families import GEMMA4_26B
from tests.support import draft_sources as sources
from tests.support import streams
from tests.support.breadth import all_wide_but
from tests.support.forwards import logits_of

PROMPT = [(11 * index + index * index // 7) % 48 for index in range(64)]
"""Four times what `sink_window` keeps."""
ONE_BY_ONE = (
    *([token] for token in PROMPT[:18]),
    PROMPT[18:60],
    *([token] for token in PROMPT[60:]),
)
"""Until it is past sink and window, and then before the ring of 64 slots goes round."""
OTHER = [(5 * index + 3) % 48 for index in range(41)]
COUNT = 16
KNOWN = 8
"""Tokens of the answer that a second session of the same history begins with."""
SEEDED = SamplingParameters(temperature=0.7, top_p=0.95, top_k=40, seed=2024)
SIZES: dict[str, object] = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 32}
OWN_SIZES: dict[str, dict[str, object]] = {
    "Gemma4ForCausalLM": {"hidden_size_per_layer_input": 32},
    GEMMA4_26B: {"moe_intermediate_size": 32},
}
WIDE = CacheSpec(CacheKind.CONTIGUOUS, capacity=64)
CHOICES = [each for each in WEIGHTS if each != AUTO]
# Those with pictures have the same text model, which is read by other names.
TEXT_FAMILIES = sorted({family.text_model for family in FAMILIES.values()} & FAMILIES.keys())
ONE_CHOICE = {
    "Gemma3ForCausalLM": "int4",
    "GptOssForCausalLM": "int4",
    "MistralForCausalLM": "bf16",
    "MixtralForCausalLM": "int8",
    "Olmo2ForCausalLM": "bf16",
    "Phi3ForCausalLM": "int4",
    "Qwen3ForCausalLM": "int8",
}
"""Families whose kinds of products others have too: each meets one choice."""
CASES = [
    *(
        ("torch", family, weights)
        for family in TEXT_FAMILIES
        for weights in CHOICES
        if ONE_CHOICE.get(family, weights) == weights
    ),
    ("torch", GEMMA4_26B, "int4"),
    ("mlx", GEMMA4_26B, "int8"),
    ("mlx", "LlamaForCausalLM", "int4"),
    ("mlx", "Gemma3ForCausalLM", "int8"),
    ("mlx", "Qwen3ForCausalLM", "bf16"),
]
TRIED = [
    *(("torch", "LlamaForCausalLM", weights) for weights in CHOICES),
    ("torch", "Qwen2ForCausalLM", "int8"),
    ("torch", "Gemma4ForCausalLM", "int8"),
    ("torch", "Qwen3MoeForCausalLM", "int8"),
    ("torch", "Qwen3_5ForCausalLM", "bf16"),
    ("mlx", "LlamaForCausalLM", "int4"),
]
"""A family of each kind of layers, by `make test`: compiled, with biases, with shared keys and
inputs of layers, of experts, recurrent. The others are wide; bfloat16 on MLX: its exactness."""


@pytest.fixture(scope="module", params=all_wide_but(TRIED, CASES), ids="-".join)
def verifier(request: pytest.FixtureRequest, random_checkpoint: Callable[..., Path]) -> Verifier:
    backend, family, weights = request.param
    if backend not in installed_backends():
        pytest.skip(f"the libraries of the back end {backend} are not installed")
    sizes = SIZES | OWN_SIZES.get(family, {})
    folder = ModelFolder(random_checkpoint(family, **sizes), "random")
    found = load_verifier(folder, backend=backend, dtype="bfloat16", weights=weights)
    in_groups = f"{weights}-g{GROUP}" + ("-f16" if backend == "torch" else "")
    assert found.info.quantization == (in_groups if weights in BITS else weights)
    return found


@pytest.fixture(scope="module")
def spec(specs: dict[str, CacheSpec]) -> CacheSpec:
    return specs["sink_window"]


def read(session: Session) -> Session:
    while PrefillTurn(session)():
        pass
    return session


def opened(verifier: Verifier, spec: CacheSpec, tokens: list[int]) -> Session:
    session = Session(verifier, verifier.allocate(spec))
    session.append(tokens)
    return session


@pytest.fixture(scope="module")
def alone(verifier: Verifier, spec: CacheSpec) -> list[int]:
    """The stream without any proposer, one token a forward."""
    session = Session(verifier, verifier.allocate(spec))
    for piece in ONE_BY_ONE:
        session.append(piece)
        read(session)
    tokens = [VerifyTurn(session, Block([], SEEDED, 1))().step.committed[0] for _ in range(COUNT)]
    assert len(set(tokens)) > 1
    return tokens


async def test_one_history_has_one_stream(
    verifier: Verifier, spec: CacheSpec, alone: list[int]
) -> None:
    at_once = read(opened(verifier, spec, PROMPT))

    async def drafted(source: object, block_size: int) -> list[int]:
        asked = streams.parameters(COUNT, sampling=SEEDED, block_size=block_size)
        forked = at_once.fork()
        tokens, _ = await streams.collect(forked, source, asked, run=sources.yielding)  # type: ignore[arg-type]
        forked.end("compared")
        return tokens

    text, vocabulary = [*PROMPT, *alone], verifier.info.vocabulary_size
    assert await drafted(LocalDraftSource(NgramProposer()), 4) == alone, "with a drafter"
    assert await drafted(sources.OracleSource(text, vocabulary), 15) == alone, "with one who knows"
    assert await drafted(sources.ChaoticSource(text, vocabulary, seed=15), 15) == alone, "a liar"

    rng = random.Random(7)
    chunked = Session(verifier, verifier.allocate(spec))
    while len(chunked.history) < len(PROMPT):
        first = len(chunked.history)
        chunked.append(PROMPT[first : first + rng.randint(1, 30)])
        for _ in range(rng.randint(0, 3)):
            PrefillTurn(chunked)()
    step = VerifyTurn(read(chunked), Block([*alone[:5], 0, 1], SEEDED, COUNT))().step
    assert step.committed == tuple(alone[: len(step.committed)]), "read in other parts"
    assert len(step.committed) >= 5

    resumed = read(opened(verifier, spec, [*PROMPT, *alone[:9]]))
    rest = VerifyTurn(resumed, Block(alone[9:15], SEEDED, COUNT - 9))().step.committed
    assert rest[:6] == tuple(alone[9:15]), "gone on elsewhere, with its history"


# What shares a forward is a row of products: those of each choice and of experts.
@pytest.mark.parametrize(
    "verifier",
    all_wide_but(
        lambda case: case in TRIED and case[1] not in ("Gemma4ForCausalLM", "Qwen3_5ForCausalLM"),
        CASES,
    ),
    indirect=True,
    ids="-".join,
)
async def test_company_changes_no_token(
    verifier: Verifier, spec: CacheSpec, alone: list[int]
) -> None:
    runner = sources.ThreadRunner()

    async def one(prompt: list[int], count: int) -> list[int]:
        asked = streams.parameters(count, sampling=SEEDED, block_size=3)
        session = opened(verifier, spec, prompt)
        source = LocalDraftSource(NgramProposer())
        return (await streams.collect(session, source, asked, run=runner))[0]

    same, kept = one([*PROMPT, *alone[:KNOWN]], COUNT - KNOWN), one(PROMPT, COUNT)
    found = await asyncio.gather(kept, one(OTHER, COUNT), same)
    runner.close()
    assert found[0] == alone
    assert found[2] == alone[KNOWN:]


@pytest.mark.parametrize(
    ("backend", "family"), [("torch", "Gemma3ForCausalLM"), ("mlx", "LlamaForCausalLM")]
)
def test_eight_bits_are_nearer_to_the_checkpoint_than_four(
    backend: str, family: str, random_checkpoint: Callable[..., Path]
) -> None:
    """And both are other numbers: a back end that ignored the choice would pass all else."""
    if backend not in installed_backends():
        pytest.skip(f"the libraries of the back end {backend} are not installed")
    folder = ModelFolder(random_checkpoint(family, **SIZES), "random")

    def logits(weights: str) -> Logits:
        verifier = load_verifier(folder, backend=backend, weights=weights)
        return logits_of(verifier, verifier.allocate(WIDE), PROMPT[:30])

    whole = logits(AUTO)
    apart = {each: float(np.abs(logits(each) - whole).mean()) for each in CHOICES}
    assert 0 < apart["bf16"] < apart["int8"] < apart["int4"] / 2, apart
    assert apart["int8"] < 0.1 * float(np.abs(whole).mean()), apart


@pytest.mark.parametrize("backend", ["torch", "mlx"])
def test_inputs_that_groups_do_not_divide_are_refused_by_name(
    backend: str, random_checkpoint: Callable[..., Path]
) -> None:
    if backend not in installed_backends():
        pytest.skip(f"the libraries of the back end {backend} are not installed")
    folder = ModelFolder(
        random_checkpoint("Gemma3ForCausalLM", **{**SIZES, "intermediate_size": 80}), "random"
    )
    with pytest.raises(WeightFormatUnsupported, match=r"down_proj has 80: leave `--weights`"):
        load_verifier(folder, backend=backend, weights="int8")
