"""Agents that find, suspect, bury and refute each other over real sockets."""

import asyncio
import signal
from pathlib import Path

import pytest

from kakeya.v1 import capability_pb2, capability_pb2_grpc
from tests.node.conftest import (
    Eventually,
    RunningAgent,
    Scrape,
    SpawnAgent,
    StartAgent,
    next_message,
)

ALIVE, SUSPECT, DEAD, LEFT = (
    capability_pb2.LIVENESS_ALIVE,
    capability_pb2.LIVENESS_SUSPECT,
    capability_pb2.LIVENESS_DEAD,
    capability_pb2.LIVENESS_LEFT,
)


class Watch:
    """A WatchFleet stream folded into the latest state of each node, and their order."""

    def __init__(self, agent: RunningAgent) -> None:
        stub = capability_pb2_grpc.CapabilityServiceStub(agent.channel)
        self.call = stub.WatchFleet(capability_pb2.WatchFleetRequest())
        self.history: list[capability_pb2.NodeStatus] = []

    async def until(
        self, node_id: str, liveness: capability_pb2.Liveness.ValueType, incarnation: int = 1
    ) -> capability_pb2.NodeStatus:
        """Reads on until the node, at least so often started, has that liveness; its status."""
        async with asyncio.timeout(60):
            while True:
                for status in self.history:
                    if (status.card.node_id, status.liveness) != (node_id, liveness):
                        continue
                    if status.card.incarnation >= incarnation:
                        return status
                message = await next_message(self.call)
                nodes = message.snapshot.nodes if message.HasField("snapshot") else []
                self.history += [*nodes, *([message.changed] if not nodes else [])]

    def livenesses(self, node_id: str) -> list[capability_pb2.Liveness.ValueType]:
        return [each.liveness for each in self.history if each.card.node_id == node_id]

    def incarnation(self, node_id: str) -> int:
        """The latest that was heard of."""
        return max(each.card.incarnation for each in self.history if each.card.node_id == node_id)


async def test_four_agents_find_each_other_through_one_seed(start_agent: StartAgent) -> None:
    seed = await start_agent("a")
    others = [await start_agent(name, peers=[seed.address]) for name in ("b", "c", "d")]
    everyone = [seed, *others]
    for agent in everyone:
        watch = Watch(agent)
        for other in everyone:
            status = await watch.until(other.node_id, ALIVE)
            assert status.card.name == other.ready["name"]
            assert status.is_self == (other is agent)


async def test_a_member_that_was_never_dialled_can_be_called(start_agent: StartAgent) -> None:
    seed = await start_agent("a")
    first = await start_agent("b", peers=[seed.address])
    second = await start_agent("c", peers=[seed.address])
    await first.events.wait_for("peer_joined", node_id=second.node_id)
    stub = capability_pb2_grpc.CapabilityServiceStub(first.channel)
    answer = await stub.ProbePeer(
        capability_pb2.ProbePeerRequest(node_id=second.node_id, timeout_seconds=10)
    )
    assert answer.reachable
    assert 0 < answer.round_trip_seconds < 10


async def test_fleets_of_other_names_stay_apart(
    start_agent: StartAgent, scrape: Scrape, eventually: Eventually
) -> None:
    one = await start_agent("a", fleet_name="one")
    other = await start_agent("b", fleet_name="other", peers=[one.address])
    third = await start_agent("c", fleet_name="one", peers=[one.address])
    await one.events.wait_for("peer_joined", node_id=third.node_id)
    await third.events.wait_for("peer_joined", node_id=one.node_id)

    async def refused() -> bool:
        return 'result="refused"' in await scrape(other.ready["metrics_address"])

    await eventually(refused)
    assert not [event for event in one.events.said if event.get("node_id") == other.node_id]
    assert not [event for event in other.events.said if event["event"] == "peer_joined"]


async def test_a_killed_node_is_suspect_then_dead_and_comes_back_as_the_next_incarnation(
    start_agent: StartAgent, spawn_agent: SpawnAgent
) -> None:
    survivor = await start_agent("a", period_seconds=0.1)
    victim = await spawn_agent("b", peers=[survivor.address])
    watch = Watch(survivor)
    await watch.until(victim.node_id, ALIVE)
    victim.signal(signal.SIGKILL)
    await watch.until(victim.node_id, SUSPECT)
    await watch.until(victim.node_id, DEAD)
    order = watch.livenesses(victim.node_id)
    assert order.index(SUSPECT) < order.index(DEAD)
    await survivor.events.wait_for("peer_dead", node_id=victim.node_id)
    # More than 1 where a busy machine suspected it before, and it refuted that.
    died = watch.incarnation(victim.node_id)
    again = await spawn_agent("b", peers=[survivor.address])
    assert again.node_id == victim.node_id
    came = await watch.until(victim.node_id, ALIVE, died + 1)
    await survivor.events.wait_for(
        "peer_joined", node_id=victim.node_id, incarnation=came.card.incarnation
    )


async def test_a_node_that_leaves_is_left_not_dead(start_agent: StartAgent) -> None:
    staying = await start_agent("a")
    leaving = await start_agent("b", peers=[staying.address])
    watch = Watch(staying)
    await watch.until(leaving.node_id, ALIVE)
    await leaving.leave()
    await watch.until(leaving.node_id, LEFT)
    assert SUSPECT not in watch.livenesses(leaving.node_id)
    await staying.events.wait_for("peer_left", node_id=leaving.node_id)


async def test_a_frozen_node_refutes_when_it_thaws_and_comes_back_from_the_dead(
    start_agent: StartAgent, spawn_agent: SpawnAgent
) -> None:
    observer = await start_agent("a", period_seconds=0.1)
    frozen = await spawn_agent("b", peers=[observer.address])
    watch = Watch(observer)
    for incarnation, verdict in ((1, SUSPECT), (2, DEAD)):
        await watch.until(frozen.node_id, ALIVE, incarnation)
        frozen.signal(signal.SIGSTOP)
        await watch.until(frozen.node_id, verdict, incarnation)
        frozen.signal(signal.SIGCONT)
    await watch.until(frozen.node_id, ALIVE, 3)
    # A rise is durable before it is announced: the next start is above it.
    frozen.signal(signal.SIGKILL)
    await frozen.ended()
    await spawn_agent("b", peers=[observer.address])
    await watch.until(frozen.node_id, ALIVE, 4)


async def test_a_seed_that_starts_later_is_found(start_agent: StartAgent) -> None:
    first = await start_agent("a")
    address = first.address
    await first.stop()
    waiting = await start_agent("b", peers=[address])
    again = await start_agent("a")
    assert again.address == address
    await waiting.events.wait_for("peer_joined", node_id=again.node_id)


async def test_a_restarted_fleet_meets_again_without_seeds(
    start_agent: StartAgent, tmp_path: Path, eventually: Eventually
) -> None:
    seed = await start_agent("a")
    other = await start_agent("b", peers=[seed.address])
    await other.events.wait_for("peer_joined", node_id=seed.node_id)

    async def kept() -> bool:
        return (tmp_path / "b" / "peers").exists()

    await eventually(kept)
    await other.stop()
    other = await start_agent("b")
    await other.events.wait_for("peer_joined", node_id=seed.node_id)


@pytest.mark.parametrize("content", [b"", b"not a checksum\n127.0.0.1:1\n"])
async def test_a_damaged_peers_file_is_rebuilt(
    start_agent: StartAgent, tmp_path: Path, eventually: Eventually, content: bytes
) -> None:
    state = tmp_path / "b"
    state.mkdir(mode=0o700)
    (state / "peers").write_bytes(content)
    seed = await start_agent("a")
    other = await start_agent("b", peers=[seed.address])
    await other.events.wait_for("peer_joined", node_id=seed.node_id)

    async def rebuilt() -> bool:
        return seed.address.encode() in (state / "peers").read_bytes()

    await eventually(rebuilt)
