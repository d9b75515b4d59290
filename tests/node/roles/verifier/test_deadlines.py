"""A caller's own deadline bounds all that is done for it: no turn runs for it afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator, Sequence

import grpc
import grpc.aio
import pytest

from kakeya.v1 import placement_pb2, runtime_pb2
from kakeya_fleet.engine.contracts.verifier import Feed, Output
from kakeya_fleet.engine.sessions.history import History
from kakeya_fleet.engine.speculation.roster import Roster
from tests.support import calls, liars
from tests.support import neighbourhood as nodes
from tests.support.calls import until
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [index * 11 % 96 for index in range(30)]
LONG = [index * 13 % 96 for index in range(1500)]
FORWARD_SECONDS = 0.03
SHORT = 0.4


@pytest.fixture
def slow(verifier: nodes.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forwards of the node's verifier take 30 ms at least."""
    served = verifier.roles.verifiers["random"].verifier
    honest = served.forward_batch

    def forward_batch(feeds: Sequence[Feed]) -> list[Output]:
        time.sleep(FORWARD_SECONDS)
        return honest(feeds)

    monkeypatch.setattr(served, "forward_batch", forward_batch)


@pytest.fixture(autouse=True)
def sound_breakers(verifier: nodes.Node) -> Iterator[None]:
    yield
    verifier.roles.verifier._breakers._breakers.clear()


async def stands_still(client: calls.Caller, session: str) -> int:
    """Waits until nothing runs in the session; its forwards, which then stay as many."""
    while (await client.info(session)).state != runtime_pb2.SESSION_STATE_IDLE:
        pass
    forwards = (await client.info(session)).forward_count
    # Others have their turns meanwhile.
    other = await client.open()
    await client.append(other, PROMPT)
    await client.generate(other, 5)
    await client.close(other)
    assert (await client.info(session)).forward_count == forwards
    return forwards


async def ends_late(call: Awaitable[object]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def read_late(
    call: grpc.aio.UnaryStreamCall[runtime_pb2.GenerateRequest, runtime_pb2.GenerateResponse],
) -> int:
    """Reads to the deadline; how many tokens came."""
    count = 0
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for message in call:
            count += len(message.tokens.token_ids)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    return count


def generation(
    client: calls.Caller, session: str, seconds: float
) -> grpc.aio.UnaryStreamCall[runtime_pb2.GenerateRequest, runtime_pb2.GenerateResponse]:
    request = runtime_pb2.GenerateRequest(session_id=session, max_tokens=4000)
    return client.stub.Generate(request, timeout=seconds)


@pytest.mark.usefixtures("slow")
async def test_a_prompt_is_computed_no_longer_than_its_caller_waits(client: calls.Caller) -> None:
    session = await client.open()
    request = runtime_pb2.AppendTokensRequest(session_id=session, token_ids=LONG)
    await ends_late(client.stub.AppendTokens(request, timeout=SHORT))
    assert await stands_still(client, session) < len(LONG) // 16


@pytest.mark.usefixtures("slow")
async def test_a_session_whose_first_tokens_were_not_awaited_is_not_there(
    client: calls.Caller, verifier: nodes.Node
) -> None:
    request = runtime_pb2.CreateSessionRequest(
        model_id="random",
        kv_strategy=placement_pb2.KV_STRATEGY_SINK_WINDOW,
        initial_token_ids=LONG,
    )
    before = len(verifier.roles.sessions)
    await ends_late(client.stub.CreateSession(request, timeout=SHORT))
    await until(lambda: len(verifier.roles.sessions) == before)


@pytest.mark.usefixtures("slow")
async def test_a_generation_ends_within_a_block(client: calls.Caller) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    # Long enough for a token on a busy machine.
    received = await read_late(generation(client, session, 5 * SHORT))
    await stands_still(client, session)
    committed = (await client.info(session)).history_length - len(PROMPT)
    assert 0 < received <= committed <= received + 16


@pytest.mark.usefixtures("slow")
async def test_one_that_waits_for_the_sessions_turn_gives_it_up(client: calls.Caller) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    first = generation(client, session, 60.0)
    assert await first.read() is not grpc.aio.EOF
    assert await read_late(generation(client, session, SHORT)) == 0
    request = runtime_pb2.AppendTokensRequest(session_id=session, token_ids=[1, 2, 3])
    await ends_late(client.stub.AppendTokens(request, timeout=SHORT))
    fork = runtime_pb2.ForkSessionRequest(session_id=session)
    await ends_late(client.stub.ForkSession(fork, timeout=SHORT))
    first.cancel()
    await stands_still(client, session)
    kept = (await client.info(session)).history_length
    assert (await client.append(session, [1, 2, 3], kept)) == kept + 3


async def test_one_that_waits_for_a_draft_takes_it_back(
    client: calls.Caller, neighbourhood: nodes.Neighbourhood
) -> None:
    """The proposer's own deadline is 20 s here."""
    silent = liars.hanging()
    await neighbourhood.start_liar("silent", silent)
    session = await client.open(
        mode=calls.FIXED, proposer="liar", proposer_node="silent", block_size=4
    )
    await client.append(session, PROMPT)
    await read_late(generation(client, session, SHORT))
    await stands_still(client, session)
    stream = await client.generate(session, 10, deadline_seconds=SHORT)
    assert stream.done.stop_reason == runtime_pb2.STOP_REASON_DEADLINE
    await client.close(session)
    await asyncio.wait_for(silent.cancelled.wait(), PATIENCE_SECONDS)


async def test_one_whose_proposers_are_not_to_be_had_in_time_says_so(
    client: calls.Caller, verifier: nodes.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What drafts need is fetched from another node, and that takes its time."""
    session = await client.open()
    await client.append(session, PROMPT)
    was_cancelled = asyncio.Event()

    async def connect(_history: History, **_sampled: bool) -> Roster | None:
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()
        return None

    monkeypatch.setattr(verifier.roles.sessions.opened(session).pairing, "connect", connect)
    stream = await client.generate(session, 10, deadline_seconds=SHORT)
    assert stream.done.stop_reason == runtime_pb2.STOP_REASON_DEADLINE
    assert was_cancelled.is_set()


@pytest.mark.usefixtures("slow")
async def test_one_that_could_not_begin_in_time_is_refused_before_anything_is_done(
    client: calls.Caller,
) -> None:
    busy = [await client.open() for _ in range(70)]
    for each in busy:
        await client.append(each, PROMPT)
    late = await client.open()
    await client.append(late, PROMPT)
    forwards = (await client.info(late)).forward_count
    running = [generation(client, each, 60.0) for each in busy]
    await asyncio.gather(*(each.read() for each in running))
    request = runtime_pb2.GenerateRequest(
        session_id=late, max_tokens=10, deadline_seconds=FORWARD_SECONDS / 10
    )
    refusal = None
    while refusal is None or refusal.reason != "TOO_BUSY":
        # Between two forwards nobody waits for a moment.
        stream = client.stub.Generate(request, timeout=PATIENCE_SECONDS)
        try:
            async for _ in stream:
                pass
        except grpc.aio.AioRpcError as error:
            refusal = calls.refused(error)
    assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refusal.retry_seconds is not None
    assert 0.1 <= refusal.retry_seconds <= 60
    assert (await client.info(late)).forward_count - forwards <= 1
    for call in running:
        call.cancel()
    for each in busy:
        await client.close(each)
