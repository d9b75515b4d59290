"""A proposer killed in mid-generation, as those see it who watch its verifier's node."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator

import grpc.aio
import pytest

from kakeya.v1 import (
    capability_pb2,
    capability_pb2_grpc,
    placement_pb2,
    runtime_pb2,
    runtime_pb2_grpc,
)
from scripts.support.agent_process import AgentProcess, LocalFleet
from tests.support.patience import PATIENCE_SECONDS

TOKENS = 360
"""The proposer is dead long before the last of them, which a verifier that is slowed says in
seconds."""
STANDS_SECONDS = 0.1
FIRST_TOKENS = 16
KILLED_AFTER = 40


@pytest.fixture(scope="module", autouse=True)
def short_periods() -> Iterator[None]:
    """A dead node is known within seven of them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("KAKEYA_PERIOD_SECONDS", "0.3")
        yield


class Seen:
    """All that two watches of a node told."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.events: list[capability_pb2.NodeEvent] = []
        self.samples: list[capability_pb2.NodeSample] = []
        self.activities: list[runtime_pb2.SessionActivity] = []
        self.nodes: list[capability_pb2.GetNodeResponse] = []
        self._changed = asyncio.Condition()
        self._tasks = [
            asyncio.create_task(self._watch_node(channel)),
            asyncio.create_task(self._watch_sessions(channel)),
        ]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), self._changed:
            await self._changed.wait_for(condition)

    def event(self, kind: str) -> capability_pb2.NodeEvent | None:
        return next((event for event in self.events if event.kind == kind), None)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch_node(self, channel: grpc.aio.Channel) -> None:
        stub = capability_pb2_grpc.CapabilityServiceStub(channel)
        async for message in stub.WatchNode(capability_pb2.WatchNodeRequest()):
            kind = message.WhichOneof("kind")
            if kind in ("event", "sample", "node"):
                getattr(self, f"{kind}s").append(getattr(message, kind))
            await self._tell()

    async def _watch_sessions(self, channel: grpc.aio.Channel) -> None:
        stub = runtime_pb2_grpc.RuntimeServiceStub(channel)
        async for message in stub.WatchSessions(runtime_pb2.WatchSessionsRequest()):
            if message.WhichOneof("kind") == "changed":
                self.activities.append(message.changed)
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def test_a_killed_proposer_is_seen_in_time_on_node_and_session(
    shared_fleet: LocalFleet, verifier: AgentProcess, prompt: tuple[int, ...]
) -> None:
    proposer = await asyncio.to_thread(started, shared_fleet, verifier)
    async with grpc.aio.insecure_channel(verifier.address) as channel:
        seen = Seen(channel)
        stub = runtime_pb2_grpc.RuntimeServiceStub(channel)
        await seen.until(lambda: seen.samples)
        session = await opened(stub, proposer)
        await stub.AppendTokens(
            runtime_pb2.AppendTokensRequest(session_id=session, token_ids=prompt)
        )
        token_count, killed = 0, False
        # The first drafts come, however slow the node will be.
        first = runtime_pb2.GenerateRequest(session_id=session, max_tokens=FIRST_TOKENS)
        async for message in stub.Generate(first, timeout=60):
            token_count += len(message.tokens.token_ids)
        request = runtime_pb2.GenerateRequest(session_id=session, max_tokens=TOKENS)
        with verifier.slowed(STANDS_SECONDS) as speed_up:
            async for message in stub.Generate(request, timeout=60):
                token_count += len(message.tokens.token_ids)
                if token_count >= FIRST_TOKENS + KILLED_AFTER and not killed:
                    killed = True
                    proposer.signal(signal.SIGKILL)
                    speed_up()
        await seen.until(lambda: seen.event("PEER_DEAD"))
        # The first answer has left its stop reason: that the second has ended, its tokens say.
        await seen.until(lambda: seen.activities[-1].generated_token_count == token_count)
        await seen.until(lambda: not seen.samples[-1].drafted_count)
        await seen.close()

    dropped, suspect, dead = map(seen.event, ("PROPOSER_DROPPED", "PEER_SUSPECT", "PEER_DEAD"))
    assert dropped is not None, [event.kind for event in seen.events]
    assert (dropped.session_id, dropped.subject_node_id) == (session, proposer.node_id)
    assert dropped.severity == capability_pb2.EVENT_SEVERITY_WARNING
    assert "watched" in dropped.message
    assert dropped.mend
    assert dead is not None
    assert dead.subject_node_id == proposer.node_id
    assert dead.severity == capability_pb2.EVENT_SEVERITY_ERROR
    assert dead.mend
    assert suspect is None or suspect.number < dead.number
    opened_breaker = seen.event("BREAKER_OPENED")
    assert opened_breaker is not None
    assert opened_breaker.subject_node_id == proposer.node_id

    reasons = [activity.session.drop_reason for activity in seen.activities]
    assert reasons[0] == runtime_pb2.DROP_REASON_UNSPECIFIED
    # On a busy machine its last draft may be late before it is gone.
    assert reasons[-1] in (runtime_pb2.DROP_REASON_UNREACHABLE, runtime_pb2.DROP_REASON_DEADLINE)
    blocks = [block for activity in seen.activities for block in activity.blocks]
    assert blocks[0].drafted_count or blocks[1].drafted_count
    assert not blocks[-1].drafted_count
    # Of a message that comes late the oldest blocks are left out, and never from what it counts.
    assert sum(block.committed_count for block in blocks) <= token_count
    # Drafts that were verified came to their end with the proposer.
    drafted = sum(sample.drafted_count for sample in seen.samples)
    assert drafted == seen.activities[-1].drafted_count
    shut_out = [link for node in seen.nodes for link in node.links if link.breaker_open]
    assert {link.node_id for link in shut_out} == {proposer.node_id}


def started(fleet: LocalFleet, verifier: AgentProcess) -> AgentProcess:
    """A proposer, once the verifier's node knows it."""
    agent = fleet.start("watched", serve=("proposer=ngram",), peers=(verifier.address,))
    verifier.wait_for("peer_joined", lambda event: event["node_id"] == agent.node_id)
    return agent


async def opened(stub: runtime_pb2_grpc.RuntimeServiceAsyncStub, proposer: AgentProcess) -> str:
    response = await stub.CreateSession(
        runtime_pb2.CreateSessionRequest(
            model_id="tiny",
            kv_strategy=placement_pb2.KV_STRATEGY_SINK_WINDOW,
            sink_tokens=4,
            window_tokens=32,
            speculation=runtime_pb2.Speculation(
                mode=runtime_pb2.SPECULATION_MODE_FIXED,
                proposer_model_id="ngram",
                proposer_node_id=proposer.node_id,
                block_size=4,
            ),
        )
    )
    return response.session_id
