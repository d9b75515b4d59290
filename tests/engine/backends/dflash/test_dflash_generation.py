"""The speculative loop with a DFlash drafter and a real verifier, in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.backends.dflash.proposer import DFlashProposer
from kakeya_fleet.engine.backends.torch_backend.dflash import load_dflash
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.draft import Draft, DraftSource
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_features import SessionFeatures
from kakeya_fleet.engine.sessions.turns import PrefillTurn
from tests.support import draft_sources as sources
from tests.support import streams
from tests.support.breadth import all_wide_but

PROMPT = [(11 * index + index * index // 7) % 96 for index in range(90)]
COUNT = 26
SEEDED = SamplingParameters(temperature=0.7, top_p=0.95, top_k=40, seed=2024)
SPECS = {
    "contiguous": CacheSpec(CacheKind.CONTIGUOUS, capacity=300),
    "sink_window": CacheSpec(CacheKind.SINK_WINDOW, sink=3, window=13),
}


@pytest.fixture(scope="module")
def target(random_checkpoint: Callable[..., Path]) -> ModelFolder:
    return ModelFolder(random_checkpoint("Qwen3ForCausalLM", tie_word_embeddings=False), "random")


@pytest.fixture(scope="module")
def verifier(target: ModelFolder) -> Verifier:
    return load_verifier(target, backend="torch")


DRAFTERS: dict[str, dict[str, object]] = {
    "version 1": {},
    "version 2": {"version": 2},
    "version 2, cut": {
        "version": 2,
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "confidence_threshold": 0.5,
    },
}


@pytest.fixture(scope="module", params=sorted(DRAFTERS))
def proposer(
    request: pytest.FixtureRequest, target: ModelFolder, random_drafter: Callable[..., Path]
) -> DFlashProposer:
    folder = random_drafter(target.path, block_size=6, **DRAFTERS[request.param])
    return load_dflash(ModelFolder(folder, "drafter"), target)


def opened(verifier: Verifier, spec: CacheSpec, encoder: FeatureEncoder | None) -> Session:
    session = Session(verifier, verifier.allocate(spec))
    session.use_encoder(encoder)
    session.append(PROMPT)
    return session


def features_of(session: Session) -> SessionFeatures:
    """The context vectors of a session that has an encoder."""
    assert session.features is not None
    return session.features


class PartlyRight:
    """Asks the drafter, keeps what it said, and answers with 0, 1, 2... right tokens."""

    def __init__(self, inner: DraftSource, text: Sequence[int]) -> None:
        self.inner = inner
        self.text = text
        self.said: list[tuple[int, int, tuple[int, ...]]] = []

    @property
    def drafts_ahead(self) -> bool:
        return self.inner.drafts_ahead

    async def draft(
        self,
        history: Sequence[int],
        assumed: Sequence[int],
        block_size: int,
        drawing: Drawing | None = None,
    ) -> Draft:
        assert not assumed
        draft = await self.inner.draft(history, assumed, block_size, drawing)
        self.said.append((len(history), block_size, draft.token_ids))
        length = len(history)
        right = len(self.said) % (block_size + 1)
        truth = self.text[length : length + block_size]
        wrong = [(token + 1) % 96 for token in truth[right:]]
        return Draft((*truth[:right], *wrong))

    def open(self, history: Sequence[int]) -> None:
        self.inner.open(history)

    def rest(self) -> None:
        self.inner.rest()

    async def close(self) -> None:
        await self.inner.close()


CASES = [(drafter, spec) for drafter in sorted(DRAFTERS) for spec in sorted(SPECS)]
# A block that a head cuts is one of version 2.
KEPT = [("version 1", "sink_window"), ("version 2, cut", "contiguous")]
PAIRED = pytest.mark.parametrize(
    ("proposer", "spec"), all_wide_but(KEPT, CASES, several=True), indirect=True
)


@pytest.fixture
def spec(request: pytest.FixtureRequest) -> CacheSpec:
    return SPECS[request.param]


@PAIRED
async def test_the_stream_is_the_verifiers_own(
    verifier: Verifier, proposer: DFlashProposer, spec: CacheSpec
) -> None:
    sampling = SEEDED if spec is SPECS["sink_window"] else GREEDY
    expected, _ = await streams.collect(
        opened(verifier, spec, None),
        None,
        streams.parameters(COUNT, sampling=sampling),
        run=sources.yielding,
    )
    for block_size in (5, 15):
        session = opened(verifier, spec, proposer.encoder)
        source = LocalDraftSource(proposer, features=features_of(session).since)
        asked = streams.parameters(COUNT, sampling=sampling, block_size=block_size)
        tokens, done = await streams.collect(session, source, asked, run=sources.yielding)
        assert tokens == expected
        assert not done.speculation.faults
        drafted = sum(block.drafted_count for block in done.timeline)
        assert drafted >= 3 * min(block_size, 5), "it must have drafted"


@PAIRED
async def test_drafts_within_the_loop_are_those_of_the_history_alone(
    verifier: Verifier, proposer: DFlashProposer, spec: CacheSpec
) -> None:
    """Also where only a part of each block was accepted: nothing of the rest stays behind."""
    expected, _ = await streams.collect(
        opened(verifier, spec, None), None, streams.parameters(COUNT), run=sources.yielding
    )
    text = [*PROMPT, *expected]
    session = opened(verifier, spec, proposer.encoder)
    source = PartlyRight(LocalDraftSource(proposer, features=features_of(session).since), text)
    asked = streams.parameters(COUNT, block_size=5)
    tokens, done = await streams.collect(session, source, asked, run=sources.yielding)
    assert tokens == expected
    assert {block.accepted_count for block in done.timeline} >= {0, 1, 2, 3, 4}
    assert len({drafted for _, _, drafted in source.said}) > 1
    for length, size, drafted in source.said:
        whole = Session(verifier, verifier.allocate(spec))
        whole.use_encoder(proposer.encoder)
        whole.append(text[:length])
        while PrefillTurn(whole)():
            pass
        state = proposer.open(text[:length])
        state.take_features(*features_of(whole).since(0))
        assert state.features_end == length - 1
        assert state.propose((), size, 0).token_ids == drafted


@PAIRED
async def test_without_vectors_only_speed_is_lost(
    verifier: Verifier, proposer: DFlashProposer, spec: CacheSpec
) -> None:
    expected, _ = await streams.collect(
        opened(verifier, spec, None), None, streams.parameters(20), run=sources.yielding
    )
    session = opened(verifier, spec, None)
    tokens, done = await streams.collect(
        session, LocalDraftSource(proposer), streams.parameters(20), run=sources.yielding
    )
    assert tokens == expected
    assert set(done.speculation.faults) == {"features"}
