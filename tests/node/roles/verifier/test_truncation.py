"""Sessions that begin to forget say so: an event, two counts, and a field."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio

from kakeya.v1 import runtime_pb2
from kakeya_fleet.node.watch.event_log import EventKind, NodeEvent, Severity
from tests.support import calls
from tests.support import neighbourhood as nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")

SINK, WINDOW = 4, 32
SEEN = [index * 11 % 96 for index in range(SINK + WINDOW)]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def node(neighbourhood: nodes.Neighbourhood, checkpoint: Path) -> nodes.Node:
    return await neighbourhood.start("forgetful", f"verifier={checkpoint}")


@pytest.fixture
def client(node: nodes.Node) -> calls.Caller:
    return calls.Caller(node.channel)


def told(node: nodes.Node, session: str) -> list[NodeEvent]:
    return [
        event
        for event in node.activity.events.latest
        if event.kind is EventKind.HISTORY_TRUNCATED and event.session_id == session
    ]


def counted(node: nodes.Node) -> tuple[float, float]:
    return (
        node.metric("kakeya_truncated_sessions_total"),
        node.metric("kakeya_forgotten_tokens_total"),
    )


async def test_the_first_forgotten_position_is_told_once_and_all_are_counted(
    node: nodes.Node, client: calls.Caller
) -> None:
    session = await client.open(sink=SINK, window=WINDOW, client_label="notes")
    sessions, tokens = counted(node)
    await client.append(session, SEEN)
    assert (await client.info(session)).forgotten_token_count == 0
    assert not told(node, session)
    await client.append(session, [7])
    (event,) = told(node, session)
    assert event.severity is Severity.WARNING
    assert event.message == (
        "Session notes forgets from now on: of its history it sees the first 4 tokens and the"
        " last 32."
    )
    for mend in ("--window", "--kv restored", "archive=", "--kv full"):
        assert mend in event.mend
    assert counted(node) == (sessions + 1, tokens + 1)
    done = (await client.generate(session, 10)).done
    assert done.forgotten_token_count == 11
    assert (await client.info(session)).forgotten_token_count == 11
    assert counted(node) == (sessions + 1, tokens + 11)

    fork = await client.stub.ForkSession(runtime_pb2.ForkSessionRequest(session_id=session))
    assert (await client.generate(fork.session_id, 5)).done.forgotten_token_count == 16
    # It began where its origin stood: its origin's client was told.
    assert not told(node, fork.session_id)
    assert counted(node) == (sessions + 1, tokens + 16)
    assert len(told(node, session)) == 1
    for each in (session, fork.session_id):
        await client.close(each)
