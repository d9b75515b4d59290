"""A node that knows 10,000 others: everybody is told of all of them, over its real server.

So it is of fewer whose cards have as many bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shlex
import time
from asyncio.subprocess import PIPE
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from kakeya import AsyncClient, Client, FleetSnapshot
from kakeya.v1 import capability_pb2 as wire
from kakeya.v1 import capability_pb2_grpc
from kakeya_fleet.fleet.cards.card import ModelKind, ModelOffer, Role, SignedCard
from kakeya_fleet.fleet.cards.rules import MAX_TEXT_CHARACTERS
from kakeya_fleet.fleet.membership.merge_rules import MergeRules
from kakeya_fleet.fleet.membership.registry import MAX_NODES
from kakeya_fleet.node.cli.asking.node_loads import MOST_ASKED
from kakeya_fleet.node.membership.card_wire import card_to_wire
from kakeya_fleet.node.membership.fleet_watch import Removed
from kakeya_fleet.node.rpc.grpc_settings import DATA_MESSAGE_BYTES
from kakeya_fleet.node.watch.snapshot_parts import PART_BYTES
from tests.node.conftest import MakeCard, RunningAgent, StartAgent, next_message
from tests.support import calls
from tests.support.breadth import wide
from tests.warm.starting import FLEET

IN_PARTS = wire.WatchFleetRequest(in_parts=True)
OFFER = ModelOffer("m" * 200, Role.PROPOSER, ModelKind.NGRAM, "w" * 64)
FEW = 1_500
LONG = "x" * MAX_TEXT_CHARACTERS
LONG_OFFER = replace(
    OFFER,
    model_id=LONG,
    weights_digest=LONG,
    tokenizer_digest=LONG,
    quantization=LONG,
    dtype=LONG,
    backend=LONG,
    architecture=LONG,
    target_weights_digest=LONG,
    evicted_arithmetic=LONG,
    arithmetic=LONG,
)
"""On each card of the few: neither they nor all of the many fit a message."""


class LargeFleet:
    """An agent, and nodes that it knows as if their cards had come by gossip."""

    def __init__(self, agent: RunningAgent, like: SignedCard, count: int) -> None:
        self.count = count
        """Of the nodes that it knows."""
        self._offer = LONG_OFFER if count == FEW else OFFER
        self._like = like.card
        self.agent = agent
        self.control = agent.node.control
        self.registry = self.control.membership.registry
        # Ten thousand signatures take seconds, and are not what is looked at.
        self.registry._rules = MergeRules(lambda *_: True, lambda card, _host: card)
        self.merge(*map(self.card, range(count)))

    @property
    def ids(self) -> list[str]:
        return self.control.known.node_ids()

    def card(self, number: int, sequence: int = 0) -> SignedCard:
        key = number.to_bytes(32, "big")
        card = replace(
            self._like,
            node_id=hashlib.sha256(key).hexdigest(),
            public_key=key,
            name=f"node-{number:05}",
            sequence=sequence,
            models=(self._offer,),
            # Nobody listens there.
            addresses=("127.0.0.1:1",),
            announced_at_unix=time.time(),
        )
        return SignedCard(card, card_to_wire(card).SerializeToString(), b"s" * 64)

    def merge(self, *cards: SignedCard) -> tuple[str, ...]:
        merged = self.registry.merge_cards(cards, now=time.monotonic(), now_unix=time.time())
        assert not merged.skipped
        return merged.merged

    def change(self, number: int, sequence: int) -> str:
        """A newer card of the node, or its first; watchers are told."""
        (node_id,) = self.merge(self.card(number, sequence))
        self.control.watch.publish(self.control.known.state(node_id))
        return node_id

    def remove(self, node_id: str) -> None:
        self.registry._forget(node_id)
        self.control.watch.publish(Removed(node_id))


@pytest.fixture(params=[FEW, wide(MAX_NODES - 2)])
async def fleet(
    request: pytest.FixtureRequest, start_agent: StartAgent, make_card: MakeCard, fleet_name: str
) -> LargeFleet:
    # Gossip would call nodes that are not there.
    agent = await start_agent(period_seconds=30.0)
    return LargeFleet(agent, make_card(fleet_name=fleet_name), int(request.param))


def stub_of(fleet: LargeFleet) -> capability_pb2_grpc.CapabilityServiceAsyncStub:
    return capability_pb2_grpc.CapabilityServiceStub(fleet.agent.channel)


async def test_a_watch_begins_with_all_of_them_whoever_takes_parts(fleet: LargeFleet) -> None:
    call = stub_of(fleet).WatchFleet(IN_PARTS)
    told: list[str] = []
    more = True
    while more:
        part = (await next_message(call)).snapshot
        assert part.ByteSize() < PART_BYTES + 4096
        told += [each.card.node_id for each in part.nodes]
        more = part.more
    call.cancel()
    assert told == fleet.ids
    assert len(told) == fleet.count + 1

    whole = stub_of(fleet).WatchFleet(wire.WatchFleetRequest())
    refusal = await calls.refused_by(whole.read())
    assert refusal.code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refusal.reason == "ANSWER_TOO_LARGE"
    assert f"{DATA_MESSAGE_BYTES:,}" in refusal.text
    assert "update the client" in refusal.metadata["mend"]


async def test_both_clients_and_the_terminal_have_them_all(
    fleet: LargeFleet, tmp_path: Path
) -> None:
    address = fleet.agent.address
    async with AsyncClient(address) as client:
        nodes = await client.fleet.nodes()
    assert [node.node_id for node in nodes] == fleet.ids

    def count() -> int:
        with Client(address) as client, client.fleet.watch() as events:
            first = next(iter(events))
            assert isinstance(first, FleetSnapshot)
            return len(first.nodes)

    assert await asyncio.to_thread(count) == fleet.count + 1
    status = await fleet_command(tmp_path, "status", "--node", address)
    assert f"{fleet.count + 1} nodes, {fleet.count + 1} alive" in status[0]
    assert sum(line.startswith("node-") for line in status) == fleet.count
    assert f"Of {fleet.count + 1} live nodes the {MOST_ASKED} nearest" in status[-2]
    (top,) = await fleet_command(tmp_path, "top", "--once", "--json", "--node", address)
    told = json.loads(top)
    assert len(told["nodes"]) == fleet.count + 1
    assert told["unasked_count"] == fleet.count + 1 - MOST_ASKED


async def fleet_command(home: Path, *words: str) -> list[str]:
    """What a command prints, with the descriptors that shells of macOS give."""
    command = await asyncio.create_subprocess_shell(
        f"ulimit -n 256; exec {shlex.join((*FLEET, *words))}",
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        stdout=PIPE,
        stderr=PIPE,
    )
    out, errors = await command.communicate()
    assert (command.returncode, errors) == (0, b"")
    return out.decode().splitlines()


async def test_what_happens_while_a_slow_reader_takes_the_parts_is_not_lost(
    fleet: LargeFleet,
) -> None:
    call = stub_of(fleet).WatchFleet(IN_PARTS)
    first = (await next_message(call)).snapshot
    ids = fleet.ids
    sent, unsent = 0, fleet.count - 1
    gone = [ids[2], ids[-2]]
    for node_id in gone:
        fleet.remove(node_id)
    for sequence in range(1, 600):
        # Twice what may wait for a watcher who reads nothing, but one who reads is none.
        fleet.change(sent, sequence)
        fleet.change(unsent, sequence)
        if sequence % 50 == 0 and first.more:
            first.MergeFrom((await next_message(call)).snapshot)
    new = fleet.change(MAX_NODES, 0)
    told = {each.card.node_id: each.card.sequence for each in first.nodes}
    more = True
    while more:
        part = (await next_message(call)).snapshot
        more = part.more
        for each in part.nodes:
            assert each.card.node_id not in told
            told[each.card.node_id] = each.card.sequence
    assert gone[1] not in told
    removed: list[str] = []
    while not (new in told and removed and told[fleet.card(sent).card.node_id] == 599):
        message = await next_message(call)
        if message.WhichOneof("kind") == "changed":
            told[message.changed.card.node_id] = message.changed.card.sequence
        else:
            removed.append(message.removed_node_id)
            del told[message.removed_node_id]
    call.cancel()
    assert removed == gone[:1]
    assert told == {node_id: fleet.registry.card(node_id).sequence for node_id in fleet.ids}
