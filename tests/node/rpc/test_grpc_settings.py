"""What gRPC really does with the node's settings."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc.aio
import pytest

from kakeya.v1 import capability_pb2, capability_pb2_grpc
from kakeya_fleet.node.rpc.grpc_settings import Options, client_options, server_options
from tests.node.conftest import AgentProcess
from tests.support.patience import PATIENCE_SECONDS


def with_(**changes: int) -> Options:
    """The client's options with some replaced; `__` stands for a dot."""
    changed = {f"grpc.{key.replace('__', '.')}": value for key, value in changes.items()}
    return tuple((dict(client_options()) | changed).items())


PERMITS = ("grpc.http2.min_ping_interval_without_data_ms", "grpc.keepalive_permit_without_calls")
FASTER = 25
"""Both ends' milliseconds are divided by it."""


def faster(options: Options) -> Options:
    return tuple(
        (name, value // FASTER if name.endswith("_time_ms") or name == PERMITS[0] else value)
        for name, value in options
    )


@asynccontextmanager
async def idle_channel(options: Options) -> AsyncIterator[grpc.aio.Channel]:
    """A channel that has no calls, only keepalive, to a server with these options."""
    server = grpc.aio.server(options=faster(options))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    client = faster(client_options())
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=client) as channel:
        await channel.channel_ready()
        yield channel
    await server.stop(None)


async def test_an_idle_channel_is_not_hung_up_on() -> None:
    strict = tuple(each for each in server_options() if each[0] not in PERMITS)
    async with idle_channel(server_options()) as kept, idle_channel(strict) as refused:
        # The third ping that a server does not permit makes it hang up.
        changed = kept.wait_for_state_change(grpc.ChannelConnectivity.READY)
        hung_up = refused.wait_for_state_change(grpc.ChannelConnectivity.READY)
        first, second = map(asyncio.ensure_future, (changed, hung_up))
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
        assert (first.done(), second.done()) == (False, True)
        first.cancel()


async def test_a_frozen_server_is_noticed_without_a_deadline(
    spawn_agent: Callable[..., Awaitable[AgentProcess]],
) -> None:
    agent = await spawn_agent()
    options = with_(keepalive_time_ms=1000, http2__ping_timeout_ms=500)
    async with grpc.aio.insecure_channel(agent.address, options=options) as channel:
        stub = capability_pb2_grpc.CapabilityServiceStub(channel)
        await stub.GetNode(capability_pb2.GetNodeRequest())
        agent.signal(signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE_SECONDS):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.GetNode(capability_pb2.GetNodeRequest())
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
