"""A node with 10,000 sessions: all of them are told, in messages that clients take.

So are fewer that have as many bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from kakeya import AsyncClient, Client, SessionsSnapshot
from kakeya.v1 import placement_pb2, runtime_pb2
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.sessions.session_record import MAX_LABEL_CHARACTERS, SessionOptions
from kakeya_fleet.node.roles.verifier import report_wire
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.runtime_service import PAGE_BYTES
from kakeya_fleet.node.rpc.grpc_settings import DATA_MESSAGE_BYTES
from kakeya_fleet.node.watch.snapshot_parts import PART_BYTES
from tests.node.conftest import next_message
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support.breadth import wide

pytestmark = pytest.mark.asyncio(loop_scope="module")

SESSIONS = 10_000
FEW = 1_250
FEW_PLAN_BYTES = 4096
"""Of each of the few: neither they nor all of the many fit a message."""
SMALLEST = CacheSpec(CacheKind.SINK_WINDOW, sink=0, window=1)
LABELLED = SessionOptions(client_label="x" * MAX_LABEL_CHARACTERS)
IN_PARTS = runtime_pb2.WatchSessionsRequest(in_parts=True)


class Crowd:
    """A node, and sessions that it has as if clients had opened them."""

    def __init__(self, node: nodes.Node, like: OpenSession) -> None:
        self.node = node
        self._like = like
        self._verifier = node.roles.verifier
        self.ids = [like.session_id]

    def open(self) -> str:
        """One more, without a call."""
        like = self._like
        record = self.node.roles.sessions.create(like.served.budget, SMALLEST, LABELLED)
        session = OpenSession(record, like.spec, like.asked, like.served, like.pairing)
        self.node.roles.sessions.open(record, session)
        self._verifier.session_watch.opened(session)
        self.ids.append(session.session_id)
        return session.session_id

    def close(self, session_id: str) -> None:
        self.node.roles.sessions.close(session_id)
        self.ids.remove(session_id)

    def change(self, session_id: str) -> None:
        """Something happens to it that watchers are told of."""
        session = self.node.roles.sessions.opened(session_id)
        self._verifier.session_watch.prefilled(session, 1, 0.001)


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=[FEW, wide(SESSIONS)])
async def crowd(
    request: pytest.FixtureRequest, neighbourhood: nodes.Neighbourhood, checkpoint: Path
) -> AsyncIterator[Crowd]:
    count = int(request.param)
    settings = replace(nodes.SETTINGS, kv_budget_bytes=1 << 30)
    name = f"crowd-of-{count}"
    node = await neighbourhood.start(name, f"verifier={checkpoint}", settings=settings)
    first = await calls.Caller(node.channel).open()
    made = Crowd(node, node.roles.sessions.opened(first))
    for _ in range(count - 1):
        made.open()
    with pytest.MonkeyPatch.context() as patched:
        if count == FEW:
            plan = placement_pb2.Plan(reasons=["x" * FEW_PLAN_BYTES])
            patched.setattr(report_wire, "plan_to_wire", lambda _: plan)
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def client(crowd: Crowd) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(crowd.node.address) as opened:
        yield opened


async def test_they_are_listed_by_pages_each_once(crowd: Crowd, client: AsyncClient) -> None:
    # A page of the few has room for some 250.
    size = min(1000, len(crowd.ids) // 10)
    assert [each.session_id async for each in client.sessions(page_size=size)] == crowd.ids


async def test_a_page_is_cut_by_bytes_too(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 sessions with plans of 8 KiB would not fit a message."""
    plan = placement_pb2.Plan(reasons=["x" * 8192])
    monkeypatch.setattr(report_wire, "plan_to_wire", lambda _: plan)
    request = runtime_pb2.ListSessionsRequest(page_size=1000)
    listed: list[str] = []
    stub = calls.Caller(crowd.node.channel).stub
    while len(listed) < 1000:
        page = await stub.ListSessions(request)
        assert page.ByteSize() < PAGE_BYTES + 16384
        listed += [each.session_id for each in page.sessions]
        request.page_token = page.next_page_token
    assert listed == crowd.ids[: len(listed)]


async def test_a_watch_in_parts_begins_with_all_of_them(crowd: Crowd) -> None:
    call = calls.Caller(crowd.node.channel).stub.WatchSessions(IN_PARTS)
    told: list[str] = []
    more = True
    while more:
        part = (await next_message(call)).snapshot
        assert part.ByteSize() < PART_BYTES + 16384
        told += [each.session.session_id for each in part.sessions]
        more = part.more
    call.cancel()
    assert told == crowd.ids


async def test_clients_hand_out_one_snapshot(crowd: Crowd, client: AsyncClient) -> None:
    async with client.watch_sessions() as events:
        first = await anext(aiter(events))
    assert isinstance(first, SessionsSnapshot)
    assert [each.session.session_id for each in first.sessions] == crowd.ids

    def count() -> int:
        with Client(crowd.node.address) as client, client.watch_sessions() as events:
            first = next(iter(events))
            assert isinstance(first, SessionsSnapshot)
            return len(first.sessions)

    assert await asyncio.to_thread(count) == len(crowd.ids)


async def test_who_does_not_take_parts_is_told_why_and_what_to_do(crowd: Crowd) -> None:
    refusal = await calls.Caller(crowd.node.channel).refusal(
        "WatchSessions", runtime_pb2.WatchSessionsRequest()
    )
    assert refusal.code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refusal.reason == "ANSWER_TOO_LARGE"
    assert f"{DATA_MESSAGE_BYTES:,}" in refusal.text
    assert "update the client" in refusal.metadata["mend"]


async def test_what_happens_while_a_slow_reader_takes_the_parts_is_not_lost(crowd: Crowd) -> None:
    call = calls.Caller(crowd.node.channel).stub.WatchSessions(IN_PARTS)
    first = (await next_message(call)).snapshot
    sent, unsent = first.sessions[0].session.session_id, crowd.ids[-1]
    gone = [crowd.ids[1], crowd.ids[-2]]
    for session_id in gone:
        crowd.close(session_id)
    new = crowd.open()
    crowd.change(sent)
    crowd.change(unsent)
    # Both are told to all by the loop, which this does not wait for otherwise.
    watch = crowd.node.roles.verifier.session_watch
    await calls.until(lambda: not watch._pacer.waiting)
    prefilled = {each.session.session_id: each.prefilled_token_count for each in first.sessions}
    ended: list[str] = []
    snapshot = first
    while snapshot.more:
        snapshot = (await next_message(call)).snapshot
        assert snapshot.sessions or not snapshot.more
        for each in snapshot.sessions:
            assert each.session.session_id not in prefilled
            prefilled[each.session.session_id] = each.prefilled_token_count
    assert prefilled[sent] == 0
    assert prefilled[unsent] == 1
    assert gone[1] not in prefilled
    while not (new in prefilled and prefilled[sent] and ended):
        message = await next_message(call)
        if message.WhichOneof("kind") == "ended":
            ended.append(message.ended.session_id)
            del prefilled[message.ended.session_id]
        else:
            changed = message.changed
            prefilled[changed.session.session_id] = changed.prefilled_token_count
    call.cancel()
    assert ended == gone[:1]
    assert set(prefilled) == set(crowd.ids)
