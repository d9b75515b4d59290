"""Bad input over the wire: the documented status and reason, the session as before."""

from __future__ import annotations

import random
from dataclasses import replace

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

pytestmark = pytest.mark.asyncio(loop_scope="module")

Code = grpc.StatusCode
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 89, 79]
ANYONE = "f" * 32


@pytest.fixture
def unchanged(client):
    """unchanged(session): asserts that it holds PROMPT and still gives PROMPT's stream."""

    async def check(session) -> None:
        fresh = await client.open()
        await client.append(fresh, PROMPT)
        assert (await client.info(session)).history_length == len(PROMPT)
        wanted = (await client.generate(fresh, 8)).token_ids
        assert (await client.generate(session, 8)).token_ids == wanted

    return check


APPENDS = {
    "empty": ({"token_ids": []}, Code.INVALID_ARGUMENT, "EMPTY_APPEND"),
    "first id that is none": (
        {"token_ids": [1, 96]},
        Code.INVALID_ARGUMENT,
        "TOKEN_OUT_OF_VOCABULARY",
    ),
    "negative id as uint32": (
        {"token_ids": [2**32 - 1]},
        Code.INVALID_ARGUMENT,
        "TOKEN_OUT_OF_VOCABULARY",
    ),
    "longer than the positions": (
        {"token_ids": [1] * 4097},
        Code.OUT_OF_RANGE,
        "CONTEXT_EXCEEDED",
    ),
    "wrong expected length": (
        {"token_ids": [1], "expected_history_length": 11},
        Code.FAILED_PRECONDITION,
        "HISTORY_LENGTH_MISMATCH",
    ),
    "huge expected length": (
        {"token_ids": [1], "expected_history_length": 2**64 - 1},
        Code.FAILED_PRECONDITION,
        "HISTORY_LENGTH_MISMATCH",
    ),
}


@pytest.mark.parametrize("case", APPENDS)
async def test_a_bad_append_appends_nothing(client, unchanged, case) -> None:
    fields, code, reason = APPENDS[case]
    session = await client.open()
    await client.append(session, PROMPT)
    refusal = await client.refusal(
        "AppendTokens", runtime_pb2.AppendTokensRequest(session_id=session, **fields)
    )
    assert (refusal.code, refusal.reason, refusal.domain) == (code, reason, "kakeya")
    await unchanged(session)


async def test_a_length_mismatch_says_the_length_so_that_a_retry_can_go_on(client) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    request = runtime_pb2.AppendTokensRequest(
        session_id=session, token_ids=PROMPT, expected_history_length=0
    )
    refusal = await client.refusal("AppendTokens", request)
    assert refusal.metadata["history_length"] == str(len(PROMPT))


GENERATIONS = {
    "no tokens": {"max_tokens": 0},
    "too many tokens": {"max_tokens": (1 << 20) + 1},
    "huge count": {"max_tokens": 2**32 - 1},
    "temperature NaN": {"max_tokens": 4, "temperature": float("nan")},
    "temperature infinite": {"max_tokens": 4, "temperature": float("inf")},
    "temperature negative": {"max_tokens": 4, "temperature": -1.0},
    "temperature 101": {"max_tokens": 4, "temperature": 101.0},
    "top_p 2": {"max_tokens": 4, "temperature": 1.0, "top_p": 2.0},
    "top_p NaN": {"max_tokens": 4, "temperature": 1.0, "top_p": float("nan")},
    "min_p 2": {"max_tokens": 4, "min_p": 2.0},
    "min_p NaN": {"max_tokens": 4, "min_p": float("nan")},
    "penalty negative": {"max_tokens": 4, "repetition_penalty": -1.0},
    "penalty tiny": {"max_tokens": 4, "repetition_penalty": 1e-30},
    "penalty NaN": {"max_tokens": 4, "repetition_penalty": float("nan")},
    "bias NaN": {"max_tokens": 4, "logit_bias": {3: float("nan")}},
    "bias infinite": {"max_tokens": 4, "logit_bias": {3: float("inf")}},
    "bias huge": {"max_tokens": 4, "logit_bias": {3: 1e30}},
    "bias outside the vocabulary": {"max_tokens": 4, "logit_bias": {3: 1.0, 96: 1.0}},
    "bias of the largest id": {"max_tokens": 4, "logit_bias": {2**32 - 1: 1.0}},
    "all ids banned": {"max_tokens": 4, "logit_bias": dict.fromkeys(range(96), float("-inf"))},
    "too many biases": {"max_tokens": 4, "logit_bias": dict.fromkeys(range(1025), 1.0)},
    "too many alternatives": {"max_tokens": 4, "top_log_probabilities": 21},
    "stop id outside the vocabulary": {"max_tokens": 4, "stop_token_ids": [5, 96]},
    "too many stop ids": {"max_tokens": 4, "stop_token_ids": [1] * 1025},
    "deadline negative": {"max_tokens": 4, "deadline_seconds": -1.0},
    "deadline NaN": {"max_tokens": 4, "deadline_seconds": float("nan")},
}


@pytest.mark.parametrize("case", GENERATIONS)
async def test_a_bad_generation_names_the_field_and_generates_nothing(
    client, unchanged, case
) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    request = runtime_pb2.GenerateRequest(session_id=session, **GENERATIONS[case])
    refusal = await client.refusal("Generate", request)
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "BAD_REQUEST")
    field = refusal.metadata["field"]
    assert field in GENERATIONS[case]
    assert field in refusal.text
    await unchanged(session)


CREATIONS = {
    "no model": ({}, Code.INVALID_ARGUMENT, "BAD_REQUEST"),
    "unknown model": ({"model_id": "nobody"}, Code.NOT_FOUND, "MODEL_NOT_FOUND"),
    "window 0": ({"window_tokens": 0}, Code.INVALID_ARGUMENT, "BAD_REQUEST"),
    "strategy 9": ({"kv_strategy": 9}, Code.INVALID_ARGUMENT, "BAD_REQUEST"),
    "restored": (
        {"kv_strategy": placement_pb2.KV_STRATEGY_RESTORED},
        Code.FAILED_PRECONDITION,
        "NO_ARCHIVE",
    ),
    "long label": ({"client_label": "x" * 129}, Code.INVALID_ARGUMENT, "BAD_REQUEST"),
    "long request id": ({"request_id": "x" * 129}, Code.INVALID_ARGUMENT, "BAD_REQUEST"),
    "stop id out of vocabulary": ({"stop_token_ids": [96]}, Code.INVALID_ARGUMENT, "BAD_REQUEST"),
    "block of 16": (
        {"speculation": runtime_pb2.Speculation(block_size=16)},
        Code.INVALID_ARGUMENT,
        "BAD_REQUEST",
    ),
    "mode 7": (
        {"speculation": runtime_pb2.Speculation(mode=7)},
        Code.INVALID_ARGUMENT,
        "BAD_REQUEST",
    ),
    "fixed without a model": (
        {"speculation": runtime_pb2.Speculation(mode=3)},
        Code.INVALID_ARGUMENT,
        "BAD_REQUEST",
    ),
    "fixed to nobody": (
        {"speculation": runtime_pb2.Speculation(mode=3, proposer_model_id="nobody")},
        Code.FAILED_PRECONDITION,
        "NO_PLACEMENT",
    ),
}


@pytest.mark.parametrize("case", CREATIONS)
async def test_a_bad_creation_opens_no_session(client, verifier, case) -> None:
    fields, code, reason = CREATIONS[case]
    before = verifier.roles.load_numbers()
    if case != "no model":
        fields = {"model_id": "random", **fields}
    refusal = await client.refusal("CreateSession", runtime_pb2.CreateSessionRequest(**fields))
    assert (refusal.code, refusal.reason, refusal.domain) == (code, reason, "kakeya")
    assert verifier.roles.load_numbers() == before


async def test_a_session_beyond_the_byte_budget_is_told_when_to_retry(
    neighbourhood, checkpoint
) -> None:
    settings = replace(nodes.SETTINGS, kv_budget_bytes=100_000)
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
    assert small.roles.load_numbers().kv_bytes <= 100_000
    await small.stop()


async def test_a_full_session_takes_memory_as_it_grows_and_is_refused_more_by_name(
    neighbourhood, checkpoint
) -> None:
    # Keys and values of 256 positions: one layer with two heads of sixteen values of four bytes.
    segment = 256 * 2 * 2 * 16 * 4
    settings = replace(nodes.SETTINGS, kv_budget_bytes=2 * segment)
    small = await neighbourhood.start("growing", f"verifier={checkpoint}", settings=settings)
    client = calls.Caller(small.channel)
    full = {"model_id": "random", "kv_strategy": placement_pb2.KV_STRATEGY_FULL}
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


async def test_a_request_id_for_another_kind_of_session_is_refused(client) -> None:
    await client.open(request_id="kind", window=32)
    request = runtime_pb2.CreateSessionRequest(
        model_id="random", request_id="kind", window_tokens=64
    )
    refusal = await client.refusal("CreateSession", request)
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "BAD_REQUEST")


@pytest.mark.parametrize(
    ("method", "request_class", "fields"),
    [
        ("AppendTokens", runtime_pb2.AppendTokensRequest, {"token_ids": [1]}),
        ("Generate", runtime_pb2.GenerateRequest, {"max_tokens": 1}),
        ("GetSessionInfo", runtime_pb2.GetSessionInfoRequest, {}),
        ("CloseSession", runtime_pb2.CloseSessionRequest, {}),
        ("ForkSession", runtime_pb2.ForkSessionRequest, {}),
    ],
)
async def test_an_unknown_session_is_not_found(client, method, request_class, fields) -> None:
    for session in ("", ANYONE, "x" * 100_000, "\x00\n"):
        refusal = await client.refusal(method, request_class(session_id=session, **fields))
        assert (refusal.code, refusal.reason) == (Code.NOT_FOUND, "SESSION_NOT_FOUND")


async def test_a_second_close_is_not_found_and_says_that_it_was_closed(client) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    assert await client.close(session) == len(PROMPT)
    refusal = await client.refusal(
        "CloseSession", runtime_pb2.CloseSessionRequest(session_id=session)
    )
    assert (refusal.code, refusal.reason) == (Code.NOT_FOUND, "SESSION_NOT_FOUND")
    assert "closed" in refusal.text


async def test_generating_from_nothing_is_refused(client) -> None:
    session = await client.open()
    request = runtime_pb2.GenerateRequest(session_id=session, max_tokens=4)
    refusal = await client.refusal("Generate", request)
    assert (refusal.code, refusal.reason) == (Code.FAILED_PRECONDITION, "EMPTY_HISTORY")
    await client.append(session, PROMPT)
    assert len((await client.generate(session, 4)).token_ids) == 4


async def test_a_fork_beyond_the_history_is_out_of_range(client, unchanged) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    for length in (len(PROMPT) + 1, 2**64 - 1):
        request = runtime_pb2.ForkSessionRequest(session_id=session, history_length=length)
        refusal = await client.refusal("ForkSession", request)
        assert (refusal.code, refusal.reason) == (Code.OUT_OF_RANGE, "HISTORY_LENGTH_MISMATCH")
    await unchanged(session)


@pytest.mark.parametrize("token", ["x", "-1", "1.5", "٣", "9" * 400, " 1"])
async def test_a_page_token_of_nobody_is_refused(client, token) -> None:
    request = runtime_pb2.ListSessionsRequest(page_token=token)
    refusal = await client.refusal("ListSessions", request)
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "BAD_PAGE_TOKEN")


async def test_a_page_of_1001_is_refused(client) -> None:
    refusal = await client.refusal("ListSessions", runtime_pb2.ListSessionsRequest(page_size=1001))
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "BAD_REQUEST")


async def test_a_message_of_ten_megabytes_is_refused_and_harms_nobody(client, unchanged) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    request = runtime_pb2.AppendTokensRequest(session_id=session, token_ids=[1] * 10_000_000)
    assert request.ByteSize() > DATA_MESSAGE_BYTES
    refusal = await client.refusal("AppendTokens", request)
    assert refusal.code == Code.RESOURCE_EXHAUSTED
    await unchanged(session)


async def test_a_large_message_within_the_limit_is_refused_by_its_meaning(
    client, unchanged
) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    request = runtime_pb2.AppendTokensRequest(session_id=session, token_ids=[1] * 4_000_000)
    refusal = await client.refusal("AppendTokens", request)
    assert (refusal.code, refusal.reason) == (Code.OUT_OF_RANGE, "CONTEXT_EXCEEDED")
    await unchanged(session)


@pytest.mark.parametrize(
    "path",
    [
        "/kakeya.v1.RuntimeService/CreateSession",
        "/kakeya.v1.RuntimeService/AppendTokens",
        "/kakeya.v1.RuntimeService/Generate",
        "/kakeya.v1.RuntimeService/ListSessions",
        "/kakeya.v1.ProposerService/ProposeBlock",
        "/kakeya.v1.ProposerService/Draft",
        "/kakeya.v1.PlacementService/Plan",
        "/kakeya.v1.TensorService/OpenLink",
        "/kakeya.v1.TensorService/StreamTensors",
    ],
)
async def test_random_bytes_never_reach_the_unknown(client, verifier, path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    rng = random.Random(seed)
    streaming = path.endswith(("Generate", "Draft", "StreamTensors"))
    kind = "stream_stream" if streaming else "unary_unary"
    method = getattr(verifier.channel, kind)(path)
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


async def test_bytes_that_do_not_parse_are_a_bad_request(verifier) -> None:
    for path in ("RuntimeService/CreateSession", "PlacementService/Plan"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await verifier.channel.unary_unary(f"/kakeya.v1.{path}")(b"\xff\xff\xff", timeout=10)
        refusal = calls.refused(caught.value)
        assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "BAD_REQUEST")


async def test_errors_are_counted_by_reason(client, verifier) -> None:
    before = verifier.metric("kakeya_rpc_errors_total", reason="SESSION_NOT_FOUND")
    await client.refusal("GetSessionInfo", runtime_pb2.GetSessionInfoRequest(session_id=ANYONE))
    after = verifier.metric("kakeya_rpc_errors_total", reason="SESSION_NOT_FOUND")
    assert after == before + 1


LONG = "\N{GRINNING FACE}" * 5000


async def test_a_long_name_of_no_ascii_is_refused_by_its_reason(client, verifier) -> None:
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


async def test_a_request_id_that_asked_for_another_proposer_is_refused(client) -> None:
    await client.open(request_id="alone")
    request = runtime_pb2.CreateSessionRequest(
        model_id="random", request_id="alone", window_tokens=32
    )
    refusal = await client.refusal("CreateSession", request)
    assert (refusal.code, refusal.reason) == (Code.INVALID_ARGUMENT, "BAD_REQUEST")
    assert refusal.metadata["field"] == "request_id"
