"""Drafts against the definition, and a session that is drafted for by denoising."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion import load_masked_diffusion
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.denoising import denoise
from kakeya_fleet.engine.backends.torch_backend.masked_diffusion.proposer import (
    MaskedDiffusionProposer,
)
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.draft import MAX_BLOCK_SIZE, Proposer
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import BadParameters, DraftFailed, DraftFaultKind
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.turns import Block, PrefillTurn, VerifyTurn
from scripts.train.tiny_masked import DECODERS, MASK, save_masked_checkpoint
from tests.support import draft_sources as sources
from tests.support import streams
from tests.support.breadth import all_wide_but, wide

BLOCK = 10
CONTEXT = [(13 * index + index * index // 5) % 90 for index in range(30)]
MODELS = {
    "bert": ("BertForMaskedLM", 0),
    "bert, shifted": ("BertForMaskedLM", 1),
    "qwen3": ("Qwen3ForCausalLM", 0),
    "dream": ("DreamModel", 1),
}
LogitsOf = Callable[[Sequence[int]], torch.Tensor]
"""A model: ids to logits [ids, vocabulary_size], every position seeing every other."""


# An encoder and a decoder, and each shift once.
@pytest.fixture(scope="module", params=all_wide_but(["bert, shifted", "qwen3"], sorted(MODELS)))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    architecture, shift = MODELS[request.param]
    path = tmp_path_factory.mktemp("masked")
    return save_masked_checkpoint(path, architecture, prediction_shift=shift, seed=3)


@pytest.fixture(scope="module")
def proposer(folder: Path) -> MaskedDiffusionProposer:
    return load_masked_diffusion(ModelFolder(folder, "masked"))


@pytest.fixture(scope="module")
def logits_of(folder: Path, proposer: MaskedDiffusionProposer) -> LogitsOf:
    """The library's own model."""
    name = proposer.info.architecture
    class_name = DECODERS[name][0] if name in DECODERS else name
    model_class = getattr(transformers, class_name)
    if name == "DreamModel":
        config = transformers.Qwen2Config(
            **{**proposer._model._model.config.to_dict(), "model_type": "qwen2"}
        )
        model = model_class.from_pretrained(folder, config=config)
    else:
        model = model_class.from_pretrained(folder)
    model = model.eval()

    @torch.no_grad()
    def run(ids: Sequence[int]) -> torch.Tensor:
        everything: dict[str, torch.Tensor] = {}
        if name in DECODERS:
            everything = {"attention_mask": torch.zeros(1, 1, len(ids), len(ids))}
        logits: torch.Tensor = model(input_ids=torch.tensor([ids]), **everything).logits
        return logits[0].double()

    return run


def defined(
    logits_of: LogitsOf,
    context: Sequence[int],
    block_size: int,
    step_count: int,
    shift: int,
    threshold: float | None = None,
) -> tuple[tuple[int, ...], int]:
    """[context, MASK * L]; each step a whole pass, then the most confident are filled."""
    text = [*context, *[MASK] * block_size]
    unknown = set(range(len(context), len(text)))
    passes = 0
    while unknown:
        logits = logits_of(text)
        logits[:, MASK] = -torch.inf
        likely = logits.softmax(-1)
        guesses: list[tuple[float, int, int]] = []
        for position in unknown:
            confidence, best = likely[position - shift].max(-1)
            guesses.append((-float(confidence), position, int(best)))
        guesses.sort()
        count = -(-block_size // step_count)
        if threshold is not None:
            count = max(count, sum(-confidence > threshold for confidence, _, _ in guesses))
        for _, position, token in guesses[:count]:
            text[position] = token
            unknown.remove(position)
        passes += 1
    return tuple(text[len(context) :]), passes


def test_a_draft_is_what_the_definition_gives(
    proposer: MaskedDiffusionProposer, logits_of: LogitsOf
) -> None:
    """With any number of steps; with 0 it is the model's own."""
    shift = proposer.info.prediction_shift
    state = proposer.open(CONTEXT)
    drafts = set()
    for asked in (0, 1, 2, 3, BLOCK):
        steps = asked or proposer.info.step_count
        draft = state.propose([], BLOCK, asked)
        tokens, passes = defined(logits_of, CONTEXT, BLOCK, steps, shift)
        assert draft.token_ids == tokens, asked
        assert draft.diffusion_step_count == draft.forward_pass_count == passes, asked
        assert MASK not in tokens
        # The other shift is another draft, and so are more steps: else nothing were compared.
        assert tokens != defined(logits_of, CONTEXT, BLOCK, steps, 1 - shift)[0], asked
        drafts.add(tokens)
    assert len(drafts) > 1


def test_what_is_confident_enough_is_filled_at_once(folder: Path, logits_of: LogitsOf) -> None:
    threshold = 0.06
    proposer = load_masked_diffusion(ModelFolder(folder, "m"), confidence_threshold=threshold)
    shift = proposer.info.prediction_shift
    draft = proposer.open(CONTEXT).propose([], BLOCK, BLOCK)
    tokens, passes = defined(logits_of, CONTEXT, BLOCK, BLOCK, shift, threshold)
    assert (draft.token_ids, draft.diffusion_step_count) == (tokens, passes)
    assert passes < BLOCK


def test_only_the_latest_positions_are_seen(folder: Path, logits_of: LogitsOf) -> None:
    window = 24
    proposer = load_masked_diffusion(ModelFolder(folder, "m"), window=window)
    seen = CONTEXT[-(window - BLOCK) :]
    shift = proposer.info.prediction_shift
    found = proposer.open([5, 6, *CONTEXT[7:]]).propose([], BLOCK, 2).token_ids
    assert found == proposer.open(CONTEXT).propose([], BLOCK, 2).token_ids
    assert found == defined(logits_of, seen, BLOCK, 2, shift)[0]
    assert len(proposer.open(CONTEXT).propose([], MAX_BLOCK_SIZE, 1).token_ids) == window - 1


def test_a_history_of_any_length_is_drafted_for(proposer: MaskedDiffusionProposer) -> None:
    """Of none, and of 1,000 tokens in 80 positions."""
    assert len(proposer.open([]).propose([], 3, 2).token_ids) == 3
    text = [*range(90)] * 11
    draft = proposer.open(text).propose([], BLOCK, 1)
    assert len(draft.token_ids) == BLOCK
    assert draft.token_ids == proposer.open(text[-79:]).propose([], BLOCK, 1).token_ids


def frozen_view(chunk: int, window: int, length: int, block_size: int) -> torch.Tensor:
    """Whether a row sees a key, [length + block, length + block]: the schedule as a mask.

    A chunk sees itself and the positions that fit before it; what is behind the last
    whole chunk that leaves a token over sees itself, the block and what fits before.
    """
    total = length + block_size
    frozen = (length - 1) // chunk * chunk
    sees = torch.zeros(total, total, dtype=torch.bool)
    for start in range(0, frozen, chunk):
        end = start + chunk
        sees[start:end, max(0, end - window) : end] = True
    sees[frozen:, max(0, total - window) :] = True
    return sees


@pytest.mark.parametrize(
    "architecture", ["Qwen3ForCausalLM", wide("DreamModel"), wide("LlamaForCausalLM")]
)
def test_a_frozen_prefix_is_a_mask_by_chunks(tmp_path: Path, architecture: str) -> None:
    """The reference computes everything anew, in one pass under that mask."""
    chunk, window = 8, 28
    folder = ModelFolder(save_masked_checkpoint(tmp_path, architecture, seed=3), "m")
    frozen = load_masked_diffusion(folder, window=window, frozen_chunk=chunk)
    shift = frozen.info.prediction_shift
    whole = load_masked_diffusion(folder, window=window)
    model = frozen._model._model
    for length in (1, 8, 9, 57):
        text = [(29 * index + index * index // 3) % 90 for index in range(length)]
        sees = frozen_view(chunk, window, length, BLOCK)
        mask = torch.zeros(sees.shape).masked_fill(~sees, -torch.inf)[None, None]

        @torch.no_grad()
        def logits_of(ids: Sequence[int], mask: torch.Tensor = mask) -> torch.Tensor:
            logits: torch.Tensor = model(input_ids=torch.tensor([ids]), attention_mask=mask).logits
            return logits[0].double()

        for steps in (1, 3):
            draft = frozen.open(text).propose([], BLOCK, steps)
            assert draft.token_ids == defined(logits_of, text, BLOCK, steps, shift)[0], length
        if length > 2 * chunk:
            assert draft.token_ids != whole.open(text).propose([], BLOCK, 3).token_ids


def test_an_encoder_keeps_no_keys(tmp_path: Path) -> None:
    folder = save_masked_checkpoint(tmp_path, "BertForMaskedLM", frozen_chunk=8)
    with pytest.raises(BadParameters, match="encoder"):
        load_masked_diffusion(ModelFolder(folder, "m"))
    assert load_masked_diffusion(ModelFolder(folder, "m"), frozen_chunk=0).info.frozen_chunk == 0


EITHER = {
    "bert, shifted": ("BertForMaskedLM", 1, 0),
    "qwen3": ("Qwen3ForCausalLM", 0, 0),
    "qwen3, frozen": ("Qwen3ForCausalLM", 0, 8),
    "dream, frozen": ("DreamModel", 1, 8),
}


@pytest.fixture(
    scope="module", params=all_wide_but(["bert, shifted", "qwen3, frozen"], sorted(EITHER))
)
def either(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> MaskedDiffusionProposer:
    """With everything computed in every pass, and, of decoders, with a frozen prefix."""
    architecture, shift, chunk = EITHER[request.param]
    path = save_masked_checkpoint(
        tmp_path_factory.mktemp("masked"), architecture, prediction_shift=shift, frozen_chunk=chunk
    )
    return load_masked_diffusion(ModelFolder(path, "m"), window=40)


TOKENS = st.lists(st.integers(0, 95), max_size=40)


@settings(deadline=None, max_examples=8)
@given(pieces=st.lists(TOKENS, max_size=4), assumed=TOKENS, size=st.integers(1, 12))
def test_only_the_history_counts_not_how_it_arrived(
    either: MaskedDiffusionProposer, pieces: list[list[int]], assumed: list[int], size: int
) -> None:
    whole = [token for piece in pieces for token in piece]
    state = either.open([])
    for piece in pieces:
        state.propose(assumed, size, 1)
        state.commit(piece)
    assert state.length == len(whole)
    ahead = state.propose(assumed, size, 1)
    assert ahead.token_ids == either.open([*whole, *assumed]).propose([], size, 1).token_ids
    assert state.propose([], size, 1).token_ids == either.open(whole).propose([], size, 1).token_ids
    assert state.length == len(whole)


def test_ids_that_the_model_does_not_know_are_the_proposer_s_fault(
    proposer: MaskedDiffusionProposer,
) -> None:
    state = proposer.open([1, 2, 96])
    with pytest.raises(DraftFailed) as caught:
        state.propose([], 4, 1)
    assert caught.value.kind is DraftFaultKind.OUT_OF_VOCABULARY
    # Once out of the window they are not looked at.
    state.commit([3] * 80)
    assert len(state.propose([], 4, 1).token_ids) == 4


def test_it_is_a_proposer_that_needs_no_features(folder: Path) -> None:
    ticks = iter([1.0, 1.5])
    proposer: Proposer = load_masked_diffusion(
        ModelFolder(folder, "masked"), clock=lambda: next(ticks)
    )
    assert proposer.model_id == "masked"
    assert proposer.encoder is None
    draft = proposer.open([1, 2]).propose([], 2, 1)
    assert (draft.compute_seconds, draft.round_trip_seconds) == (0.5, 0.5)


def test_no_block_and_no_step_is_a_defect(proposer: MaskedDiffusionProposer) -> None:
    for block_size, step_count in ((0, 1), (4, 0)):
        with pytest.raises(ValueError, match="tokens in"):
            denoise(proposer._model, [1], block_size, step_count)


SPEC = CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13)
PROMPT = [random.Random(5).randrange(96) for _ in range(8 * (SPEC.sink + SPEC.window))]
COUNT = 12
SEEDED = SamplingParameters(temperature=0.7, top_p=0.95, seed=7)


@pytest.fixture(scope="module")
def verifier(random_checkpoint: Callable[..., Path]) -> Verifier:
    return load_verifier(ModelFolder(random_checkpoint(), "random"), backend="torch")


def opened(verifier: Verifier) -> Session:
    session = Session(verifier, verifier.allocate(SPEC))
    session.append(PROMPT)
    return session


async def test_past_the_window_the_stream_is_that_without_a_proposer(
    either: MaskedDiffusionProposer, verifier: Verifier
) -> None:
    for block_size, chosen in ((1, SEEDED), (7, GREEDY)):
        alone = opened(verifier)
        while PrefillTurn(alone)():
            pass
        expected = [
            VerifyTurn(alone, Block([], chosen, 1))().step.committed[0] for _ in range(COUNT)
        ]
        source = LocalDraftSource(either)
        session = opened(verifier)
        asked = streams.parameters(COUNT, sampling=chosen, block_size=block_size)
        tokens, done = await streams.collect(session, source, asked, run=sources.yielding)
        assert tokens == expected
        assert done.speculation.drafted_count > 0
        assert len(set(tokens)) > 1
        await source.close()
