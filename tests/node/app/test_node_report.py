from __future__ import annotations

import errno

import grpc.aio
import pytest

from kakeya.v1 import capability_pb2, capability_pb2_grpc
from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.node.app import node_report
from tests.node.conftest import StartAgent


async def test_a_node_without_a_file_to_open_tells_the_memory_that_it_read_last(
    start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_report, "FRESH_SECONDS", 0.0)
    agent = await start_agent()
    stub = capability_pb2_grpc.CapabilityServiceStub(agent.channel)

    async def told() -> int:
        return (await stub.GetNode(capability_pb2.GetNodeRequest())).load.memory_free_bytes

    def fails(number: int) -> None:
        def read() -> int:
            raise OSError(number, "no file")

        monkeypatch.setattr(system_memory, "available_bytes", read)

    fails(errno.EMFILE)
    last = await told()
    assert last > 0
    assert await told() == last
    fails(errno.EIO)
    with pytest.raises(grpc.aio.AioRpcError):
        await told()
    monkeypatch.undo()
