"""Sessions over the wire: what a client may do, and what it gets."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kakeya.v1 import runtime_pb2
from kakeya_fleet.node.admission.caller import THIS_MACHINE
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.session_watch import session_info
from tests.support import calls
from tests.support import neighbourhood as nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [index * 7 % 96 for index in range(40)]


async def test_a_stream_ends_with_done_and_continues_the_history(client: calls.Caller) -> None:
    session = await client.open()
    assert await client.append(session, PROMPT) == len(PROMPT)
    first = await client.generate(session, 20)
    assert first.done.stop_reason == runtime_pb2.STOP_REASON_MAX_TOKENS
    assert first.done.history_length == len(PROMPT) + 20
    second = await client.generate(session, 20)

    whole = await client.open()
    await client.append(whole, PROMPT)
    at_once = await client.generate(whole, 40)
    assert at_once.token_ids == first.token_ids + second.token_ids


async def test_a_sampled_stream_reports_the_seed_that_reproduces_it(client: calls.Caller) -> None:
    first = await client.open()
    await client.append(first, PROMPT)
    drawn = await client.generate(first, 30, temperature=1.0)
    assert drawn.done.seed != 0

    again = await client.open()
    await client.append(again, PROMPT)
    repeated = await client.generate(again, 30, temperature=1.0, seed=drawn.done.seed)
    assert repeated.token_ids == drawn.token_ids

    other = await client.open()
    await client.append(other, PROMPT)
    assert (await client.generate(other, 30, temperature=1.0)).done.seed != drawn.done.seed


async def test_a_session_that_waits_to_be_forked_is_not_evicted(
    client: calls.Caller, verifier: nodes.Node
) -> None:
    sessions, lifecycle = verifier.roles.sessions, verifier.roles.verifier._lifecycle
    served = verifier.roles.verifiers["random"]
    session = await client.open()
    await client.append(session, PROMPT)
    busy = threading.Event()
    working = asyncio.create_task(served.worker.run(busy.wait))
    forking = asyncio.create_task(lifecycle.fork(sessions.opened(session), None, THIS_MACHINE))
    await asyncio.sleep(0)
    sessions.sweep(float("inf"))
    busy.set()
    fork = await forking
    await working
    assert (await client.info(fork.session_id)).history_length == len(PROMPT)
    await client.close(fork.session_id)
    await client.close(session)


async def test_a_fork_shares_the_prefix_and_nothing_else(client: calls.Caller) -> None:
    origin = await client.open()
    await client.append(origin, PROMPT)
    expected = (await client.generate(origin, 20)).token_ids
    response = await client.stub.ForkSession(
        runtime_pb2.ForkSessionRequest(session_id=origin, history_length=len(PROMPT)), timeout=10
    )
    assert response.history_length == len(PROMPT)
    assert (await client.generate(response.session_id, 20)).token_ids == expected
    await client.append(response.session_id, [5, 6])
    assert (await client.info(origin)).history_length == len(PROMPT) + 20
    await client.close(origin)
    assert (await client.info(response.session_id)).history_length == len(PROMPT) + 22


async def test_a_list_pages_through_all_sessions_once(
    client: calls.Caller, verifier: nodes.Node
) -> None:
    created = [await client.open(client_label=f"page {index}") for index in range(7)]
    seen: list[str] = []
    token = ""
    while True:
        page = await client.stub.ListSessions(
            runtime_pb2.ListSessionsRequest(page_size=3, page_token=token), timeout=10
        )
        assert len(page.sessions) <= 3
        seen += [session.session_id for session in page.sessions]
        token = page.next_page_token
        if not token:
            break
        # A session that ends between two pages moves no other one.
        if created[0] in seen and len(created) == 7:
            await client.close(created.pop(0))
    assert len(seen) == len(set(seen))
    assert [session for session in seen if session in created] == created


async def test_info_says_how_far_an_append_is_while_it_runs(
    client: calls.Caller, verifier: nodes.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifecycle, told = verifier.roles.verifier._lifecycle, list[int]()
    prefilled = lifecycle.prefilled

    def look(session: OpenSession, token_count: int, seconds: float) -> None:
        told.append(session_info(session, 0.0).computed_token_count)
        prefilled(session, token_count, seconds)

    monkeypatch.setattr(lifecycle, "prefilled", look)
    session = await client.open()
    assert await client.append(session, [index % 96 for index in range(200)]) == 200
    # Of a history the last token is computed with what comes behind it.
    assert told == sorted(set(told))
    assert len(told) > 200 // 64
    assert told[-1] == 199
    assert (await client.info(session)).computed_token_count == 199


async def test_info_measures_memory_and_names_the_plan(client: calls.Caller) -> None:
    session = await client.open(window=64, client_label="me")
    before = await client.info(session)
    await client.append(session, [index % 96 for index in range(1000)])
    after = await client.info(session)
    assert after.kv_bytes == before.kv_bytes > 0
    assert after.resident_token_count <= 4 + 64
    assert after.history_length == 1000
    assert after.forward_count > before.forward_count
    assert after.client_label == "me"
    assert after.plan.verifier.node_id == "verifier"
    assert after.state == runtime_pb2.SESSION_STATE_IDLE
    assert after.ttl_seconds > after.idle_seconds >= 0


async def test_a_second_generate_waits_for_the_first(client: calls.Caller) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    first, second = await asyncio.gather(client.generate(session, 30), client.generate(session, 30))
    whole = await client.open()
    await client.append(whole, PROMPT)
    tokens = (await client.generate(whole, 60)).token_ids
    assert sorted([first.token_ids, second.token_ids]) == sorted([tokens[:30], tokens[30:]])
    queued = max(first.done.timings.queue_seconds, second.done.timings.queue_seconds)
    assert queued > 0.0


async def test_stop_ids_of_a_generation_are_besides_those_of_the_session(
    client: calls.Caller,
) -> None:
    session = await client.open()
    await client.append(session, PROMPT)
    tokens = (await client.generate(session, 40)).token_ids
    late, early = tokens[20], next(each for each in tokens if each != tokens[20])
    stopped = []
    for fields in ({"stop_token_ids": [early]}, {}):
        again = await client.open(stop_token_ids=[late])
        await client.append(again, PROMPT)
        end = await client.generate(again, 40, **fields)
        assert end.done.stop_reason == runtime_pb2.STOP_REASON_STOP_TOKEN
        stopped.append(end.token_ids)
    assert stopped[0] == tokens[: tokens.index(early) + 1]
    assert stopped[1] == tokens[: tokens.index(late) + 1]
