"""A node whose host can form a ring says so on its card, soon after it is ready."""

import asyncio
from dataclasses import dataclass

import pytest

from kakeya.v1 import capability_pb2, capability_pb2_grpc
from kakeya_fleet.fleet.cards.rules import check_card
from kakeya_fleet.node.app.settings import NodeSettings
from kakeya_fleet.node.config.role_spec import parse_role_spec
from kakeya_fleet.node.links.roads.host_roads import RingProbe
from tests.node.conftest import Eventually, MakeCard, RunningAgent, StartAgent, next_message


@dataclass
class Trials:
    """What a trial finds wrong, empty when a ring works, and how many there were."""

    reason: str = ""
    count: int = 0


AT_ONCE = NodeSettings(ring_trial_seconds=0.0)
SERVING = ["proposer=ngram"]


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Trials:
    """Counts the trials, which find what the test says."""
    found = Trials()

    async def run(_probe: RingProbe) -> str:
        found.count += 1
        return found.reason

    monkeypatch.setattr(RingProbe, "run", run)
    return found


async def turns_of_the_loop() -> None:
    """So many that a trial which waits for nothing would have begun."""
    for _ in range(200):
        await asyncio.sleep(0)


async def card_of(agent: RunningAgent) -> capability_pb2.CapabilityCard:
    stub = capability_pb2_grpc.CapabilityServiceStub(agent.channel)
    return (await stub.GetNode(capability_pb2.GetNodeRequest())).card


@pytest.mark.parametrize("links", ["auto", "ring"])
async def test_the_card_gets_the_ring_and_a_new_sequence(
    start_agent: StartAgent, trials: Trials, eventually: Eventually, links: str
) -> None:
    first = await start_agent("first", settings=AT_ONCE, links=links, serve=SERVING)
    second = await start_agent("second", links="grpc", peers=[first.address])

    async def is_known() -> bool:
        stub = capability_pb2_grpc.CapabilityServiceStub(second.channel)
        fleet = stub.WatchFleet(capability_pb2.WatchFleetRequest())
        snapshot = (await next_message(fleet)).snapshot
        fleet.cancel()
        return any(
            record.card.ring_address == first.address
            and record.card.node_id == first.node_id
            and record.card.sequence == 2
            for record in snapshot.nodes
        )

    await eventually(is_known)
    assert (await card_of(second)).ring_address == ""
    assert trials.count == 1


@pytest.mark.parametrize(("links", "count"), [("grpc", 0), ("local", 0), ("auto", 1)])
async def test_no_ring_on_the_card(
    start_agent: StartAgent, trials: Trials, eventually: Eventually, links: str, count: int
) -> None:
    trials.reason = "MLX is not installed on this host"
    agent = await start_agent(settings=AT_ONCE, links=links, serve=SERVING)

    async def is_tried() -> bool:
        return trials.count == count

    await eventually(is_tried)
    await turns_of_the_loop()
    card = await card_of(agent)
    assert (card.ring_address, card.sequence, trials.count) == ("", 1, count)


async def test_it_is_tried_once_something_is_served(
    start_agent: StartAgent, trials: Trials, eventually: Eventually
) -> None:
    agent = await start_agent(settings=AT_ONCE, links="auto")
    await turns_of_the_loop()
    assert trials.count == 0
    await agent.node.roles.add(parse_role_spec("archive=1MiB"))

    async def is_offered() -> bool:
        return (await card_of(agent)).ring_address == agent.address

    await eventually(is_offered)
    assert trials.count == 1


def test_a_card_with_a_ring_follows_the_rules(make_card: MakeCard) -> None:
    check_card(make_card(ring_address="10.0.0.1:7100").card, now_unix=1.7e9)
