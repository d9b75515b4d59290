"""What gRPC really does with the node's settings."""

import asyncio
import signal
import time

import grpc.aio
import pytest

from kakeya.v1 import capability_pb2, capability_pb2_grpc
from kakeya_fleet.node.rpc.grpc_settings import client_options


def with_(**changes: int) -> tuple[tuple[str, int], ...]:
    """The client's options with some replaced; `__` stands for a dot."""
    changed = {f"grpc.{key.replace('__', '.')}": value for key, value in changes.items()}
    return tuple((dict(client_options()) | changed).items())


@pytest.mark.slow
async def test_an_idle_channel_is_not_hung_up_on(start_agent) -> None:
    agent = await start_agent()
    options = with_(keepalive_time_ms=5100)
    async with grpc.aio.insecure_channel(agent.address, options=options) as channel:
        await channel.channel_ready()
        # The third ping that a server does not permit makes it hang up.
        changed = channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(changed, 22)


async def test_a_frozen_server_is_noticed_without_a_deadline(spawn_agent) -> None:
    agent = await spawn_agent()
    options = with_(keepalive_time_ms=1000, http2__ping_timeout_ms=500)
    async with grpc.aio.insecure_channel(agent.address, options=options) as channel:
        stub = capability_pb2_grpc.CapabilityServiceStub(channel)
        await stub.GetNode(capability_pb2.GetNodeRequest())
        agent.signal(signal.SIGSTOP)
        before = time.monotonic()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetNode(capability_pb2.GetNodeRequest())
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert time.monotonic() - before < 10
