"""Draft sources of a proposer that needs context vectors: in process and over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import grpc.aio
import numpy as np
import pytest
import pytest_asyncio

from kakeya.v1 import proposer_pb2, proposer_pb2_grpc, tensor_pb2_grpc
from kakeya_fleet.engine.contracts.draft import Draft, EagerDraftState
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.feature_encoder import ContextEncoder, EncoderWeights
from kakeya_fleet.engine.contracts.features import ContextVectors
from kakeya_fleet.engine.contracts.proposer_info import ProposerInfo
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource, run_inline
from kakeya_fleet.engine.sessions.feature_window import FeatureWindow
from kakeya_fleet.engine.sessions.history import History
from kakeya_fleet.fleet.cards.card import ModelKind, ModelOffer, Role
from kakeya_fleet.node.links.features.encoder_fetch import ProposerAddress
from kakeya_fleet.node.links.features.feature_links import ConditionedProposer, FeatureLinks
from kakeya_fleet.node.links.features.feature_sender import FeatureSender
from kakeya_fleet.node.links.protocol.contract import LinkPurpose
from kakeya_fleet.node.links.protocol.tensor import TensorDtype
from kakeya_fleet.node.links.transport.link_table import LinkTable
from kakeya_fleet.node.links.transport.open_links import OpenLinks
from kakeya_fleet.node.links.transport.tensor_service import TensorServicer
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.proposer.proposer_loading import proposer_offer
from kakeya_fleet.node.roles.proposer.proposer_service import ProposerServicer
from kakeya_fleet.node.roles.proposer.remote_draft import RemoteDraftSource
from kakeya_fleet.node.roles.proposer.served_proposer import ServedProposer
from kakeya_fleet.node.rpc.error_interceptor import ErrorInterceptor
from tests.node.conftest import next_message
from tests.support import calls
from tests.support.allowances import allowances_of
from tests.support.late_vectors import wait_for_vectors
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

VOCABULARY, WIDTH = 96, 3
PREFIX = [index * 5 % VOCABULARY for index in range(30)]


def vector(position: int) -> list[float]:
    """Exact in bfloat16, and another one for each position."""
    return [float(position % 100), float(position // 100), 1.0]


@dataclass
class RecallingState(EagerDraftState):
    """Drafts what its vectors and tokens say: a wrong or missing one changes the draft."""

    tokens: list[int]
    vectors: FeatureWindow = field(default_factory=lambda: FeatureWindow(WIDTH))

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def features_end(self) -> int:
        return self.vectors.end

    def commit(self, token_ids: Sequence[int]) -> None:
        self.tokens.extend(token_ids)

    def take_features(self, first: int, vectors: ContextVectors) -> None:
        known = max(0, self.vectors.end - first)
        if known < len(vectors):
            self.vectors.extend(first + known, vectors[known:])

    def propose(
        self,
        assumed: Sequence[int],
        block_size: int,
        step_count: int,
        drawing: Drawing | None = None,
    ) -> Draft:
        assert not assumed
        if self.features_end < self.length - 1:
            raise DraftFailed(DraftFaultKind.FEATURES, f"only up to {self.features_end}")
        assert self.features_end == max(0, self.length - 1), "vectors of what is not committed"
        _first, vectors = self.vectors.since(0)
        seed = int(vectors.sum()) * 7 + len(vectors) + sum(self.tokens)
        return Draft(tuple((seed + index) % VOCABULARY for index in range(block_size)))


class RecallingProposer:
    """A `Proposer` of such states."""

    model_id = "recalling"
    info = ProposerInfo("recalling", "dflash", vocabulary_size=VOCABULARY, tokenizer_digest="t")

    def __init__(self) -> None:
        fc = np.eye(WIDTH, dtype=np.float32)
        self.encoder = ContextEncoder(EncoderWeights(fc, np.ones(WIDTH, np.float32), 0.0, (0,)))

    def open(self, prefix: Sequence[int]) -> RecallingState:
        return RecallingState(list(prefix))


class Verifier:
    """A history that grows, and the vectors of all its positions but the last."""

    def __init__(self, positions: int = 512) -> None:
        self.history = History(PREFIX)
        self.window = FeatureWindow(WIDTH, positions)
        self.reads = 0
        self.catch_up()

    def catch_up(self) -> None:
        first, end = self.window.end, len(self.history) - 1
        vectors = np.array([vector(position) for position in range(first, end)], np.float32)
        self.window.extend(first, vectors.reshape(end - first, WIDTH))

    def commit(self, *token_ids: int) -> None:
        self.history.extend(token_ids)
        self.catch_up()

    def read(self, position: int) -> tuple[int, ContextVectors]:
        self.reads += 1
        return self.window.since(position)


class Server:
    """A proposer's node: both services, started and stopped at one port."""

    def __init__(self) -> None:
        self.port = 0

    async def start(self) -> None:
        proposer = RecallingProposer()
        self.offer = ModelOffer(
            "recalling",
            Role.PROPOSER,
            ModelKind.DFLASH,
            tokenizer_digest="t",
            vocabulary_size=VOCABULARY,
        )
        served = ServedProposer(proposer, self.offer, run_inline, run_inline)
        metrics = NodeMetrics()
        self.table = LinkTable(lambda: 0.0, allowances_of())
        proposers = {"recalling": ConditionedProposer(proposer.encoder.weights, WIDTH, "")}
        features = FeatureLinks(proposers, self.table)
        handlers = {LinkPurpose.FEATURES: features}
        self.server = grpc.aio.server(interceptors=[ErrorInterceptor(metrics)])
        tensor_pb2_grpc.add_TensorServiceServicer_to_server(
            TensorServicer(self.table, metrics, OpenLinks(metrics=metrics), handlers), self.server
        )
        proposer_pb2_grpc.add_ProposerServiceServicer_to_server(
            ProposerServicer({"recalling": served}, metrics, allowances_of(), features.inbox),
            self.server,
        )
        self.port = self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop(0)


@pytest.fixture(autouse=True)
def _vectors_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """That a draft goes without them, where they come too late, is no fault that is asked for."""
    wait_for_vectors(monkeypatch)


@pytest_asyncio.fixture(loop_scope="module")
async def server() -> AsyncIterator[Server]:
    started = Server()
    await started.start()
    yield started
    await started.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def channel(server: Server) -> AsyncIterator[grpc.aio.Channel]:
    # The first is a pause; the second is what an attempt to connect may take.
    options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 2000)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}", options=options) as opened:
        yield opened


def remote(
    server: Server,
    channel: grpc.aio.Channel,
    verifier: Verifier,
    dtype: TensorDtype = TensorDtype.BFLOAT16,
) -> RemoteDraftSource:
    address = ProposerAddress(channel, server.offer, "self", "")
    sender = FeatureSender(address, verifier.read, open_timeout=5.0, dtype=dtype)
    return RemoteDraftSource(channel, "recalling", VOCABULARY, "t", sender=sender)


Source = LocalDraftSource | RemoteDraftSource
MakeSource = Callable[[Verifier], Source]


@pytest.fixture(params=["local", "float32", "bfloat16"])
def make_source(
    request: pytest.FixtureRequest, server: Server, channel: grpc.aio.Channel
) -> MakeSource:
    def make(verifier: Verifier) -> Source:
        if request.param == "local":
            return LocalDraftSource(RecallingProposer(), features=verifier.read)
        dtype = TensorDtype(request.param)
        return remote(server, channel, verifier, dtype)

    return make


async def expected(verifier: Verifier) -> tuple[int, ...]:
    """What a fresh proposer drafts that knows the whole history and all there is of vectors."""
    return (
        await LocalDraftSource(RecallingProposer(), features=verifier.read).draft(
            verifier.history, (), 5
        )
    ).token_ids


async def test_drafts_are_those_of_the_history_and_its_vectors(make_source: MakeSource) -> None:
    verifier = Verifier()
    source = make_source(verifier)
    assert not source.drafts_ahead
    for step in range(25):
        draft = await source.draft(verifier.history, (), 5)
        assert draft.token_ids == await expected(verifier)
        verifier.commit(*range(step % 7 + 1))
    await source.close()


async def test_a_window_that_forgets_is_enough(make_source: MakeSource) -> None:
    """Vectors older than the window never come; the state keeps those it has."""
    verifier = Verifier(positions=4)
    source = make_source(verifier)
    await source.draft(verifier.history, (), 5)
    for step in range(10):
        verifier.commit(*range(3))
        await source.draft(verifier.history, (), 5)
        if step == 5:
            # More than the window holds was committed without a draft.
            verifier.commit(*range(9))
            assert (await source.draft(verifier.history, (), 5)).token_ids == await expected(
                verifier
            )
    await source.close()


async def test_without_vectors_the_draft_fails_at_once_and_the_next_one_does_not(
    make_source: MakeSource,
) -> None:
    verifier = Verifier()
    source = make_source(verifier)
    verifier.history.extend([1, 2, 3])
    with pytest.raises(DraftFailed) as caught:
        await source.draft(verifier.history, (), 5)
    assert caught.value.kind is DraftFaultKind.FEATURES
    verifier.catch_up()
    assert (await source.draft(verifier.history, (), 5)).token_ids == await expected(verifier)
    await source.close()


async def drafted(
    source: Source, verifier: Verifier
) -> tuple[tuple[int, ...], list[DraftFaultKind]]:
    """A draft, and how many failed before it; the channel may take a moment to come back."""
    faults: list[DraftFaultKind] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return (await source.draft(verifier.history, (), 5)).token_ids, faults
            except DraftFailed as failed:
                faults.append(failed.kind)
                await asyncio.sleep(0.02)


async def test_a_proposer_restarted_under_the_channel_catches_up(
    server: Server, channel: grpc.aio.Channel
) -> None:
    verifier = Verifier()
    source = remote(server, channel, verifier)
    await drafted(source, verifier)
    for _ in range(2):
        await server.stop()
        with pytest.raises(DraftFailed) as caught:
            await source.draft(verifier.history, (), 5)
        assert caught.value.kind is DraftFaultKind.UNREACHABLE
        verifier.commit(4, 5, 6)
        await server.start()
        tokens, faults = await drafted(source, verifier)
        assert tokens == await expected(verifier)
        assert set(faults) <= {DraftFaultKind.UNREACHABLE, DraftFaultKind.FEATURES}
    await source.close()


async def test_a_broken_link_alone_is_opened_again_and_so_is_a_broken_stream(
    server: Server, channel: grpc.aio.Channel
) -> None:
    verifier = Verifier()
    source = remote(server, channel, verifier)
    await drafted(source, verifier)
    server.table.close_all("killed")
    verifier.commit(4, 5, 6)
    tokens, faults = await drafted(source, verifier)
    assert tokens == await expected(verifier)
    assert set(faults) <= {DraftFaultKind.FEATURES}
    assert source._stream is not None
    await source._stream.close()
    verifier.commit(1)
    assert (await drafted(source, verifier)) == (await expected(verifier), [])
    source.rest()
    await asyncio.sleep(0)
    verifier.commit(2)
    assert (await drafted(source, verifier)) == (await expected(verifier), [])
    assert len(server.table) == 1
    await source.close()


async def test_lost_vectors_are_sent_again(server: Server, channel: grpc.aio.Channel) -> None:
    verifier = Verifier()
    source = remote(server, channel, verifier)
    await drafted(source, verifier)
    verifier.commit(4, 5, 6)
    # The sender believes that they arrived.
    assert source._sender is not None
    assert source._sender._stream is not None
    source._sender._stream._sent_end = len(verifier.history) - 1
    with pytest.raises(DraftFailed) as caught:
        await source.draft(verifier.history, (), 5)
    assert caught.value.kind is DraftFaultKind.FEATURES
    assert str(len(PREFIX) - 1) in str(caught.value)
    verifier.commit(7)
    assert (await source.draft(verifier.history, (), 5)).token_ids == await expected(verifier)
    await source.close()


async def test_a_stream_without_a_link_is_refused_and_so_is_a_stateless_draft(
    server: Server, channel: grpc.aio.Channel
) -> None:
    stub = proposer_pb2_grpc.ProposerServiceStub(channel)
    call = stub.Draft(timeout=PATIENCE_SECONDS)
    opening = proposer_pb2.DraftOpen(
        model_id="recalling", vocabulary_size=VOCABULARY, tokenizer_digest="t"
    )
    await call.write(proposer_pb2.DraftRequest(open=opening))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await next_message(call)
    assert calls.refused(caught.value).metadata["field"] == "feature_link_id"
    request = proposer_pb2.ProposeBlockRequest(
        model_id="recalling", committed_token_ids=[1], block_size=4
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ProposeBlock(request, timeout=PATIENCE_SECONDS)
    assert calls.refused(caught.value).reason == "BAD_REQUEST"


async def test_an_unknown_link_costs_drafts_not_the_stream(
    server: Server, channel: grpc.aio.Channel
) -> None:
    stub = proposer_pb2_grpc.ProposerServiceStub(channel)
    call = stub.Draft(timeout=PATIENCE_SECONDS)
    opening = proposer_pb2.DraftOpen(
        model_id="recalling",
        vocabulary_size=VOCABULARY,
        tokenizer_digest="t",
        prefix_token_ids=[1, 2],
        feature_link_id="gone",
    )
    await call.write(proposer_pb2.DraftRequest(open=opening))
    for block_id in (1, 2):
        proposal = proposer_pb2.DraftProposal(block_id=block_id, base_length=2, block_size=4)
        await call.write(proposer_pb2.DraftRequest(proposal=proposal))
        response = await next_message(call)
        assert response.status == proposer_pb2.DRAFT_STATUS_FEATURES_MISSING
        assert (response.features_end, list(response.token_ids)) == (0, [])
    call.cancel()


async def test_what_is_measured_for_the_card_includes_the_vectors() -> None:
    ticks = iter(range(10**6))
    offer = proposer_offer(RecallingProposer(), lambda: next(ticks) / 1000.0)
    assert (offer.kind, offer.feature_width, offer.tapped_layers) == (ModelKind.DFLASH, WIDTH, (0,))
    assert offer.encoder_digest == RecallingProposer().encoder.spec.digest
    assert not offer.drafts_ahead
    assert [cost.token_count for cost in offer.step_costs] == [1, 4, 8, 15]
    assert all(cost.seconds == pytest.approx(0.001) for cost in offer.step_costs)
