"""What a row acts on: a fleet of its own, what it sees of it, and what the agents' logs say."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import grpc.aio
from prometheus_client.parser import text_string_to_metric_families

from kakeya import AsyncClient, Liveness
from kakeya.v1 import capability_pb2, capability_pb2_grpc
from scripts.support.agent_process import AgentProcess, Event, LocalFleet

PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.02
NODE = {
    "OMP_NUM_THREADS": "1",
    # No ring is tried, which takes two processes of each.
    "KAKEYA_LINKS": "grpc",
    "TOKENIZERS_PARALLELISM": "false",
    # Modules are compiled once, as an installation has them.
    "PYTHONDONTWRITEBYTECODE": "",
}
"""Of agents."""


@dataclass
class Scene:
    """A fleet without agents yet; `stack` is left, and the fleet ended, when the row is over."""

    fleet: LocalFleet
    folder: Path
    stack: AsyncExitStack
    seed: int
    watched_seconds: float
    """For how long a row looks whether something happens that must not."""
    expected_errors: set[str] = field(default_factory=set)
    """Events of the logs that are errors to people, and what the row is about."""

    def start(self, name: str, *roles: str, **options: Any) -> AgentProcess:
        """An agent of the fleet; see `LocalFleet.start`."""
        options["environment"] = NODE | options.pop("environment", {})
        return self.fleet.start(name, serve=roles, **options)

    async def client(self, agent: AgentProcess) -> AsyncClient:
        """A client of an agent that is ready."""
        address = await asyncio.to_thread(lambda: agent.address)
        return await self.stack.enter_async_context(AsyncClient(address))

    def channel(self, address: str) -> grpc.aio.Channel:
        """A connection of its own."""
        options = (("grpc.use_local_subchannel_pool", 1),)
        channel = grpc.aio.insecure_channel(address, options=options)
        self.stack.push_async_callback(channel.close)
        return channel

    def crashed(self) -> list[str]:
        """Tracebacks and errors in the agents' logs, each with its agent's name."""
        return [
            f"{agent.options.name}: {words}"
            for agent in self.fleet.agents
            for words in faults_of(agent.log)
            if words not in self.expected_errors
        ]


def faults_of(log: str) -> Iterator[str]:
    """What of a log tells of something that nobody foresaw."""
    for line in log.splitlines():
        if line.startswith("Traceback"):
            yield "a traceback outside of an event"
            continue
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("level") in {"error", "critical"}:
            last = str(event.get("exception", "")).strip().splitlines()[-1:]
            yield " ".join([str(event.get("event")), *last])


async def until(
    condition: Callable[[], bool | Coroutine[object, object, bool]],
    seconds: float = PATIENCE_SECONDS,
) -> float:
    """Seconds until the condition held; infinite when it did not within `seconds`."""
    began = time.monotonic()
    while True:
        held = condition()
        if (await held if isinstance(held, Coroutine) else held) is True:
            return time.monotonic() - began
        if time.monotonic() - began > seconds:
            return math.inf
        await asyncio.sleep(POLL_SECONDS)


async def root_of(channel: grpc.aio.Channel, fleet_name: str) -> bytes:
    """The hash over all that a node knows of its fleet. Raises `grpc.aio.AioRpcError`."""
    answer = await looked_at(channel, fleet_name)
    return answer.root_hash


async def looked_at(
    channel: grpc.aio.Channel, fleet_name: str, **fields: Any
) -> capability_pb2.ExchangeCapabilitiesResponse:
    """The answer to an exchange with a node that only looks, and brings what `fields` has."""
    stub = capability_pb2_grpc.CapabilityServiceStub(channel)
    request = capability_pb2.ExchangeCapabilitiesRequest(
        fleet_name=fleet_name, protocol_min=1, protocol_max=1, **({"root_hash": bytes(32)} | fields)
    )
    answer: capability_pb2.ExchangeCapabilitiesResponse = await stub.ExchangeCapabilities(
        request, timeout=10
    )
    return answer


async def see_each_other(
    agents: Sequence[AgentProcess], seconds: float = PATIENCE_SECONDS
) -> float:
    """Seconds until each holds all others for alive, and all have the same root."""
    addresses = await asyncio.to_thread(lambda: [each.address for each in agents])
    fleet_name = agents[0].options.fleet_name
    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(each)) for each in addresses
        ]
        clients = [await stack.enter_async_context(AsyncClient(each)) for each in addresses]

        async def equal() -> bool:
            try:
                roots = await asyncio.gather(*(root_of(each, fleet_name) for each in channels))
                if len(set(roots)) > 1:
                    return False
                seen = await asyncio.gather(*(alive_at(each) for each in clients))
            except grpc.aio.AioRpcError:
                return False
            return all(len(ids) == len(agents) for ids in seen)

        return await until(equal, seconds)


async def alive_at(client: AsyncClient) -> set[str]:
    """Ids of the nodes that a node holds for alive, its own included."""
    nodes = await client.fleet.nodes()
    return {node.node_id for node in nodes if node.liveness is Liveness.ALIVE}


async def liveness_at(client: AsyncClient, node_id: str) -> Liveness | None:
    """What a node holds another one for; None when it does not know it."""
    for node in await client.fleet.nodes():
        if node.node_id == node_id:
            return node.liveness
    return None


def said(agent: AgentProcess, name: str, node_id: str = "") -> list[Event]:
    """An agent's events of that name, about that node."""
    return [
        event
        for event in agent.events
        if event.get("event") == name and node_id in ("", event.get("node_id"))
    ]


async def samples(agent: AgentProcess, name: str) -> dict[str, float]:
    """What an agent counts under that name, by its labels' values."""
    url = f"http://{agent.ready['http_address']}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    return {
        " ".join(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


async def total(agent: AgentProcess, name: str) -> float:
    """The sum of `samples`."""
    return sum((await samples(agent, name)).values())
