"""Sessions that are opened with their first tokens; sdks/vectors.json has the plain cases."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import grpc
import pytest

import kakeya
from kakeya import AsyncClient, Client
from kakeya.place import MAX_APPEND_TOKENS
from kakeya.v1 import runtime_pb2
from tests.sdk.conftest import Pair
from tests.support import scripted_node as scripted
from tests.support.scripted_node import ScriptedNode

if TYPE_CHECKING:
    from tests.support.scripted_node import Context

Code = grpc.StatusCode
# More than one request takes.
LONG = [index % 997 for index in range(2 * MAX_APPEND_TOKENS + 3)]


def counts(node: ScriptedNode) -> list[int]:
    """Ids of each request that brought some."""
    appended = [len(request.token_ids) for request in node.requests["AppendTokens"]]
    return [len(node.requests["CreateSession"][-1].initial_token_ids), *appended]


@pytest.mark.parametrize("first", [True, False], ids=["takes-first-tokens", "older"])
async def test_what_one_request_cannot_take_is_appended(node: ScriptedNode, first: bool) -> None:
    node.takes_first_tokens = first
    node.opened.prefill_seconds, node.appended.prefill_seconds = 4.0 if first else 0.0, 0.5
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", tokens=LONG)
        assert node.sessions[session.session_id] == LONG == list(session.history)
        assert counts(node) == [MAX_APPEND_TOKENS] * (2 if first else 3) + [3]
        assert session.prefill_seconds == (4.0 + 2 * 0.5 if first else 3 * 0.5)
        assert await session.append([7]) == len(LONG) + 1


@pytest.mark.parametrize("first", [True, False], ids=["takes-first-tokens", "older"])
async def test_a_lost_session_is_opened_again_with_its_whole_history(
    pair: Pair, first: bool
) -> None:
    node, other = pair
    other.takes_first_tokens = first
    node.opened.prefill_seconds = other.opened.prefill_seconds = 4.0
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", tokens=LONG, resume=True)
        node.refuse("Generate", Code.UNAVAILABLE, reason="DRAINING")
        completion = await session.generate(4).collect()
        assert other.sessions[session.session_id] == [*LONG, *completion.token_ids]
        assert counts(other) == [MAX_APPEND_TOKENS] * (2 if first else 3) + [3]
        # Of the prompt; `resumptions` tell what going over took.
        assert session.prefill_seconds == 4.0


async def test_the_node_may_be_lost_while_the_rest_is_appended(pair: Pair) -> None:
    node, other = pair
    node.refuse("AppendTokens", Code.UNAVAILABLE, reason="DRAINING", after=True)
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", tokens=LONG, resume=True)
        assert other.sessions[session.session_id] == LONG


async def test_no_session_stays_open_when_the_rest_is_refused(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        with pytest.raises(kakeya.TokenOutOfVocabulary):
            await client.create_session("tiny", tokens=[*LONG, 1000])
    assert len(node.requests["CreateSession"]) == 1
    assert not node.sessions


async def test_a_request_id_of_a_session_that_went_on_is_not_taken_for_a_new_one(
    node: ScriptedNode,
) -> None:
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", tokens=[1], request_id="r")
        await session.append([2])
        with pytest.raises(kakeya.HistoryLengthMismatch, match="has 2 tokens already, 1 were"):
            await client.create_session("tiny", tokens=[1], request_id="r")


async def test_an_opening_with_tokens_has_the_time_of_an_append() -> None:
    release = asyncio.Event()

    class Slow(scripted.ScriptedNode):
        async def CreateSession(  # noqa: N802
            self, request: runtime_pb2.CreateSessionRequest, context: Context
        ) -> runtime_pb2.CreateSessionResponse:
            await release.wait()
            return await super().CreateSession(request, context)

    node = Slow()
    await node.start()
    timeouts = kakeya.Timeouts(unary=0.1, append_base=60.0)
    async with AsyncClient(node.address, timeouts=timeouts) as client:
        opening = asyncio.ensure_future(client.create_session("tiny", tokens=[1]))
        # Answered in 0.1 s or not at all: an opening without tokens has no more.
        with pytest.raises(kakeya.DeadlineExceeded):
            await client.create_session("tiny")
        assert not opening.done()
        release.set()
        assert (await opening).history == (1,)
    await node.stop()


def test_a_client_lives_as_long_as_what_came_of_it(threaded_node: ScriptedNode) -> None:
    node = threaded_node
    assert Client(node.address).fleet.nodes()[0].name == "mini-1"
    session = Client(node.address).create_session("tiny", tokens=[1])
    gc.collect()
    assert session.generate(4).collect().token_ids
    assert [len(tokens.token_ids) for tokens in session.generate(5)] == [4, 1]
