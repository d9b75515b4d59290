"""Calls that are sent again, the answer of the first being lost: nothing is done twice."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from kakeya.v1 import runtime_pb2
from tests.support import calls

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [index * 7 % 96 for index in range(20)]


def fork_of(session: str, request_id: str, length: int = 10) -> runtime_pb2.ForkSessionRequest:
    return runtime_pb2.ForkSessionRequest(
        session_id=session, history_length=length, request_id=request_id
    )


async def session_count(client: calls.Caller) -> int:
    listed = await client.stub.ListSessions(runtime_pb2.ListSessionsRequest(page_size=1000))
    return len(listed.sessions)


async def test_a_fork_that_is_asked_for_again_is_the_same_session(client: calls.Caller) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    before = await session_count(client)
    forks = await asyncio.gather(
        *(client.stub.ForkSession(fork_of(session, "again"), timeout=20) for _ in range(8))
    )
    assert len({fork.session_id for fork in forks}) == 1
    assert {fork.history_length for fork in forks} == {10}
    assert await session_count(client) == before + 1
    refusal = await client.refusal("ForkSession", fork_of(session, "again", 11))
    assert refusal.reason == "BAD_REQUEST"
    assert "request_id" in refusal.metadata["field"]
    await client.close(forks[0].session_id)
    # One that was closed is no answer any more.
    anew = await client.stub.ForkSession(fork_of(session, "again"), timeout=20)
    assert anew.session_id != forks[0].session_id


async def test_a_close_that_is_asked_for_again_is_answered_again(client: calls.Caller) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    request = runtime_pb2.CloseSessionRequest(session_id=session, request_id="done")
    for _ in range(3):
        assert (await client.stub.CloseSession(request, timeout=20)).history_length == len(PROMPT)
    for other in ("", "another"):
        request = runtime_pb2.CloseSessionRequest(session_id=session, request_id=other)
        refusal = await client.refusal("CloseSession", request)
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.NOT_FOUND,
            "SESSION_NOT_FOUND",
        )


async def test_a_generation_that_is_sent_again_neither_doubles_nor_skips_a_token(
    client: calls.Caller,
) -> None:
    """The first one went on behind a connection that was lost."""
    session = await client.open()
    await client.append(session, PROMPT)
    request = runtime_pb2.GenerateRequest(
        session_id=session, max_tokens=5, expected_history_length=len(PROMPT)
    )
    first = await client.generate(session, 5, expected_history_length=len(PROMPT))
    refusal = await client.refusal("Generate", request)
    assert refusal.reason == "HISTORY_LENGTH_MISMATCH"
    assert refusal.metadata["history_length"] == str(len(PROMPT) + 5)
    assert (await client.info(session)).history_length == len(PROMPT) + 5
    back = await client.stub.ForkSession(fork_of(session, "back", len(PROMPT)), timeout=20)
    again = await client.generate(back.session_id, 5, expected_history_length=len(PROMPT))
    assert again.token_ids == first.token_ids


async def test_what_is_expected_is_compared_when_the_turn_comes(client: calls.Caller) -> None:
    """Two generations at once from the same history: the second does not go on with the first's."""
    session = await client.open()
    await client.append(session, PROMPT)

    async def generate() -> int:
        stream = await client.generate(session, 30, expected_history_length=len(PROMPT))
        return len(stream.token_ids)

    ends = await asyncio.gather(generate(), generate(), return_exceptions=True)
    assert sorted(end for end in ends if isinstance(end, int)) == [30]
    (failed,) = [end for end in ends if isinstance(end, grpc.aio.AioRpcError)]
    assert calls.refused(failed).reason == "HISTORY_LENGTH_MISMATCH"
    assert (await client.info(session)).history_length == len(PROMPT) + 30
