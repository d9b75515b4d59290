"""Connections that others hold open without a word never cost a node its descriptors."""

import asyncio
import os
import resource
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import grpc.aio
import pytest

from kakeya.v1 import capability_pb2, capability_pb2_grpc
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.connection_guard import ConnectionGuard, open_count, seconds_to_fill
from tests.node.conftest import AgentProcess


async def test_only_connections_of_others_are_ended(
    metrics: NodeMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        holes = [socket.socket() for _ in range(20)]
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        own, taken = [], []
        for _ in range(8):
            own.append(stack.enter_context(socket.create_connection(server.getsockname())))
            taken.append(stack.enter_context(server.accept()[0]))
        pair = [stack.enter_context(each) for each in socket.socketpair()]
        # Free descriptors below those in use hide none of them.
        for hole in holes:
            hole.close()
        used = len(os.listdir("/dev/fd"))
        monkeypatch.setattr(resource, "getrlimit", lambda _which: (used + 7, 0))
        monkeypatch.setattr("kakeya_fleet.node.rpc.connection_guard.reserve_of", lambda _limit: 10)
        guard = ConnectionGuard(metrics)
        ended = guard.look()
        assert guard.room == 0
        assert {each.descriptor for each in ended} < {each.fileno() for each in taken}
        assert len(ended) == 3
        assert sum(map(_is_ended, own)) == 3
        assert not any(map(_is_ended, pair))


def _is_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False


async def test_idle_connections_cost_a_node_nothing(
    spawn_agent: Callable[..., Awaitable[AgentProcess]],
) -> None:
    """As many of them as it may have files open, on either port, while it answers others."""
    agent = await spawn_agent("flooded")
    pid, limit = agent.process.pid, 200
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))
    async with asyncio.timeout(60), grpc.aio.insecure_channel(agent.address) as channel:
        node = capability_pb2_grpc.CapabilityServiceStub(channel)
        watch = node.WatchNode(capability_pb2.WatchNodeRequest())
        messages = aiter(watch)
        await anext(messages)
        with ExitStack() as idle:
            for address in [agent.address, str(agent.ready["http_address"])]:
                host, port = address.rsplit(":", 1)
                for _ in range(limit):
                    idle.enter_context(socket.create_connection((host, int(port))))
            # It takes samples: a file is open for each.
            for _ in range(3):
                while not (await anext(messages)).HasField("sample"):
                    pass
            async with grpc.aio.insecure_channel(agent.address) as another:
                stub = capability_pb2_grpc.CapabilityServiceStub(another)
                answered = await stub.GetNode(capability_pb2.GetNodeRequest(), wait_for_ready=True)
                assert answered.card.name == "flooded"
        watch.cancel()
    agent.signal(signal.SIGTERM)
    assert await agent.ended() == 0
    assert "connections_ended" in [event["event"] for event in agent.log.said]
    # gRPC itself has a line for a connection that it could not take.
    assert not [event for event in agent.log.said if "Traceback" in str(event)]


def test_it_looks_before_others_can_have_taken_what_is_free(
    metrics: NodeMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1 << 16, 0))
    guard = ConnectionGuard(metrics)
    assert not guard.look()
    # But for the reserve, and what is open already.
    assert 0 < guard.room < (1 << 16) - (1 << 13)
    assert [seconds_to_fill(room) for room in (0, 2000, 5000, 10_000, 1 << 16)] == [
        0.1,
        0.1,
        0.25,
        0.5,
        0.5,
    ]


def test_the_system_tells_how_many_descriptors_are_open() -> None:
    before = open_count()
    if before is None:
        pytest.skip("Linux tells it from 6.2 on")
    # One is open while they are listed.
    assert before == len(os.listdir("/proc/self/fd")) - 1
    with open(os.devnull, "rb"):
        assert open_count() == before + 1
