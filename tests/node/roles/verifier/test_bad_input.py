"""Bad input over the wire: the documented status and reason, the session as before."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from kakeya.v1 import (
    placement_pb2,
    placement_pb2_grpc,
    proposer_pb2,
    proposer_pb2_grpc,
    runtime_pb2,
)
from kakeya_fleet.node.rpc.grpc_settings import DATA_MESSAGE_BYTES
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support.checkpoint import POSITION_BYTES
from tests.support.neighbourhood import Node

pytestmark = pytest.mark.asyncio(loop_scope="module")

Code = grpc.StatusCode
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 89, 79]
ANYONE = "f" * 32


Unchanged = Callable[[str], Awaitable[None]]


@pytest.fixture
def unchanged(client: calls.Caller) -> Unchanged:
    """unchanged(session): asserts that it holds PROMPT and still gives PROMPT's stream."""

    async def check(session: str) -> None:
        fresh = await client.open()
        await client.append(fresh, PROMPT)
        assert (await client.info(session)).history_length == len(PROMPT)
        wanted = (await client.generate(fresh, 8)).token_ids
        assert (await client.generate(session, 8)).token_ids == wanted

    return check


async def test_a_bad_append_appends_nothing(client: calls.Caller, unchanged: Unchanged) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    outside = (Code.INVALID_ARGUMENT, "TOKEN_OUT_OF_VOCABULARY")
    other_length = (Code.FAILED_PRECONDITION, "HISTORY_LENGTH_MISMATCH")
    for token_ids, expected_length, told in (
        ([], None, (Code.INVALID_ARGUMENT, "EMPTY_APPEND")),
        ([1, 96], None, outside),
        # A negative id, as uint32 carries it.
        ([2**32 - 1], None, outside),
        ([1] * 4097, None, (Code.OUT_OF_RANGE, "CONTEXT_EXCEEDED")),
        # A large message, refused by its meaning.
        ([96] * 4_000_000, None, (Code.OUT_OF_RANGE, "CONTEXT_EXCEEDED")),
        ([1], 11, other_length),
        ([1], 2**64 - 1, other_length),
    ):
        request = runtime_pb2.AppendTokensRequest(
            session_id=session, token_ids=token_ids, expected_history_length=expected_length
        )
        refusal = await client.refusal("AppendTokens", request)
        assert (refusal.code, refusal.reason) == told, (token_ids[:2], expected_length)
        assert refusal.domain == "kakeya"
        if told == other_length:
            # So that a retry can go on.
            assert refusal.metadata["history_length"] == str(len(PROMPT))
    await unchanged(session)


NAN, INFINITE = float("nan"), float("inf")
GENERATIONS: tuple[dict[str, Any], ...] = (
    {"max_tokens": 0},
    {"max_tokens": (1 << 20) + 1},
    {"temperature": NAN},
    {"temperature": INFINITE},
    {"temperature": 101.0},
    {"temperature": 1.0, "top_p": 2.0},
    {"temperature": 1.0, "top_p": NAN},
    {"min_p": NAN},
    {"repetition_penalty": -1.0},
    {"repetition_penalty": 1e-30},
    {"logit_bias": {3: NAN}},
    {"logit_bias": {3: 1e30}},
    {"logit_bias": {3: 1.0, 96: 1.0}},
    {"logit_bias": {2**32 - 1: 1.0}},
    {"logit_bias": dict.fromkeys(range(96), -INFINITE)},
    {"logit_bias": dict.fromkeys(range(1025), 1.0)},
    {"top_log_probabilities": 21},
    {"stop_token_ids": [5, 96]},
    {"stop_token_ids": [1] * 1025},
    {"deadline_seconds": -1.0},
    {"deadline_seconds": NAN},
)


async def test_a_bad_generation_names_the_field_and_generates_nothing(
    client: calls.Caller, unchanged: Unchanged
) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    for fields in GENERATIONS:
        request = runtime_pb2.GenerateRequest(session_id=session, **{"max_tokens": 4, **fields})
        refusal = await client.refusal("Generate", request)
        assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "BAD_REQUEST"), fields
        assert refusal.metadata["field"] in fields
        assert refusal.metadata["field"] in refusal.text
    await unchanged(session)


MALFORMED = (Code.INVALID_ARGUMENT, "BAD_REQUEST")
SPECULATION = runtime_pb2.Speculation
CREATIONS: tuple[tuple[dict[str, Any], tuple[Code, str]], ...] = (
    ({"model_id": ""}, MALFORMED),
    ({"model_id": "nobody"}, (Code.NOT_FOUND, "MODEL_NOT_FOUND")),
    ({"window_tokens": 0}, MALFORMED),
    ({"kv_strategy": 9}, MALFORMED),
    (
        {"kv_strategy": placement_pb2.KV_STRATEGY_RESTORED},
        (Code.FAILED_PRECONDITION, "NO_ARCHIVE"),
    ),
    ({"client_label": "x" * 129}, MALFORMED),
    ({"client_label": "me\x1b]0;you\x07"}, MALFORMED),
    ({"request_id": "x" * 129}, MALFORMED),
    ({"request_id": "\x9b2J"}, MALFORMED),
    ({"stop_token_ids": [96]}, MALFORMED),
    # Counted before one is looked at: none of these is in the vocabulary.
    ({"initial_token_ids": [96] * 10_000}, (Code.OUT_OF_RANGE, "CONTEXT_EXCEEDED")),
    ({"speculation": SPECULATION(block_size=32)}, MALFORMED),
    ({"speculation": SPECULATION(mode=cast("Any", 7))}, MALFORMED),
    ({"speculation": SPECULATION(mode=calls.FIXED)}, MALFORMED),
    (
        {"speculation": SPECULATION(mode=calls.FIXED, proposer_model_id="nobody")},
        (Code.FAILED_PRECONDITION, "NO_PLACEMENT"),
    ),
)


async def test_a_bad_creation_opens_no_session(client: calls.Caller, verifier: Node) -> None:
    before = verifier.roles.load_numbers()
    for fields, told in CREATIONS:
        request = runtime_pb2.CreateSessionRequest(**{"model_id": "random", **fields})
        refusal = await client.refusal("CreateSession", request)
        assert (refusal.code, refusal.reason, refusal.domain) == (*told, "kakeya"), fields
        assert verifier.roles.load_numbers() == before


async def test_a_session_beyond_the_byte_budget_is_told_when_to_retry(
    neighbourhood: nodes.Neighbourhood, checkpoint: Path
) -> None:
    settings = replace(nodes.SETTINGS, kv_budget_bytes=200_000)
    small = await neighbourhood.start("small", f"verifier={checkpoint}", settings=settings)
    client = calls.Caller(small.channel)
    session = await client.open(window=100)
    await client.append(session, PROMPT)
    request = runtime_pb2.CreateSessionRequest(model_id="random", window_tokens=300)
    refusal = await client.refusal("CreateSession", request)
    assert (refusal.code, refusal.reason) == (Code.RESOURCE_EXHAUSTED, "OUT_OF_KV_MEMORY")
    assert refusal.retry_seconds is not None
    assert refusal.retry_seconds > 0
    assert int(refusal.metadata["needed_bytes"]) > int(refusal.metadata["free_bytes"])
    never = runtime_pb2.CreateSessionRequest(model_id="random", window_tokens=4000)
    refusal = await client.refusal("CreateSession", never)
    assert (refusal.code, refusal.reason) == (Code.RESOURCE_EXHAUSTED, "OUT_OF_KV_MEMORY")
    assert "never fits" in refusal.text
    assert refusal.retry_seconds is None, "no retry will find room"
    assert (await client.info(session)).history_length == len(PROMPT)
    assert small.roles.load_numbers().kv_bytes <= 200_000
    await small.stop()


async def test_a_full_session_takes_memory_as_it_grows_and_is_refused_more_by_name(
    neighbourhood: nodes.Neighbourhood, checkpoint: Path
) -> None:
    # Memory is taken by so many positions.
    segment = 256 * POSITION_BYTES
    settings = replace(nodes.SETTINGS, kv_budget_bytes=2 * segment)
    small = await neighbourhood.start("growing", f"verifier={checkpoint}", settings=settings)
    client = calls.Caller(small.channel)
    full: dict[str, Any] = {"model_id": "random", "kv_strategy": placement_pb2.KV_STRATEGY_FULL}
    bounded = runtime_pb2.CreateSessionRequest(**full, max_history_tokens=1000)
    refusal = await client.refusal("CreateSession", bounded)
    assert (refusal.code, refusal.reason) == (Code.RESOURCE_EXHAUSTED, "OUT_OF_KV_MEMORY")
    opened = await client.stub.CreateSession(runtime_pb2.CreateSessionRequest(**full))
    assert opened.plan.kv_bytes > 2 * segment, "what it may take at most is told"
    assert (await client.info(opened.session_id)).kv_bytes == segment
    assert await client.append(opened.session_id, [7] * 300) == 300
    assert (await client.info(opened.session_id)).kv_bytes == 2 * segment
    more = runtime_pb2.AppendTokensRequest(session_id=opened.session_id, token_ids=[7] * 300)
    refusal = await client.refusal("AppendTokens", more)
    assert (refusal.code, refusal.reason) == (Code.RESOURCE_EXHAUSTED, "OUT_OF_KV_MEMORY")
    assert refusal.retry_seconds
    assert (await client.info(opened.session_id)).history_length == 300
    assert len((await client.generate(opened.session_id, 20)).token_ids) == 20
    await small.stop()


async def test_a_request_id_for_another_kind_of_session_is_refused(client: calls.Caller) -> None:
    await client.open(request_id="kind", window=32)
    request = runtime_pb2.CreateSessionRequest(
        model_id="random", request_id="kind", window_tokens=64
    )
    refusal = await client.refusal("CreateSession", request)
    assert (refusal.code, refusal.reason) == MALFORMED
    assert refusal.metadata["field"] == "request_id"


async def test_an_unknown_session_is_not_found(client: calls.Caller) -> None:
    for name in ("", ANYONE, "x" * 200_000, "\x00\n"):
        for method, request in (
            ("AppendTokens", runtime_pb2.AppendTokensRequest(session_id=name, token_ids=[1])),
            ("Generate", runtime_pb2.GenerateRequest(session_id=name, max_tokens=1)),
            ("GetSessionInfo", runtime_pb2.GetSessionInfoRequest(session_id=name)),
            ("CloseSession", runtime_pb2.CloseSessionRequest(session_id=name)),
            ("ForkSession", runtime_pb2.ForkSessionRequest(session_id=name)),
        ):
            refusal = await client.refusal(method, request)
            assert (refusal.code, refusal.reason) == (Code.NOT_FOUND, "SESSION_NOT_FOUND"), method


async def test_a_second_close_is_not_found_and_says_that_it_was_closed(
    client: calls.Caller,
) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    assert await client.close(session) == len(PROMPT)
    refusal = await client.refusal(
        "CloseSession", runtime_pb2.CloseSessionRequest(session_id=session)
    )
    assert (refusal.code, refusal.reason) == (Code.NOT_FOUND, "SESSION_NOT_FOUND")
    assert "closed" in refusal.text


async def test_a_fork_beyond_the_history_is_out_of_range(
    client: calls.Caller, unchanged: Unchanged
) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    for length in (len(PROMPT) + 1, 2**64 - 1):
        request = runtime_pb2.ForkSessionRequest(session_id=session, history_length=length)
        refusal = await client.refusal("ForkSession", request)
        assert (refusal.code, refusal.reason) == (Code.OUT_OF_RANGE, "HISTORY_LENGTH_MISMATCH")
    await unchanged(session)


async def test_pages_that_cannot_be_are_refused(client: calls.Caller) -> None:
    for token in ("x", "-1", "1.5", "٣", "9" * 400, " 1"):
        request = runtime_pb2.ListSessionsRequest(page_token=token)
        refusal = await client.refusal("ListSessions", request)
        assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "BAD_PAGE_TOKEN"), token
    refusal = await client.refusal("ListSessions", runtime_pb2.ListSessionsRequest(page_size=1001))
    assert (refusal.code, refusal.reason) == MALFORMED


async def test_a_message_of_ten_megabytes_is_refused_and_harms_nobody(
    client: calls.Caller, unchanged: Unchanged
) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    request = runtime_pb2.AppendTokensRequest(session_id=session, token_ids=[1] * 10_000_000)
    assert request.ByteSize() > DATA_MESSAGE_BYTES
    refusal = await client.refusal("AppendTokens", request)
    assert refusal.code == Code.RESOURCE_EXHAUSTED
    await unchanged(session)


PATHS = (
    "RuntimeService/CreateSession",
    "RuntimeService/AppendTokens",
    "RuntimeService/Generate",
    "RuntimeService/ListSessions",
    "ProposerService/ProposeBlock",
    "ProposerService/Draft",
    "PlacementService/Plan",
    "TensorService/OpenLink",
    "TensorService/StreamTensors",
)


@pytest.mark.parametrize("path", PATHS)
async def test_random_bytes_never_reach_the_unknown(verifier: Node, path: str) -> None:
    seed = random.SystemRandom().getrandbits(32)
    rng = random.Random(seed)
    streaming = path.endswith(("Generate", "Draft", "StreamTensors"))
    kind = "stream_stream" if streaming else "unary_unary"
    method = getattr(verifier.channel, kind)(f"/kakeya.v1.{path}")
    allowed = {Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.UNIMPLEMENTED, Code.OK}
    allowed |= {Code.RESOURCE_EXHAUSTED} if path.endswith("CreateSession") else set()
    for _ in range(40):
        data = rng.randbytes(rng.choice([1, 3, 20, 200]))
        try:
            if streaming:
                async for _message in method(iter([data]), timeout=10):
                    pass
            else:
                await method(data, timeout=10)
        except grpc.aio.AioRpcError as error:
            refusal = calls.refused(error)
            assert refusal.code in allowed, (seed, data, refusal)
            assert refusal.domain == "kakeya", (seed, data, refusal)
            assert refusal.reason not in ("", "INTERNAL_ERROR"), (seed, data, refusal)
            assert "Traceback" not in refusal.text


RawCall = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]


async def test_bytes_that_do_not_parse_are_a_bad_request(verifier: Node) -> None:
    for path in ("RuntimeService/CreateSession", "PlacementService/Plan"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            method: RawCall = verifier.channel.unary_unary(f"/kakeya.v1.{path}")
            await method(b"\xff\xff\xff", timeout=10)
        refusal = calls.refused(caught.value)
        assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "BAD_REQUEST")


LONG = "\N{GRINNING FACE}" * 5000


async def test_a_long_name_of_no_ascii_is_refused_by_its_reason(
    client: calls.Caller, verifier: Node
) -> None:
    """Percent-encoded and in base64 it would not fit a trailer, and gRPC would drop the error."""
    plan = placement_pb2.PlanRequest(verifier_model=LONG)
    propose = proposer_pb2.ProposeBlockRequest(committed_token_ids=[1], block_size=1, model_id=LONG)
    placement = placement_pb2_grpc.PlacementServiceStub(verifier.channel)
    proposers = proposer_pb2_grpc.ProposerServiceStub(verifier.channel)
    for call in (placement.Plan(plan, timeout=10), proposers.ProposeBlock(propose, timeout=10)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        refusal = calls.refused(caught.value)
        assert (refusal.code, refusal.reason) == (Code.NOT_FOUND, "MODEL_NOT_FOUND")
    refusal = await client.refusal(
        "CreateSession",
        runtime_pb2.CreateSessionRequest(
            model_id="random",
            speculation=runtime_pb2.Speculation(
                mode=calls.FIXED, proposer_model_id=LONG, proposer_node_id=LONG
            ),
        ),
    )
    assert (refusal.code, refusal.reason) == (Code.FAILED_PRECONDITION, "NO_PLACEMENT")
