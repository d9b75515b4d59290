"""ProposerService and the source that speaks to it, against a real ngram node."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from typing import Any, Self

import grpc
import grpc.aio
import numpy as np
import pytest

from kakeya.v1 import proposer_pb2, proposer_pb2_grpc
from kakeya_fleet.engine.contracts.raw_numbers import KeysValues
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind
from kakeya_fleet.engine.proposers.giving import Giving
from kakeya_fleet.engine.proposers.local_source import LocalDraftSource
from kakeya_fleet.engine.proposers.ngram import NgramProposer
from kakeya_fleet.engine.sessions.history import History
from kakeya_fleet.node.admission.limits import DraftLimits, Limits
from kakeya_fleet.node.roles.proposer.remote_draft import RemoteDraftSource
from tests.node.conftest import next_message
from tests.support import calls, liars
from tests.support import neighbourhood as nodes
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

REPEATING = [1, 2, 3, 4, 5, 6, 7, 8] * 6
PROPOSAL, DRAWING = proposer_pb2.DraftProposal, proposer_pb2.Drawing
DRAFTED = proposer_pb2.DRAFT_STATUS_DRAFTED
STALE = proposer_pb2.DRAFT_STATUS_STALE
CANCELLED = proposer_pb2.DRAFT_STATUS_CANCELLED


def source_to(node: nodes.Node, vocabulary_size: int = 96, **options: Any) -> RemoteDraftSource:
    return RemoteDraftSource(node.channel, "ngram", vocabulary_size, "digest", **options)


@pytest.fixture
def stub(proposer: nodes.Node) -> proposer_pb2_grpc.ProposerServiceAsyncStub:
    return proposer_pb2_grpc.ProposerServiceStub(proposer.channel)


class Stream:
    """A draft stream by hand."""

    def __init__(self, stub: proposer_pb2_grpc.ProposerServiceAsyncStub, **opening: Any) -> None:
        self.call = stub.Draft(timeout=PATIENCE_SECONDS)
        self.opening: dict[str, Any] = {"model_id": "ngram", "vocabulary_size": 96, **opening}

    async def open(self) -> Self:
        await self.send(open=proposer_pb2.DraftOpen(**self.opening))
        return self

    async def send(self, **kind: Any) -> None:
        await self.call.write(proposer_pb2.DraftRequest(**kind))

    async def propose(
        self, block_id: int, base_length: int, block_size: int = 4, **fields: Any
    ) -> None:
        await self.send(
            proposal=PROPOSAL(
                block_id=block_id, base_length=base_length, block_size=block_size, **fields
            )
        )

    async def answer(self) -> proposer_pb2.DraftResponse:
        return await asyncio.wait_for(next_message(self.call), timeout=PATIENCE_SECONDS)


async def test_the_remote_source_drafts_what_the_local_one_does(proposer: nodes.Node) -> None:
    local, remote = LocalDraftSource(NgramProposer()), source_to(proposer)
    history = History(REPEATING)
    for step in range(30):
        assumed = [1, 2, 3][: step % 4]
        one = await local.draft(history, assumed, 1 + step % 15)
        two = await remote.draft(history, assumed, 1 + step % 15)
        assert one.token_ids == two.token_ids
        assert 0.0 <= two.compute_seconds <= two.round_trip_seconds
        history.extend([step % 96, *REPEATING[: step % 5]])
    await remote.close()


async def test_several_proposals_in_flight_are_answered_in_order(proposer: nodes.Node) -> None:
    source = source_to(proposer)
    history = History(REPEATING)
    drafts = [
        asyncio.ensure_future(source.draft(history.until(len(history)), [1, 2, 3][:count], 4))
        for count in range(4)
    ]
    answers = [draft.token_ids for draft in await asyncio.gather(*drafts)]
    assert answers == [(1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6), (4, 5, 6, 7)]
    await source.close()


async def test_a_taken_back_proposal_costs_nothing_later(proposer: nodes.Node) -> None:
    source = source_to(proposer)
    history = History(REPEATING)
    await source.draft(history, [], 4)
    for _ in range(100):
        drafting = asyncio.ensure_future(source.draft(history.until(len(history)), [1], 4))
        await asyncio.sleep(0)
        drafting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await drafting
        # More than the stream may leave unanswered, so that answers must be matched.
        assert (await source.draft(history, [], 4)).token_ids == (1, 2, 3, 4)
        history.extend(REPEATING[:8])
    await source.close()


async def test_closing_fails_what_is_in_flight_and_what_comes_later(
    neighbourhood: nodes.Neighbourhood,
) -> None:
    await neighbourhood.start_liar("mute", liars.hanging())
    channel = neighbourhood.directory.channels["mute"]
    source = RemoteDraftSource(channel, "liar", 96, "")
    drafting = asyncio.ensure_future(source.draft(History([1]), [], 4))
    await asyncio.sleep(0)
    await source.close()
    for failing in (drafting, source.draft(History([1]), [], 4)):
        with pytest.raises(DraftFailed) as caught:
            await failing
        assert caught.value.kind is DraftFaultKind.UNREACHABLE
    await source.close()


async def test_an_answer_to_another_proposal_is_stale(
    neighbourhood: nodes.Neighbourhood,
) -> None:
    await neighbourhood.start_liar("doubling", liars.doubled())
    source = RemoteDraftSource(neighbourhood.directory.channels["doubling"], "liar", 96, "")
    with pytest.raises(DraftFailed) as caught:
        await source.draft(History([1]), [], 4)
    assert caught.value.kind is DraftFaultKind.STALE
    await source.close()


async def test_a_proposer_that_does_not_open_is_given_up() -> None:
    # The kernel takes the connection and nobody says a word: a stopped process.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            source = RemoteDraftSource(channel, "ngram", 96, "", open_timeout=0.3)
            began = time.monotonic()
            with pytest.raises(DraftFailed) as caught:
                await source.draft(History([1]), [], 4)
            assert caught.value.kind is DraftFaultKind.UNREACHABLE
            assert time.monotonic() - began > 0.2
            await source.close()


async def test_a_closed_channel_is_a_fault_not_a_crash(proposer: nodes.Node) -> None:
    channel = grpc.aio.insecure_channel(proposer.address)
    source = RemoteDraftSource(channel, "ngram", 96, "")
    await source.draft(History([1, 2]), [], 4)
    await channel.close()
    for _ in range(2):
        # Opening ahead raises nothing: it is the draft that fails.
        source.open(History([1, 2]))
        with pytest.raises(DraftFailed) as caught:
            await source.draft(History([1, 2]), [], 4)
        assert caught.value.kind is DraftFaultKind.UNREACHABLE
    await source.close()


async def test_an_unknown_model_is_a_fault_that_names_it(proposer: nodes.Node) -> None:
    # The refusal and the first proposal cross on their ways, each time a little differently.
    for _ in range(20):
        source = RemoteDraftSource(proposer.channel, "nobody", 96, "")
        with pytest.raises(DraftFailed, match="nobody") as caught:
            await source.draft(History([1]), [], 4)
        assert caught.value.kind is DraftFaultKind.UNREACHABLE
        await source.close()


async def test_only_deltas_are_taken_and_a_wrong_base_is_stale(
    stub: proposer_pb2_grpc.ProposerServiceAsyncStub,
) -> None:
    stream = await Stream(stub, prefix_token_ids=REPEATING).open()
    await stream.propose(1, len(REPEATING))
    first = await stream.answer()
    assert (first.block_id, first.status, list(first.token_ids)) == (1, DRAFTED, [1, 2, 3, 4])
    assert first.base_length == len(REPEATING)
    assert first.compute_seconds > 0

    await stream.propose(2, len(REPEATING) + 2, committed_token_ids=[1, 2])
    assert list((await stream.answer()).token_ids) == [3, 4, 5, 6]

    await stream.propose(3, len(REPEATING) + 9, committed_token_ids=[3])
    stale = await stream.answer()
    assert (stale.status, stale.base_length) == (STALE, len(REPEATING) + 2)
    assert not stale.token_ids

    # What was stale was not committed.
    await stream.propose(4, len(REPEATING) + 3, committed_token_ids=[3])
    assert list((await stream.answer()).token_ids) == [4, 5, 6, 7]
    stream.call.cancel()


OPEN = {"open": proposer_pb2.DraftOpen(model_id="ngram", vocabulary_size=96)}
MALFORMED = (grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST")
OUTSIDE = (grpc.StatusCode.INVALID_ARGUMENT, "TOKEN_OUT_OF_VOCABULARY")
UNKNOWN = (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND")


def opening(**fields: Any) -> dict[str, proposer_pb2.DraftOpen]:
    return {"open": proposer_pb2.DraftOpen(**fields)}


def proposed(**fields: Any) -> dict[str, proposer_pb2.DraftProposal]:
    return {"proposal": PROPOSAL(**{"block_id": 1, "block_size": 1, **fields})}


BAD_STREAMS: list[tuple[list[dict[str, Any]], tuple[grpc.StatusCode, str]]] = [
    ([proposed()], MALFORMED),
    ([OPEN, OPEN], MALFORMED),
    ([{}], MALFORMED),
    ([opening(model_id="ngram")], MALFORMED),
    ([opening(model_id="x", vocabulary_size=9)], UNKNOWN),
    ([opening(model_id="ngram", vocabulary_size=9, prefix_token_ids=[9])], OUTSIDE),
    ([OPEN, proposed(block_size=0)], MALFORMED),
    ([OPEN, proposed(block_size=65)], MALFORMED),
    ([OPEN, proposed(block_id=7)], MALFORMED),
    ([OPEN, proposed(base_length=2**63)], MALFORMED),
    ([OPEN, proposed(base_length=1, committed_token_ids=[96])], OUTSIDE),
    ([OPEN, proposed(assumed_token_ids=[2**32 - 1])], OUTSIDE),
    ([OPEN, proposed(drawing=DRAWING(seed=1))], MALFORMED),
    ([OPEN, proposed(drawing=DRAWING(temperature=math.nan))], MALFORMED),
    ([OPEN, proposed(drawing=DRAWING(temperature=101.0))], MALFORMED),
    ([OPEN, proposed(drawing=DRAWING(temperature=1.0, top_p=1.5))], MALFORMED),
]


async def test_a_bad_stream_ends_with_its_reason(
    stub: proposer_pb2_grpc.ProposerServiceAsyncStub, proposer: nodes.Node
) -> None:
    for requests, told in BAD_STREAMS:
        call = stub.Draft(
            iter([proposer_pb2.DraftRequest(**each) for each in requests]), timeout=10
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _answer in call:
                pass
        refusal = calls.refused(caught.value)
        assert (refusal.code, refusal.reason) == told, requests
        assert proposer.roles.load_numbers().draft_stream_count == 0


async def test_a_bad_stateless_proposal_is_refused(
    stub: proposer_pb2_grpc.ProposerServiceAsyncStub,
) -> None:
    good: dict[str, Any] = {"model_id": "ngram", "committed_token_ids": [1], "block_size": 1}
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"model_id": "x"}, "MODEL_NOT_FOUND"),
        ({"committed_token_ids": []}, "BAD_REQUEST"),
        ({"block_size": 0}, "BAD_REQUEST"),
        ({"block_size": 65}, "BAD_REQUEST"),
        ({"committed_token_ids": [2**31]}, "TOKEN_OUT_OF_VOCABULARY"),
    ]
    for fields, reason in mistakes:
        request = proposer_pb2.ProposeBlockRequest(**{**good, **fields})
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ProposeBlock(request, timeout=PATIENCE_SECONDS)
        assert calls.refused(caught.value).reason == reason, fields


async def test_a_stateless_proposal_drafts(
    stub: proposer_pb2_grpc.ProposerServiceAsyncStub,
) -> None:
    request = proposer_pb2.ProposeBlockRequest(
        model_id="ngram", committed_token_ids=REPEATING, block_size=5
    )
    response = await stub.ProposeBlock(request, timeout=PATIENCE_SECONDS)
    assert list(response.token_ids) == [1, 2, 3, 4, 5]
    assert response.compute_seconds > 0


async def test_a_stream_that_is_left_is_freed(
    stub: proposer_pb2_grpc.ProposerServiceAsyncStub, proposer: nodes.Node
) -> None:
    streams = [await Stream(stub, prefix_token_ids=REPEATING).open() for _ in range(3)]
    for stream in streams:
        await stream.propose(1, len(REPEATING))
        await stream.answer()
    assert proposer.roles.load_numbers().draft_stream_count == 3
    assert proposer.metric("kakeya_draft_streams_active") == 3
    for stream in streams:
        stream.call.cancel()
    await calls.until(lambda: not proposer.roles.load_numbers().draft_stream_count)


async def test_too_many_streams_are_refused_with_a_retry_hint(
    neighbourhood: nodes.Neighbourhood,
) -> None:
    node = await neighbourhood.start(
        "crowded", "proposer=ngram", limits=Limits(drafts=DraftLimits(streams=2))
    )
    stub = proposer_pb2_grpc.ProposerServiceStub(node.channel)
    streams = [await Stream(stub, prefix_token_ids=REPEATING).open() for _ in range(2)]
    for stream in streams:
        await stream.propose(1, len(REPEATING))
        await stream.answer()
    # The refusal may come before the first message is written.
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (await Stream(stub).open()).answer()
    refusal = calls.refused(caught.value)
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "TOO_MANY_STREAMS",
    )
    assert refusal.retry_seconds
    # The limit harms no stream that is open.
    await streams[0].propose(2, len(REPEATING))
    assert (await streams[0].answer()).status == DRAFTED
    await node.stop()


async def test_a_draining_proposer_ends_its_streams_and_takes_no_new_ones(
    neighbourhood: nodes.Neighbourhood,
) -> None:
    node = await neighbourhood.start("draining", "proposer=ngram")
    stub = proposer_pb2_grpc.ProposerServiceStub(node.channel)
    stream = await Stream(stub, prefix_token_ids=REPEATING).open()
    await stream.propose(1, len(REPEATING))
    await stream.answer()
    await node.roles.drain(1.0)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.answer()
    assert calls.refused(caught.value).reason == "DRAINING"
    # It is refused before it is opened: a message written meanwhile makes INTERNAL of any refusal
    # (grpc/grpc issue 36066).
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await Stream(stub).answer()
    assert calls.refused(caught.value).reason == "DRAINING"
    await node.stop()


async def test_a_long_prefix_does_not_stop_the_node_from_answering(
    proposer: nodes.Node, stub: proposer_pb2_grpc.ProposerServiceAsyncStub
) -> None:
    """While tens of thousands of tokens are taken in, others still get their blocks."""
    source = source_to(proposer)
    await source.draft(History(REPEATING), [], 4)
    stream = await Stream(stub, prefix_token_ids=REPEATING * 1000).open()
    await stream.propose(1, len(REPEATING) * 1000)
    answering = asyncio.ensure_future(stream.answer())
    meanwhile = 0
    while not answering.done():
        await source.draft(History(REPEATING), [], 4)
        meanwhile += 1
    assert (await answering).status == DRAFTED
    assert meanwhile > 3
    await source.close()
    stream.call.cancel()


async def test_a_stream_that_never_opens_is_ended(neighbourhood: nodes.Neighbourhood) -> None:
    limits = Limits(drafts=DraftLimits(opening_seconds=0.2))
    proposer = await neighbourhood.start("waits-briefly", "proposer=ngram", limits=limits)
    stub = proposer_pb2_grpc.ProposerServiceStub(proposer.channel)
    call = stub.Draft(timeout=PATIENCE_SECONDS)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert calls.refused(caught.value).reason == "BAD_REQUEST"
    await calls.until(lambda: not proposer.roles.load_numbers().draft_stream_count)


async def test_a_proposer_that_takes_no_keys_and_values_refuses_them(
    proposer: nodes.Node,
) -> None:
    """As one does whose card said otherwise: it costs the drafts alone."""
    read: list[tuple[int, int]] = []

    async def numbers(first: int, end: int) -> KeysValues:
        read.append((first, end))
        return (np.zeros((1, 2, 1, end - first, 4), np.float32),)

    source = source_to(proposer, giving=Giving(numbers, 1000))
    history = History(REPEATING)
    with pytest.raises(DraftFailed, match="takes no keys and values") as failed:
        await source.draft(history.until(len(REPEATING)), (), 4)
    assert failed.value.kind is DraftFaultKind.UNREACHABLE
    assert read
    await source.close()
