"""Sessions that are opened with the first tokens of their history, whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from kakeya.v1 import placement_pb2, runtime_pb2
from kakeya_fleet.node.roles.verifier import runtime_service
from kakeya_fleet.node.rpc.grpc_settings import DATA_MESSAGE_BYTES
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support.neighbourhood import Node

pytestmark = pytest.mark.asyncio(loop_scope="module")

SINK_WINDOW = placement_pb2.KV_STRATEGY_SINK_WINDOW
PROMPT = [index * 11 % 96 for index in range(150)]
LONG = [index * 13 % 96 for index in range(4000)]


def request(token_ids: Sequence[int], **fields: Any) -> runtime_pb2.CreateSessionRequest:
    return runtime_pb2.CreateSessionRequest(
        model_id="random",
        kv_strategy=SINK_WINDOW,
        window_tokens=32,
        speculation=runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_OFF),
        initial_token_ids=token_ids,
        **fields,
    )


async def opened(
    client: calls.Caller, token_ids: Sequence[int], **fields: Any
) -> runtime_pb2.CreateSessionResponse:
    return await client.stub.CreateSession(request(token_ids, **fields), timeout=60)


async def open_sessions(client: calls.Caller) -> Sequence[runtime_pb2.SessionInfo]:
    return (await client.stub.ListSessions(runtime_pb2.ListSessionsRequest())).sessions


async def one_of_length(client: calls.Caller, length: int) -> runtime_pb2.SessionInfo:
    """The only session with such a history, once its first tokens are being appended."""
    async with asyncio.timeout(30.0):
        while True:
            sessions = await open_sessions(client)
            found = [each for each in sessions if each.history_length == length]
            if found:
                (session,) = found
                return session


@pytest.fixture
def alone(verifier: nodes.Node) -> int:
    """How many sessions of other tests are still there."""
    return len(verifier.roles.sessions)


async def test_the_first_tokens_are_the_history_and_computed(client: calls.Caller) -> None:
    response = await opened(client, PROMPT)
    assert response.history_length == len(PROMPT)
    assert response.prefill_seconds > 0
    assert response.kv_strategy == SINK_WINDOW
    info = await client.info(response.session_id)
    assert info.history_length == len(PROMPT)
    computed = info.forward_count
    appended = await client.open()
    await client.append(appended, PROMPT)
    expected = await client.generate(appended, 20)
    stream = await client.generate(response.session_id, 20)
    assert stream.token_ids == expected.token_ids
    # Nothing of the prompt was left to compute.
    assert (await client.info(response.session_id)).forward_count == computed + 20
    await client.close(appended)
    await client.close(response.session_id)


async def test_the_same_request_id_appends_once(client: calls.Caller) -> None:
    """Together, and again later, when the session has gone on."""
    many = await asyncio.gather(*(opened(client, PROMPT, request_id="first") for _ in range(5)))
    assert len({each.session_id for each in many}) == 1
    session = many[0].session_id
    assert (await client.info(session)).history_length == len(PROMPT)
    await client.generate(session, 3)
    again = await opened(client, PROMPT, request_id="first")
    assert (again.session_id, again.history_length) == (session, len(PROMPT) + 3)
    assert again.prefill_seconds == many[0].prefill_seconds
    assert (await client.info(session)).history_length == len(PROMPT) + 3
    other = await client.refusal("CreateSession", request(PROMPT[1:], request_id="first"))
    assert (other.code, other.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST")
    assert other.metadata["field"] == "request_id"
    await client.close(session)


async def test_tokens_that_cannot_be_appended_leave_no_session(
    client: calls.Caller, verifier: Node, alone: int
) -> None:
    sessions = verifier.roles.sessions
    for token_ids, request_id, reason in (
        ([3, 96], "", "TOKEN_OUT_OF_VOCABULARY"),
        ([1] * 4097, "refused", "CONTEXT_EXCEEDED"),
    ):
        refusal = await client.refusal("CreateSession", request(token_ids, request_id=request_id))
        assert refusal.reason == reason
        assert len(sessions) == alone
    # The id is free for what can be opened.
    better = await opened(client, PROMPT, request_id="refused")
    assert better.history_length == len(PROMPT)
    await client.close(better.session_id)


async def test_an_answer_that_fits_no_message_is_named_and_leaves_no_session(
    client: calls.Caller, verifier: Node, alone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = placement_pb2.Plan(reasons=["x" * DATA_MESSAGE_BYTES])
    with monkeypatch.context() as patched:
        patched.setattr(runtime_service, "plan_to_wire", lambda _: plan)
        for request_id in ("", "large"):
            refusal = await client.refusal("CreateSession", request(PROMPT, request_id=request_id))
            assert refusal.code == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert refusal.reason == "ANSWER_TOO_LARGE"
            assert refusal.retry_seconds is None
            assert len(verifier.roles.sessions) == alone
    again = await opened(client, PROMPT, request_id="large")
    await client.close(again.session_id)


async def test_who_waits_with_the_same_id_while_the_first_one_leaves_gets_a_whole_session(
    client: calls.Caller, verifier: nodes.Node, alone: int
) -> None:
    sessions = verifier.roles.sessions
    first = client.stub.CreateSession(request(LONG, request_id="left"), timeout=60)
    given_up = await one_of_length(client, len(LONG))
    second = asyncio.create_task(opened(client, LONG, request_id="left"))
    turn = sessions.opened(given_up.session_id).turn
    await calls.until(lambda: turn._waiters)
    first.cancel()
    response = await second
    assert response.session_id != given_up.session_id
    info = await client.info(response.session_id)
    assert info.history_length == len(LONG)
    await client.generate(response.session_id, 1)
    await client.close(response.session_id)
    assert len(sessions) == alone


async def test_draining_ends_an_opening_by_name(
    neighbourhood: nodes.Neighbourhood, checkpoint: Path
) -> None:
    node = await neighbourhood.start("opening", f"verifier={checkpoint}")
    client = calls.Caller(node.channel)
    opening = asyncio.create_task(client.refusal("CreateSession", request(LONG)))
    sessions = node.roles.sessions
    await calls.until(lambda: len(sessions) == 1)
    await node.roles.drain(5.0)
    refusal = await opening
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    assert len(sessions) == 0
    await node.stop()
