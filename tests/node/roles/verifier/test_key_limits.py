"""What a key may have of a node: sessions, generations at once, tokens a minute."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from kakeya.v1 import runtime_pb2
from kakeya_fleet.fleet.trust.keys import ApplicationKey, digest_of
from tests.node.roles.verifier.test_session_ownership import PROMPT, As
from tests.support import calls
from tests.support.neighbourhood import Neighbourhood, Node
from tests.support.posing import Posing

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEYS = (
    ApplicationKey("sessions", digest_of("1"), session_limit=2),
    ApplicationKey("generations", digest_of("2"), generation_limit=1),
    ApplicationKey("tokens", digest_of("3"), tokens_per_minute=30),
    ApplicationKey("texts", digest_of("4"), tokens_per_minute=30),
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def node(neighbourhood: Neighbourhood, checkpoint: Path) -> Node:
    return await neighbourhood.start(
        "limited", f"verifier={checkpoint}", interceptors=[Posing(*KEYS)]
    )


async def refusal(call: Any) -> calls.Refused:
    return await calls.refused_by(call)


def generating(session: str, count: int) -> runtime_pb2.GenerateRequest:
    return runtime_pb2.GenerateRequest(session_id=session, max_tokens=count)


async def test_sessions_of_a_key_are_as_many_as_it_may_have(node: Node) -> None:
    key, other = As(node, "sessions"), As(node, "somebody")
    mine = [await key.open() for _ in range(2)]
    opening = runtime_pb2.CreateSessionRequest(model_id="random", sink_tokens=4, window_tokens=32)
    for method, request in (
        ("CreateSession", opening),
        ("ForkSession", runtime_pb2.ForkSessionRequest(session_id=mine[0])),
        ("Embed", runtime_pb2.EmbedRequest(model_id="random", token_ids=[1])),
    ):
        refused = await refusal(key.call(method, request))
        assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused.reason == "KEY_LIMIT_REACHED"
        assert (refused.metadata["limit"], refused.metadata["most"]) == ("sessions", "2")
        assert refused.retry_seconds == 1.0
    await other.open()
    await key.call("CloseSession", runtime_pb2.CloseSessionRequest(session_id=mine[0]))
    await key.open()


async def test_generations_of_a_key_at_once_are_as_many_as_it_may_run(node: Node) -> None:
    key = As(node, "generations")
    one, two = [await key.open(initial_token_ids=PROMPT) for _ in range(2)]
    running = key.call("Generate", generating(one, 3000))
    await anext(aiter(running))
    refused = await refusal(anext(aiter(key.call("Generate", generating(two, 4)))))
    assert refused.reason == "KEY_LIMIT_REACHED"
    assert refused.metadata["limit"] == "generations"
    running.cancel()
    # Its place is free once the node has noticed.
    spending = node.roles.verifier._spending
    await calls.until(lambda: not spending._generating)
    await anext(aiter(key.call("Generate", generating(two, 4))))


async def test_tokens_of_a_minute_are_prompts_and_answers_and_the_session_lives(
    node: Node,
) -> None:
    key, began = As(node, "tokens"), time.monotonic()
    session = await key.open(initial_token_ids=PROMPT)
    # 15 are left; another minute's is lent to what runs.
    tokens = latest = 0
    stream = key.call("Generate", generating(session, 1000))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for message in stream:
            latest = len(message.tokens.token_ids)
            tokens += latest
    refused = calls.refused(caught.value)
    assert (refused.code, refused.reason) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "KEY_TOKENS_SPENT",
    )
    assert refused.retry_seconds is not None
    # Each token beyond the minute's takes two seconds, those of the last message among them; so
    # many have gone by since the first was counted.
    wait, took = 2 * (len(PROMPT) + tokens - 30), time.monotonic() - began
    assert wait - took - 4 <= refused.retry_seconds <= wait + 4, f"{tokens} tokens in {took:.1f} s"
    # However many a quick model said in the message that spent the last of them.
    assert tokens - latest < 45 + took / 2
    assert tokens >= 45
    for method, request in (
        ("AppendTokens", runtime_pb2.AppendTokensRequest(session_id=session, token_ids=[1])),
        ("Embed", runtime_pb2.EmbedRequest(model_id="random", token_ids=[1])),
        ("Generate", generating(session, 1)),
    ):
        call = key.call(method, request)
        refused = await refusal(anext(aiter(call)) if method == "Generate" else call)
        assert refused.reason == "KEY_TOKENS_SPENT"
    info = runtime_pb2.GetSessionInfoRequest(session_id=session)
    assert (await key.call("GetSessionInfo", info)).session.history_length >= 15 + tokens


async def test_tokens_of_a_minute_are_texts_that_are_read_too(node: Node) -> None:
    key = As(node, "texts")
    embedding = runtime_pb2.EmbedRequest(model_id="random", token_ids=PROMPT * 2)
    assert (await key.call("Embed", embedding)).values
    assert (await refusal(key.call("Embed", embedding))).reason == "KEY_TOKENS_SPENT"
