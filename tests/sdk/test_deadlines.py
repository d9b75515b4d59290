from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.message import Message

import kakeya
from kakeya import AsyncClient, Timeouts
from tests.support.scripted_node import ScriptedNode

if TYPE_CHECKING:
    from tests.support.scripted_node import Context


@pytest.fixture
def silent_address() -> Iterator[str]:
    """Accepts connections and never says a word, as a frozen node does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


async def test_a_refused_connection_fails_and_says_what_to_do(unused_tcp_port: int) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    async with AsyncClient(address) as client:
        with pytest.raises(kakeya.NodeUnreachable) as caught:
            await client.create_session("tiny")
        assert str(caught.value) == f"no node answers at {address}: is `fleet join` running there?"
        assert caught.value.attempts == 1
        with pytest.raises(kakeya.NodeUnreachable):
            await client.fleet.nodes()


async def test_a_node_that_came_back_is_reached_at_once(node: ScriptedNode) -> None:
    """Though the channel pauses after what failed: a pause that grows to 2 seconds."""
    port = int(node.address.rpartition(":")[2])
    async with AsyncClient(node.address) as client:
        await client.fleet.node()
        for _ in range(3):
            await node.stop()
            connection = client._home
            with pytest.raises(kakeya.NodeUnreachable):
                await client.fleet.nodes()
            channel = connection._open_channel()
            while channel.get_state() is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                await channel.wait_for_state_change(channel.get_state(try_to_connect=True))
            with pytest.raises(kakeya.NodeUnreachable):
                await client.fleet.nodes()
            await node.start(port=port)
            assert await client.fleet.nodes()


async def test_a_frozen_node_costs_the_connect_timeout(silent_address: str) -> None:
    async with AsyncClient(silent_address, timeouts=Timeouts(connect=0.3, unary=60)) as client:
        for failing in (client.fleet.node(), client.fleet.nodes()):
            start = time.monotonic()
            with pytest.raises(kakeya.NodeUnreachable):
                await failing
            assert time.monotonic() - start > 0.25


async def test_closing_while_connecting(silent_address: str) -> None:
    client = AsyncClient(silent_address, timeouts=Timeouts(connect=60))
    connecting = asyncio.ensure_future(client.fleet.node())
    watching = asyncio.ensure_future(client.fleet.nodes())
    await asyncio.sleep(0)
    await client.close()
    for waiting in (connecting, watching):
        with pytest.raises(kakeya.ClientClosed):
            await waiting


async def test_a_cancelled_caller_is_cancelled(silent_address: str) -> None:
    async with AsyncClient(silent_address) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.fleet.node(), 0.1)


async def test_a_call_without_an_answer_ends_at_its_deadline(
    node: ScriptedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncClient(node.address) as client:
        await client.fleet.node()
        monkeypatch.setattr(client._home, "timeouts", Timeouts(unary=0.3))
        monkeypatch.setattr(node, "_enter", lambda *_: asyncio.Event().wait())
        with pytest.raises(kakeya.DeadlineExceeded):
            await client.fleet.node()
        with pytest.raises(kakeya.DeadlineExceeded):
            await client.fleet.nodes()


async def test_an_append_has_time_for_its_tokens(
    node: ScriptedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeouts = Timeouts(append_base=0.0, append_per_token=1.0)
    async with AsyncClient(node.address, timeouts=timeouts) as client:
        session = await client.create_session("tiny")
        remaining: list[float] = []

        async def observe(method: str, request: Message, context: Context) -> None:
            remaining.append(context.time_remaining())

        monkeypatch.setattr(node, "_enter", observe)
        await session.append([1] * 10)
        fork = await session.fork()
        await fork.append([1] * 5)
        await fork.append([1] * 5)
        del remaining[1]
        assert [round(seconds) for seconds in remaining] == [10, 15, 5]


async def test_a_generation_with_a_deadline_has_one_on_the_wire(
    node: ScriptedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    remaining: list[float] = []

    async def observe(method: str, request: Message, context: Context) -> None:
        remaining.append(context.time_remaining())

    async with AsyncClient(node.address, timeouts=Timeouts(stream_idle=5)) as client:
        session = await client.create_session("tiny")
        await session.append([1])
        monkeypatch.setattr(node, "_enter", observe)
        await session.generate(1, deadline_seconds=20).collect()
        await session.generate(1).collect()
        await anext(aiter(client.fleet.watch()))
    # gRPC rounds deadlines up, by 1 % at most.
    assert 20 < remaining[0] < 26
    assert 80_000 < remaining[1] < 87_000
    assert 80_000 < remaining[2] < 87_000


@pytest.mark.parametrize("address", ["", "localhost", "localhost:", ":80", "host:http", "h:1x"])
def test_an_address_is_host_and_port(address: str) -> None:
    with pytest.raises(kakeya.UsageError, match="HOST:PORT"):
        AsyncClient(address)


async def test_a_closed_client_says_so_and_closes_twice(node: ScriptedNode) -> None:
    client = AsyncClient(node.address)
    await client.fleet.node()
    await client.close()
    await client.close()
    with pytest.raises(kakeya.ClientClosed):
        await client.fleet.node()
    with pytest.raises(kakeya.ClientClosed):
        await client.fleet.nodes()
