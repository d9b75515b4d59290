"""Leaving a stream, draining a node, broken promises, idle sessions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

import grpc
import grpc.aio
import pytest
from grpc.aio import UnaryStreamCall

from kakeya import AsyncClient
from kakeya.v1 import runtime_pb2
from kakeya_fleet.engine.errors import InvariantViolated
from kakeya_fleet.engine.speculation.roster import Rival
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.node.roles.proposer.remote_draft import RemoteDraftSource
from kakeya_fleet.node.roles.verifier.pairing import Pairing
from tests.node.conftest import next_message
from tests.support import calls, liars
from tests.support import neighbourhood as nodes
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [index * 11 % 96 for index in range(30)]


async def settled(client: calls.Caller, session: str) -> runtime_pb2.SessionInfo:
    """The session's info once nothing runs in it."""
    while True:
        info = await client.info(session)
        if info.state == runtime_pb2.SESSION_STATE_IDLE:
            return info


def drafting(pairing: Pairing) -> Rival | None:
    """The proposer that drafts for a session, None before its sources are open."""
    return pairing._roster.drafting if pairing._roster is not None else None


def started(
    client: calls.Caller, session: str, max_tokens: int = 4000, **fields: Any
) -> UnaryStreamCall[runtime_pb2.GenerateRequest, runtime_pb2.GenerateResponse]:
    return client.stub.Generate(
        runtime_pb2.GenerateRequest(session_id=session, max_tokens=max_tokens, **fields), timeout=60
    )


async def test_leaving_the_stream_stops_the_work_within_one_block(client: calls.Caller) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    call = started(client, session)
    received: list[int] = []
    async for message in call:
        received += message.tokens.token_ids
        if len(received) >= 5:
            break
    call.cancel()
    first = await settled(client, session)
    committed = first.history_length - len(PROMPT)
    assert committed < 3900, "the generation ran to its end"
    # Idle means idle: no forward after that.
    for _ in range(20):
        assert (await client.info(session)).forward_count == first.forward_count

    whole = await client.open()
    await client.append(whole, PROMPT)
    expected = (await client.generate(whole, committed + 20)).token_ids
    assert received == expected[: len(received)]
    rest = await client.generate(session, 20)
    assert rest.token_ids == expected[committed:]


async def test_a_waiting_generate_that_is_cancelled_does_nothing(client: calls.Caller) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    first = started(client, session, 60)
    await first.read()
    waiting = started(client, session, 60)
    with pytest.raises(asyncio.CancelledError):
        waiting.cancel()
        await waiting.read()
    while await first.read() is not grpc.aio.EOF:
        pass
    assert (await settled(client, session)).history_length == len(PROMPT) + 60


async def test_a_cancelled_append_keeps_all_tokens_and_the_next_operation_computes_them(
    client: calls.Caller,
) -> None:
    tokens = [index * 13 % 96 for index in range(1500)]
    session = await client.open()
    call = client.stub.AppendTokens(
        runtime_pb2.AppendTokensRequest(session_id=session, token_ids=tokens), timeout=60
    )
    while (await client.info(session)).forward_count < 5:
        pass
    call.cancel()
    info = await settled(client, session)
    assert info.history_length == len(tokens)
    assert 5 <= info.forward_count < len(tokens) // 16, "the prefill was not stopped"

    whole = await client.open()
    await client.append(whole, tokens)
    expected = (await client.generate(whole, 20)).token_ids
    assert (await client.generate(session, 20)).token_ids == expected


async def test_a_broken_promise_ends_the_session_and_is_counted(
    client: calls.Caller, verifier: nodes.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await client.open()
    await client.append(session, PROMPT)

    def broken(*_arguments: object) -> Never:
        raise InvariantViolated("the cache lost a token", invariant="history_cache_agreement")

    monkeypatch.setattr("kakeya_fleet.engine.invariants.check_agreement", broken)
    request = runtime_pb2.GenerateRequest(session_id=session, max_tokens=4)
    refusal = await client.refusal("Generate", request)
    assert refusal.code == grpc.StatusCode.FAILED_PRECONDITION
    assert refusal.reason == "INVARIANT_VIOLATED"
    assert refusal.metadata["invariant"] == "history_cache_agreement"
    monkeypatch.undo()
    refusal = await client.refusal("Generate", request)
    assert refusal.reason == "SESSION_NOT_FOUND"
    assert "broken promise" in refusal.text
    assert verifier.metric("kakeya_invariant_violations_total", kind="history_cache_agreement") == 1
    assert verifier.metric("kakeya_sessions_total", outcome="invariant_violated") == 1


async def test_an_unexpected_failure_is_internal_without_its_text(
    client: calls.Caller, verifier: nodes.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await client.open()

    def broken(*_arguments: object, **_named: object) -> Never:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr("kakeya_fleet.engine.sessions.session.Session.append", broken)
    request = runtime_pb2.AppendTokensRequest(session_id=session, token_ids=[1])
    refusal = await client.refusal("AppendTokens", request)
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL_ERROR")
    assert "secret" not in refusal.text
    monkeypatch.undo()
    assert await client.append(session, [1]) == 1
    assert verifier.metric("kakeya_rpc_errors_total", reason="INTERNAL_ERROR") == 1


async def test_draining_ends_generations_and_refuses_new_ones(
    neighbourhood: nodes.Neighbourhood, checkpoint: Path
) -> None:
    node = await neighbourhood.start("leaving", f"verifier={checkpoint}", "proposer=ngram")
    client = calls.Caller(node.channel)
    running = await client.open()
    idle = await client.open()
    await client.append(running, PROMPT)
    await client.append(idle, PROMPT)
    generation = asyncio.create_task(client.generate(running, 4000))
    await calls.until(lambda: node.roles.load_numbers().generating_count)
    assert node.roles.load_numbers().generating_count == 1
    began = asyncio.get_running_loop().time()
    await node.roles.drain(60.0)
    took = asyncio.get_running_loop().time() - began
    assert took < 50.0, f"it drained for {took:.1f} s, as long as it might"
    stream = await generation
    assert stream.done.stop_reason == runtime_pb2.STOP_REASON_DRAINING
    assert stream.done.history_length == len(PROMPT) + len(stream.token_ids)
    assert node.roles.draining

    # Nobody else serves the model, to whom an opening could be sent.
    directory = neighbourhood.directory
    others = {
        node_id: view.liveness
        for node_id, view in directory.views.items()
        if node_id != node.node_id
    }
    for node_id in others:
        directory.set_liveness(node_id, Liveness.DEAD)
    refusals = [
        await client.refusal("CreateSession", runtime_pb2.CreateSessionRequest(model_id="random")),
        await client.refusal(
            "Generate", runtime_pb2.GenerateRequest(session_id=idle, max_tokens=4)
        ),
        await client.refusal("ForkSession", runtime_pb2.ForkSessionRequest(session_id=idle)),
    ]
    for refusal in refusals:
        assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    for node_id, liveness in others.items():
        directory.set_liveness(node_id, liveness)
    assert (await client.info(idle)).history_length == len(PROMPT)
    await node.stop()
    neighbourhood.directory.set_liveness("leaving", Liveness.LEFT)


async def test_who_would_open_a_session_at_a_draining_node_is_sent_to_another(
    neighbourhood: nodes.Neighbourhood, checkpoint: Path
) -> None:
    leaving = await neighbourhood.start("going", f"verifier={checkpoint}")
    staying = await neighbourhood.start("staying", f"verifier={checkpoint}")
    await leaving.roles.drain(5.0)
    for tokens in ([], PROMPT):
        refusal = await calls.Caller(leaving.channel).refusal(
            "CreateSession",
            runtime_pb2.CreateSessionRequest(model_id="random", initial_token_ids=tokens),
        )
        assert refusal.reason == "MODEL_SERVED_ELSEWHERE"
        assert refusal.metadata["node_id"] != "going"
    async with (
        AsyncClient(leaving.address) as client,
        await client.create_session("random", tokens=PROMPT) as session,
    ):
        assert session.plan.verifier.node_id == refusal.metadata["node_id"]
        assert len((await session.generate(4).collect()).token_ids) == 4
    for node in (leaving, staying):
        await node.stop()
        neighbourhood.directory.set_liveness(node.node_id, Liveness.LEFT)


async def test_idle_sessions_are_really_evicted(
    neighbourhood: nodes.Neighbourhood, checkpoint: Path
) -> None:
    settings = replace(nodes.SETTINGS, session_ttl_seconds=0.3)
    node = await neighbourhood.start("brief", f"verifier={checkpoint}", settings=settings)
    client = calls.Caller(node.channel)
    sweeping = asyncio.create_task(node.roles.run())
    session = await client.open()
    await client.append(session, PROMPT)
    assert node.roles.load_numbers().kv_bytes > 0
    await calls.until(lambda: not node.roles.load_numbers().session_count)
    assert node.roles.load_numbers().kv_bytes == 0
    refusal = await client.refusal(
        "GetSessionInfo", runtime_pb2.GetSessionInfoRequest(session_id=session)
    )
    assert refusal.reason == "SESSION_NOT_FOUND"
    assert "time to live" in refusal.text
    assert node.metric("kakeya_session_evictions_total", reason="ttl") == 1
    sweeping.cancel()
    await asyncio.wait((sweeping,))
    await node.stop()


async def test_an_idle_session_gives_up_its_draft_stream_and_takes_it_again(
    neighbourhood: nodes.Neighbourhood, checkpoint: Path
) -> None:
    # Nodes of its own: streams and breakers of other tests' sessions are not counted.
    settings = replace(nodes.SETTINGS, rest_seconds=0.0)
    verifier = await neighbourhood.start("restful", f"verifier={checkpoint}", settings=settings)
    proposer = await neighbourhood.start("drafter", "proposer=ngram")
    client = calls.Caller(verifier.channel)
    session = await client.open(
        mode=calls.FIXED, proposer="ngram", proposer_node="drafter", block_size=5
    )
    await client.append(session, PROMPT * 3)
    tokens = (await client.generate(session, 40)).token_ids
    await calls.until(lambda: proposer.roles.load_numbers().draft_stream_count == 1)
    verifier.roles.verifier._lifecycle.sweep()
    await calls.until(lambda: not proposer.roles.load_numbers().draft_stream_count)
    again = await client.generate(session, 40)
    assert again.done.speculation.faults == []
    whole = await client.open()
    await client.append(whole, PROMPT * 3)
    assert (await client.generate(whole, 80)).token_ids == tokens + again.token_ids
    await verifier.stop()
    await proposer.stop()


async def test_closing_a_session_is_no_fault_of_the_proposer_whose_draft_it_waits_for(
    client: calls.Caller, verifier: nodes.Node, neighbourhood: nodes.Neighbourhood
) -> None:
    servicer = liars.hanging()
    await neighbourhood.start_liar("waited-for", servicer)
    session = await client.open(mode=calls.FIXED, proposer="liar", proposer_node="waited-for")
    await client.append(session, PROMPT)
    call = started(client, session)
    pairing = verifier.roles.sessions.opened(session).pairing

    def waits() -> bool:
        rival = drafting(pairing)
        source = rival.source if rival is not None else None
        return isinstance(source, RemoteDraftSource) and bool(
            servicer.sent_token_count and source._stream is not None and source._stream._waiting
        )

    await calls.until(waits)
    await client.close(session)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        while await call.read() is not grpc.aio.EOF:
            pass
    assert calls.refused(caught.value).reason == "SESSION_NOT_FOUND"
    # Its stream ends too, long before the proposer answers.
    await asyncio.wait_for(servicer.cancelled.wait(), timeout=PATIENCE_SECONDS)
    assert not verifier.roles.verifier.open_breakers()


async def test_the_deadline_holds_while_a_generate_waits_for_its_turn(client: calls.Caller) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    first = started(client, session)
    await first.read()
    stream = await client.generate(session, 10, deadline_seconds=0.05, temperature=1.0, seed=5)
    assert first.done() is False, "the first one was over before its time"
    assert stream.done.stop_reason == runtime_pb2.STOP_REASON_DEADLINE
    assert stream.token_ids == []
    assert stream.done.seed == 5
    assert stream.done.history_length > len(PROMPT)
    assert stream.done.timings.queue_seconds >= 0.05
    assert stream.done.timings.total_seconds == stream.done.timings.queue_seconds
    assert stream.done.timings.first_token_seconds == 0, "there was no first token"
    first.cancel()
    await settled(client, session)
    assert len((await client.generate(session, 5)).token_ids) == 5


async def test_a_session_closed_while_it_changes_its_stream_leaves_none_open(
    client: calls.Caller,
    verifier: nodes.Node,
    proposer: nodes.Node,
    neighbourhood: nodes.Neighbourhood,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The proposer has a new channel, and the old stream is slow to close."""
    session = await client.open(mode=calls.FIXED, proposer="ngram", proposer_node="proposer")
    await client.append(session, PROMPT)
    await client.generate(session, 10)
    pairing = verifier.roles.sessions.opened(session).pairing
    rival = drafting(pairing)
    assert rival is not None
    source = rival.source
    closing, gate = asyncio.Event(), asyncio.Event()
    close = source.close

    async def slow() -> None:
        closing.set()
        await gate.wait()
        await close()

    monkeypatch.setattr(source, "close", slow)
    await neighbourhood.directory.put("proposer", proposer.address, proposer.roles.offers())
    request = runtime_pb2.GenerateRequest(session_id=session, max_tokens=10)
    generating = asyncio.create_task(client.refusal("Generate", request))
    await closing.wait()
    await client.close(session)
    gate.set()
    assert (await generating).reason == "SESSION_NOT_FOUND"
    await calls.until(lambda: not proposer.roles.load_numbers().draft_stream_count)
    assert not pairing._connections._open


async def test_what_was_measured_counts_although_the_client_left_before_the_end(
    neighbourhood: nodes.Neighbourhood, checkpoint: Path
) -> None:
    node = await neighbourhood.start("left", f"verifier={checkpoint}", "proposer=ngram")
    client = calls.Caller(node.channel)
    session = await client.open(mode=calls.FIXED, proposer="ngram", proposer_node="left")
    await client.append(session, PROMPT)
    call = started(client, session)
    received = 0
    while received < 400:
        received += len((await next_message(call)).tokens.token_ids)
    call.cancel()
    await settled(client, session)
    blocks = node.metric("kakeya_verify_seconds_count")
    assert blocks > 256 / 4, "only the timeline was counted"
    accepted = node.metric("kakeya_spec_decode_num_accepted_tokens_total")
    drafted = node.metric("kakeya_spec_decode_num_draft_tokens_total")
    assert 0 < accepted <= drafted
    assert received <= blocks + accepted
    measured = dict(node.roles.verifier.acceptances())["random", "ngram"]
    # Less what was drafted where the text repeated itself.
    assert 0.5 * drafted < measured.drafted_count <= drafted
    await node.stop()
