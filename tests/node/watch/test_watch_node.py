"""WatchNode over a real server: the history first, then what happens, while it happens."""

import asyncio
import math
import signal
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc.aio import UnaryStreamCall
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kakeya.v1 import capability_pb2, capability_pb2_grpc, runtime_pb2, runtime_pb2_grpc
from kakeya_fleet.engine.errors import ModelNotFound
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.refusals import WatcherTooSlow
from kakeya_fleet.node.watch.activity import NodeActivity
from kakeya_fleet.node.watch.event_log import EventKind
from kakeya_fleet.node.watch.node_sample import Levels, Totals
from kakeya_fleet.node.watch.node_watch import NODE_QUEUE, NodeWatch
from kakeya_fleet.node.watch.transfers import TransferKind
from kakeya_fleet.node.watch.watchers import Watcher
from tests.node.conftest import SpawnAgent, StartAgent, ValueOf, next_message


class Node:
    """A node that is what a test says it is."""

    def __init__(self) -> None:
        self.report = capability_pb2.GetNodeResponse()

    def now(self) -> capability_pb2.GetNodeResponse:
        copy = capability_pb2.GetNodeResponse()
        copy.CopyFrom(self.report)
        return copy

    def totals(self) -> Totals:
        return Totals()

    def levels(self) -> Levels:
        return Levels()


Watched = tuple[Node, NodeActivity, NodeWatch]


@pytest.fixture
async def watched(metrics: NodeMetrics) -> AsyncIterator[Watched]:
    node, activity = Node(), NodeActivity()
    watch = NodeWatch(node, activity, metrics)
    yield node, activity, watch
    watch.close()


WatchCall = UnaryStreamCall[capability_pb2.WatchNodeRequest, capability_pb2.WatchNodeResponse]


async def told_to(
    watcher: Watcher[capability_pb2.WatchNodeResponse],
) -> capability_pb2.WatchNodeResponse:
    message = await watcher.next()
    assert message is not None, "the watch ended"
    return message


async def next_of(
    call: WatchCall, kind: str, seconds: float = 30.0
) -> capability_pb2.WatchNodeResponse:
    """The next message of that kind."""
    async with asyncio.timeout(seconds):
        while True:
            message = await next_message(call)
            if message.WhichOneof("kind") == kind:
                return message


async def test_the_history_comes_first_and_samples_follow(start_agent: StartAgent) -> None:
    agent = await start_agent(serve=["proposer=ngram"])
    stub = capability_pb2_grpc.CapabilityServiceStub(agent.channel)
    call = stub.WatchNode(capability_pb2.WatchNodeRequest(history_seconds=60))
    first = await next_message(call)
    assert first.WhichOneof("kind") == "history"
    assert first.history.node.card.node_id == agent.node_id
    assert abs(first.history.node.started_at_unix - time.time()) < 60
    assert first.history.sample_seconds == 1.0
    assert [event.kind for event in first.history.events] == ["MODEL_LOADED"]
    (load,) = first.history.transfers
    assert (load.model_id, load.state) == ("ngram", capability_pb2.TRANSFER_STATE_DONE)
    sample = (await next_of(call, "sample")).sample
    assert sample.memory_free_bytes > 0
    assert abs(sample.at_unix - time.time()) < 5
    assert 0 <= sample.cpu_share <= 1
    assert 0 < sample.process_cpu_share <= 1
    assert sample.HasField("cpu_share")
    # No accelerator was asked for: what is not known is no 0.
    assert not sample.HasField("accelerator_share")
    assert not first.history.node.load.HasField("cpu_share")
    call.cancel()
    again = stub.WatchNode(capability_pb2.WatchNodeRequest(history_seconds=60))
    history = (await next_message(again)).history
    assert history.node.load.HasField("cpu_share")
    assert history.node.load.process_cpu_share > 0
    assert sample.at_unix in [each.at_unix for each in history.samples]
    none = await next_message(stub.WatchNode(capability_pb2.WatchNodeRequest()))
    assert not none.history.samples
    again.cancel()


async def test_a_history_that_cannot_be_is_refused(start_agent: StartAgent) -> None:
    agent = await start_agent()
    stub = capability_pb2_grpc.CapabilityServiceStub(agent.channel)
    for seconds in (-1.0, 901.0, math.nan, math.inf):
        request = capability_pb2.WatchNodeRequest(history_seconds=seconds)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await next_message(stub.WatchNode(request))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, seconds


async def test_peers_that_come_and_go_are_events_and_leaving_ends_the_watch(
    start_agent: StartAgent,
) -> None:
    agent = await start_agent("a")
    stub = capability_pb2_grpc.CapabilityServiceStub(agent.channel)
    call = stub.WatchNode(capability_pb2.WatchNodeRequest())
    await next_message(call)
    peer = await start_agent("b", peers=[agent.address])
    joined = (await next_of(call, "event")).event
    assert (joined.kind, joined.subject_node_id) == ("PEER_JOINED", peer.node_id)
    assert joined.severity == capability_pb2.EVENT_SEVERITY_INFO
    assert joined.message == "b joined the fleet."
    node = (await next_of(call, "node")).node
    assert node.links or (await next_of(call, "node")).node.links
    await peer.leave()
    assert (await next_of(call, "event")).event.kind == "PEER_LEFT"
    leaving = asyncio.ensure_future(agent.leave())
    assert (await next_of(call, "event")).event.kind == "DRAINING"
    async with asyncio.timeout(30):
        while await call.read() is not grpc.aio.EOF:
            pass
    await leaving


async def test_what_people_wait_for_is_told_before_the_next_sample(watched: Watched) -> None:
    node, activity, watch = watched
    with watch.watcher() as watcher:
        watch.history(0)
        activity.events.add(EventKind.GROUP_LOST, "lost")
        assert (await told_to(watcher)).event.kind == "GROUP_LOST"
        assert (await told_to(watcher)).WhichOneof("kind") == "node"
        node.report.load.session_count = 1
        for _ in range(50):
            watch.changed()
        assert (await told_to(watcher)).node.load.session_count == 1
        # Nothing changed: nothing is told.
        watch.changed()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watcher.next(), 0.3)


async def test_progress_from_another_thread_is_told_now_and_then_and_its_end(
    watched: Watched,
) -> None:
    _node, activity, watch = watched
    with watch.watcher() as watcher:
        transfer = activity.transfers.begin(TransferKind.DOWNLOAD, "m")

        def work() -> None:
            until = time.monotonic() + 0.6
            done = 0
            while time.monotonic() < until:
                done += 1
                transfer.progress(done, 1 << 40)
            transfer.done()

        await asyncio.to_thread(work)
        told = [(await told_to(watcher)).transfer]
        while told[-1].state == capability_pb2.TRANSFER_STATE_RUNNING:
            told.append((await told_to(watcher)).transfer)
    assert told[-1].state == capability_pb2.TRANSFER_STATE_DONE
    assert 2 <= len(told) <= 6


async def test_a_slow_watcher_is_dropped_and_the_others_go_on(
    watched: Watched, value_of: ValueOf
) -> None:
    _node, activity, watch = watched
    with watch.watcher() as slow, watch.watcher() as quick:
        for number in range(NODE_QUEUE + 1):
            activity.events.add(EventKind.PEER_JOINED, str(number))
            assert (await told_to(quick)).event.message == str(number)
        with pytest.raises(WatcherTooSlow):
            await slow.next()
        assert value_of("kakeya_watchers_dropped_total") == 1


def downloading_through(agents: pytest.MonkeyPatch, silent: socket.socket) -> None:
    """Agents ask the hub for a model by way of one who says nothing: whoever downloads waits."""
    for variable in ("no_proxy", "NO_PROXY"):
        agents.delenv(variable, raising=False)
    agents.setenv("HF_HUB_OFFLINE", "0")
    agents.setenv("https_proxy", f"http://127.0.0.1:{silent.getsockname()[1]}")


async def test_a_node_is_seen_while_it_loads_and_refuses_its_model_until_then(
    spawn_agent: SpawnAgent,
    start_agent: StartAgent,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observer = await start_agent("a")
    fleet = capability_pb2_grpc.CapabilityServiceStub(observer.channel).WatchNode(
        capability_pb2.WatchNodeRequest()
    )
    await next_message(fleet)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with monkeypatch.context() as agents:
            downloading_through(agents, silent)
            agent = await spawn_agent(
                "b", serve=["verifier=some/model"], peers=[observer.address], until_ready=False
            )
        joined = await agent.events.wait_for("joined")
        assert joined["serve"] == ["verifier=some/model"]
        event = (await next_of(fleet, "event")).event
        assert (event.kind, event.subject_node_id) == ("PEER_JOINED", joined["node_id"])
        async with grpc.aio.insecure_channel(str(joined["address"])) as channel:
            await look_at_a_loading_node(channel)
        # It says farewell to those whom it knows.
        await agent.events.wait_for("peer_joined", node_id=observer.node_id)
        # A signal while it loads: peers hear that it left, and the process ends at once.
        agent.signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await agent.ended() == 128 + signal.SIGTERM
    # On a busy machine it may have been suspect in between.
    while (event := (await next_of(fleet, "event")).event).kind != "PEER_LEFT":
        assert event.kind in {"PEER_SUSPECT", "PEER_JOINED"}
    assert event.subject_node_id == joined["node_id"]
    # Whoever waits for nodes that serve something has not heard of it as one that joined.
    assert "peer_joined" not in [event["event"] for event in observer.events.said]


async def look_at_a_loading_node(channel: grpc.aio.Channel) -> None:
    # The stub has Check, its types have not.
    health: Any = health_pb2_grpc.HealthStub(channel)

    async def serves(name: str) -> bool:
        answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    assert not await serves("verifier")
    assert not await serves("")
    assert await serves("kakeya.v1.CapabilityService")
    call = capability_pb2_grpc.CapabilityServiceStub(channel).WatchNode(
        capability_pb2.WatchNodeRequest()
    )
    history = (await next_message(call)).history
    assert history.node.card.loading
    assert not history.node.card.models
    await next_of(call, "sample")
    call.cancel()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await runtime_pb2_grpc.RuntimeServiceStub(channel).CreateSession(
            runtime_pb2.CreateSessionRequest(model_id="some/model")
        )
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    trailing = dict(caught.value.trailing_metadata() or ())
    assert b"MODEL_LOADING" in trailing["grpc-status-details-bin"]
    assert b"RetryInfo" in trailing["grpc-status-details-bin"]


async def test_a_load_that_fails_is_told_and_the_node_leaves(
    spawn_agent: SpawnAgent,
    start_agent: StartAgent,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observer = await start_agent("a")
    call = capability_pb2_grpc.CapabilityServiceStub(observer.channel).WatchNode(
        capability_pb2.WatchNodeRequest()
    )
    await next_message(call)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with monkeypatch.context() as agents:
            downloading_through(agents, silent)
            agent = await spawn_agent(
                "b", serve=["verifier=some/model"], peers=[observer.address], until_ready=False
            )
        assert (await next_of(call, "event")).event.kind == "PEER_JOINED"
        # It says farewell to those whom it knows. The download ends with who was asked for it.
        await agent.events.wait_for("peer_joined", node_id=observer.node_id)
    assert await agent.ended() != 0
    *said, error = agent.events.said
    assert {event["event"] for event in said} <= {"joined", "peer_joined"}
    assert error["error"]["reason"] == "MODEL_NOT_FOUND"
    # On a busy machine it may have been suspect in between.
    while (event := (await next_of(call, "event")).event).kind != "PEER_LEFT":
        assert event.kind in {"PEER_SUSPECT", "PEER_JOINED"}


async def test_a_model_that_is_not_there_ends_the_node_before_it_joins(
    start_agent: StartAgent,
) -> None:
    with pytest.raises(ModelNotFound, match="no-such-model"):
        await start_agent(serve=["verifier=./no-such-model"])
