"""The agent's life: starting in order, refusing by name, leaving in order."""

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Never

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from kakeya.v1 import capability_pb2, capability_pb2_grpc
from kakeya_fleet.node.config.ports import GRPC_PORT
from kakeya_fleet.node.errors import (
    CloneYields,
    IdentityCorrupt,
    PortInUse,
    StateLocked,
    StateUnwritable,
)
from tests.node.conftest import Scrape, SpawnAgent, StartAgent, next_message
from tests.support.patience import PATIENCE_SECONDS


async def test_ready_says_where_and_who(
    start_agent: StartAgent, tmp_path: Path, fleet_name: str
) -> None:
    agent = await start_agent("mini-1", serve=["proposer=ngram"])
    ready = agent.ready
    assert agent.events.said[0] is ready
    assert ready["name"] == "mini-1"
    assert ready["fleet_name"] == fleet_name
    assert ready["address"].startswith("127.0.0.1:")
    assert ready["models"] == [{"model_id": "ngram", "role": "proposer"}]
    assert ready["mdns"] == "off"
    assert ready["pid"] == os.getpid()
    assert ready["state"] == str(tmp_path / "mini-1")
    json.dumps(ready)
    announced = json.loads((tmp_path / "mini-1" / "agent.json").read_text())
    assert announced["address"] == ready["address"]
    assert announced["http_address"] == ready["http_address"]
    assert announced["metrics_address"] == ready["metrics_address"] == ready["http_address"]


async def test_get_node_tells_the_card_and_where_metrics_are(
    start_agent: StartAgent, scrape: Scrape
) -> None:
    agent = await start_agent(serve=["proposer=ngram"])
    stub = capability_pb2_grpc.CapabilityServiceStub(agent.channel)
    node = await stub.GetNode(capability_pb2.GetNodeRequest())
    assert node.card.node_id == agent.node_id
    assert list(node.card.addresses) == [agent.address]
    assert [offer.model_id for offer in node.card.models] == ["ngram"]
    assert node.card.memory_total_bytes > 0
    assert node.load.memory_free_bytes > 0
    assert node.load.kv_budget_bytes >= 0
    assert not node.draining
    assert "kakeya_incarnation 1.0" in await scrape(node.metrics_address)


async def test_health_and_reflection(start_agent: StartAgent) -> None:
    agent = await start_agent(serve=["proposer=ngram"])
    # The stubs have these methods, their types have not.
    health: Any = health_pb2_grpc.HealthStub(agent.channel)
    for name in ("", "proposer", "kakeya.v1.CapabilityService", "kakeya.v1.RuntimeService"):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health.Check(health_pb2.HealthCheckRequest(service="verifier"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    reflection: Any = reflection_pb2_grpc.ServerReflectionStub(agent.channel)  # type: ignore[arg-type] # aio too
    call = reflection.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    listed = {service.name for service in (await call.read()).list_services_response.service}
    assert {"kakeya.v1.CapabilityService", "kakeya.v1.RuntimeService"} <= listed
    await call.done_writing()


async def test_leaving_turns_health_and_ends_streams(
    start_agent: StartAgent, tmp_path: Path
) -> None:
    agent = await start_agent()
    # The stub has Watch, its types have not.
    stub: Any = health_pb2_grpc.HealthStub(agent.channel)
    health = stub.Watch(health_pb2.HealthCheckRequest())
    fleet = capability_pb2_grpc.CapabilityServiceStub(agent.channel).WatchFleet(
        capability_pb2.WatchFleetRequest()
    )
    assert (await health.read()).status == health_pb2.HealthCheckResponse.SERVING
    assert (await next_message(fleet)).HasField("snapshot")
    await agent.leave()
    assert (await health.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    latest = None
    while (message := await fleet.read()) is not grpc.aio.EOF:
        latest = message
    assert isinstance(latest, capability_pb2.WatchFleetResponse)
    assert latest.changed.liveness == capability_pb2.LIVENESS_LEFT
    assert [event["event"] for event in agent.events.said] == [
        "ready",
        "advice",
        "draining",
        "left",
    ]
    assert not (tmp_path / "mini-1" / "agent.json").exists()


async def test_leave_over_the_wire_from_this_machine(start_agent: StartAgent) -> None:
    agent = await start_agent()
    stub = capability_pb2_grpc.CapabilityServiceStub(agent.channel)
    answer = await stub.Leave(capability_pb2.LeaveRequest(drain_seconds=0.1))
    assert answer.node_id == agent.node_id
    async with asyncio.timeout(PATIENCE_SECONDS):
        await agent.task


async def test_the_port_is_kept_over_restarts(start_agent: StartAgent) -> None:
    first = await start_agent()
    await first.stop()
    again = await start_agent()
    assert (again.address, again.node_id) == (first.address, first.node_id)


async def test_two_agents_on_one_state(start_agent: StartAgent, tmp_path: Path) -> None:
    await start_agent("mini-1")
    with pytest.raises(StateLocked, match=str(os.getpid())):
        await start_agent("mini-2", state=str(tmp_path / "mini-1"))


async def test_a_port_in_use_is_named_and_the_state_is_free_again(
    start_agent: StartAgent, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=str(port)):
            await start_agent(bind=f"127.0.0.1:{port}")
    assert not (tmp_path / "mini-1" / "agent.json").exists()
    await start_agent(bind=f"127.0.0.1:{port}")


async def test_a_port_of_http_in_use_is_named(start_agent: StartAgent) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(PortInUse, match=f"{address}.*--http"):
            await start_agent(http_bind=address)


async def test_http_can_be_off(start_agent: StartAgent) -> None:
    agent = await start_agent(http_bind="off")
    assert agent.ready["http_address"] == agent.ready["metrics_address"] == ""
    stub = capability_pb2_grpc.CapabilityServiceStub(agent.channel)
    node = await stub.GetNode(capability_pb2.GetNodeRequest())
    assert node.http_address == node.card.http_address == ""


async def test_http_is_announced_and_keeps_its_port(start_agent: StartAgent) -> None:
    first = await start_agent()
    stub = capability_pb2_grpc.CapabilityServiceStub(first.channel)
    node = await stub.GetNode(capability_pb2.GetNodeRequest())
    address = first.ready["http_address"]
    assert node.http_address == node.metrics_address == node.card.http_address == address
    await first.leave()
    assert (await start_agent()).ready["http_address"] == address


async def test_a_second_node_of_a_machine_is_behind_the_first_and_stays_there(
    start_agent: StartAgent,
) -> None:
    where = {"bind": "127.0.0.1:auto", "http_bind": "127.0.0.1:auto"}
    # Whoever has the usual port, the first of these two or another program.
    first = await start_agent("mini-1", **where)
    second = await start_agent("mini-2", **where)
    ports = [int(each.address.rpartition(":")[2]) for each in (first, second)]
    assert GRPC_PORT <= ports[0] < ports[1]
    assert ports[0] in second.ready["taken_ports"]
    assert ports[1] not in second.ready["taken_ports"]
    await first.leave()
    http = second.ready["http_address"]
    await second.leave()
    # Though the first one's port is free now, peers look for it at its own.
    again = await start_agent("mini-2", **where)
    assert (again.address, again.ready["http_address"]) == (second.address, http)
    assert again.ready["taken_ports"] == []


async def test_an_address_that_others_do_not_reach_is_not_on_the_card(
    start_agent: StartAgent,
) -> None:
    agent = await start_agent(bind="0.0.0.0:0", insecure=True)
    stub = capability_pb2_grpc.CapabilityServiceStub(agent.channel)
    node = await stub.GetNode(capability_pb2.GetNodeRequest())
    assert node.http_address == agent.ready["http_address"] != ""
    # A machine without a network has no other address than loopback.
    alone = all(each.startswith("127.") for each in node.card.addresses)
    assert node.card.http_address == (node.http_address if alone else "")


async def test_a_corrupt_identity_is_never_replaced(
    start_agent: StartAgent, tmp_path: Path
) -> None:
    first = await start_agent()
    await first.stop()
    key = tmp_path / "mini-1" / "identity.key"
    key.write_text("garbage")
    with pytest.raises(IdentityCorrupt, match=f"rm {key}"):
        await start_agent()
    assert key.read_text() == "garbage"
    key.unlink()
    assert (await start_agent()).node_id != first.node_id


async def test_a_full_disk_refuses_the_start_by_name(
    start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await start_agent()
    await first.stop()

    def full(descriptor: int) -> Never:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateUnwritable, match="incarnation"):
        await start_agent()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_it_leave_with_status_0(
    spawn_agent: SpawnAgent, start_agent: StartAgent, number: signal.Signals
) -> None:
    observer = await start_agent("a")
    agent = await spawn_agent("b", peers=[observer.address])
    await observer.events.wait_for("peer_joined", node_id=agent.node_id)
    # It says farewell to those whom it knows.
    await agent.events.wait_for("peer_joined")
    agent.signal(number)
    assert await agent.ended() == 0
    said = [event["event"] for event in agent.events.said]
    assert said[0] == "ready"
    assert "draining" in said
    assert said[-1] == "left"
    assert not [line for line in agent.log.said if "Traceback" in str(line)]
    await observer.events.wait_for("peer_left", node_id=agent.node_id)


async def test_a_second_signal_ends_it_at_once(spawn_agent: SpawnAgent, tmp_path: Path) -> None:
    agent = await spawn_agent(drain_seconds=0.1)
    # Both signals are pending when it goes on, so that it cannot have left between them.
    agent.signal(signal.SIGSTOP)
    agent.signal(signal.SIGTERM)
    agent.signal(signal.SIGINT)
    agent.signal(signal.SIGCONT)
    assert await agent.ended() in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert not (tmp_path / "mini-1" / "agent.json").exists()


async def test_a_signal_while_a_model_is_loaded_ends_it(
    spawn_agent: SpawnAgent, tmp_path: Path
) -> None:
    agent = await spawn_agent(serve=["verifier=tiny"], until_ready=False)
    await agent.log.wait_for("loading")
    agent.signal(signal.SIGINT)
    assert await agent.ended() == 128 + signal.SIGINT
    assert [event["event"] for event in agent.events.said] in ([], ["joined"])


async def test_one_of_two_clones_yields(start_agent: StartAgent, tmp_path: Path) -> None:
    first = await start_agent("a")
    await first.stop()
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    witness = await start_agent("w")
    one = await start_agent("a", peers=[witness.address])
    other = await start_agent("b", state=str(tmp_path / "copy"), peers=[witness.address])
    assert one.node_id == other.node_id
    tasks = {one.task, other.task}
    done, running = await asyncio.wait(tasks, timeout=60, return_when=asyncio.FIRST_COMPLETED)
    assert (len(done), len(running)) == (1, 1)
    with pytest.raises(CloneYields, match="join again as a new node"):
        done.pop().result()


async def test_a_full_disk_costs_a_running_node_only_its_refutation(
    start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch, fleet_name: str
) -> None:
    agent = await start_agent()
    stub = capability_pb2_grpc.CapabilityServiceStub(agent.channel)
    watch = stub.WatchFleet(capability_pb2.WatchFleetRequest())
    await next_message(watch)
    loop = asyncio.get_running_loop()
    tried = asyncio.Event()

    def full(descriptor: int) -> Never:
        loop.call_soon_threadsafe(tried.set)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        await stub.ExchangeCapabilities(
            capability_pb2.ExchangeCapabilitiesRequest(
                fleet_name=fleet_name,
                protocol_min=1,
                protocol_max=1,
                rumours=[
                    capability_pb2.Rumour(
                        node_id=agent.node_id,
                        incarnation=1,
                        liveness=capability_pb2.LIVENESS_SUSPECT,
                    )
                ],
            )
        )
        await tried.wait()
        node = await stub.GetNode(capability_pb2.GetNodeRequest())
        assert node.card.incarnation == 1
    assert (await next_message(watch)).changed.card.incarnation == 2


_IMPORTS = """
import asyncio, json, sys
from kakeya_fleet.node.app.composition import open_node
from kakeya_fleet.node.config.config import build

def on_event(event):
    if event["event"] == "ready":
        # Standard output is the log's too.
        heavy = {"torch", "transformers", "mlx", "safetensors"} & sys.modules.keys()
        print(json.dumps(sorted(heavy)), file=sys.stderr)
        node.leave(0.1)

async def main():
    global node
    async with open_node(build(json.loads(sys.argv[1]), {}), on_event) as node:
        await node.serve()

asyncio.run(main())
"""


@pytest.mark.wide
async def test_a_node_that_serves_only_ngram_never_imports_tensor_libraries(tmp_path: Path) -> None:
    """So says `tests/node/roles/test_late_roles.py` of all that it has loaded."""
    configuration = {
        "state": str(tmp_path / "state"),
        "serve": ["proposer=ngram"],
        "mdns": False,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _IMPORTS,
        json.dumps(configuration),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, printed = await process.communicate()
    assert json.loads(printed) == []


async def test_beyond_loopback_it_warns_loudly_and_hides_reflection(
    spawn_agent: SpawnAgent,
) -> None:
    agent = await spawn_agent(bind="0.0.0.0:0", insecure=True)
    host, port = agent.address.rsplit(":", 1)
    assert host != "0.0.0.0"
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        reflection: Any = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[arg-type] # aio too
        call = reflection.ServerReflectionInfo()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    agent.signal(signal.SIGTERM)
    await agent.ended()
    warning = await agent.log.wait_for("insecure")
    assert warning["level"] == "warning"
    assert "nothing is encrypted" in warning["danger"]
