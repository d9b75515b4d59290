"""Ways that fail by halves: peers that answer, and are deaf one way, drop what is large, or lie."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, NoReturn

import grpc
import pytest

from kakeya.v1 import capability_pb2 as wire
from kakeya_fleet.fleet.diagnosis.finding import Finding, Level
from kakeya_fleet.node.cli.asking.local_agents import LocalAgent
from kakeya_fleet.node.cli.doctor import (
    address_check,
    clock_check,
    path_check,
    reach_checks,
    version_check,
)
from kakeya_fleet.node.cli.doctor.site import Site, look_around
from tests.support.fleet_scene import node, status
from tests.support.scripted_node import ScriptedNode

Context = Any


class HalfDeaf(ScriptedNode):
    """Answers what is asked of it itself, reaches nobody, and never hears of limits."""

    async def ProbePeer(  # noqa: N802
        self, request: wire.ProbePeerRequest, context: Context
    ) -> wire.ProbePeerResponse:
        self.requests["ProbePeer"].append(request)
        return wire.ProbePeerResponse(reachable=False)

    async def ListLimits(  # noqa: N802
        self, request: wire.ListLimitsRequest, context: Context
    ) -> NoReturn:
        self.requests["ListLimits"].append(dict(context.invocation_metadata()))
        await asyncio.Event().wait()
        raise AssertionError


@pytest.fixture
async def peer() -> AsyncIterator[HalfDeaf]:
    peer = HalfDeaf("mini-2", "mini-2" * 4)
    await peer.start()
    yield peer
    await peer.stop()


def site_of(peer: ScriptedNode, **facts: Any) -> Site:
    """The site of mini-1, which knows the peer at its address."""
    known = status("mini-2")
    assert known.card is not None
    told = replace(known, card=replace(known.card, addresses=(peer.address,)))
    site = Site("10.0.0.1:7600", node=node("mini-1"), nodes=(status("mini-1"), told), peers=(told,))
    return replace(site, **facts)


def only(findings: list[Finding]) -> Finding:
    (found,) = findings
    return found


async def test_a_peer_that_is_reached_and_does_not_reach_back(peer: HalfDeaf) -> None:
    site = site_of(peer)
    assert only(await reach_checks.to_peers(site)).level is Level.OK
    back = only(await reach_checks.from_peers(site))
    assert (back.level, back.what) == (Level.PROBLEM, "mini-2 does not reach mini-1")
    assert peer.requests["ProbePeer"][0].node_id == site.nodes[0].node_id


async def test_another_node_at_a_peers_address_is_not_the_peer(peer: HalfDeaf) -> None:
    peer.node_id = "ff" * 8
    found = only(await reach_checks.to_peers(site_of(peer)))
    assert found.level is Level.PROBLEM
    assert f"{peer.address}: another node answers there" in found.cause


async def test_a_way_that_takes_small_messages_alone(
    peer: HalfDeaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_check, "ANSWER_SECONDS", 0.5)
    found = only(await path_check.check(site_of(peer)))
    assert found.level is Level.PROBLEM
    assert found.what == "large messages to and from mini-2 do not pass"
    # It was large when it left: several packets of Ethernet.
    assert len(peer.requests["ListLimits"][0]["x-kakeya-padding"]) > 3 * 1500


async def test_a_peer_that_is_busy_is_no_narrow_way(
    peer: HalfDeaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_check, "ANSWER_SECONDS", 0.5)
    # The first small call passes, the one after the large one does not.
    peer.refuse("GetNode", grpc.StatusCode.UNAVAILABLE, skip=1)
    found = only(await path_check.check(site_of(peer)))
    assert (found.level, found.cause) == (
        Level.NOT_RUN,
        "Calls to 1 peer were not answered: see to peers.",
    )


async def test_a_clock_that_is_ahead_is_told_with_its_range(peer: HalfDeaf) -> None:
    ahead = wire.NodeSample(at_unix=time.time() + 3600)
    peer.node_events = [wire.WatchNodeResponse(sample=ahead)] * 2
    *_, found = await clock_check.check(site_of(peer))
    assert found.level is Level.WARNING
    # It was made before it was asked for, as no real one is.
    assert re.fullmatch(r"the clock of mini-2 is 3[56]\d\d\.\d\d s ahead of this one", found.what)


async def test_a_peer_that_does_not_tell_the_time(peer: HalfDeaf) -> None:
    await peer.stop()
    *_, found = await clock_check.check(site_of(peer))
    assert (found.level, found.cause) == (Level.NOT_RUN, "1 peer did not tell the time.")


async def test_an_address_of_the_card_that_no_interface_has(peer: HalfDeaf) -> None:
    agent = LocalAgent("mini-1", "10.0.0.1:7600", 1)
    own = node("mini-1")
    own = replace(own, card=replace(own.card, addresses=("203.0.113.9:7600", peer.address)))
    gone, well = await address_check.check(site_of(peer, agent=agent, node=own))
    assert gone.level is Level.PROBLEM
    assert gone.what == "no interface of this machine has 203.0.113.9:7600"
    assert (well.level, peer.address in well.what) == (Level.OK, True)


async def test_software_of_another_version_is_told(peer: HalfDeaf) -> None:
    site = site_of(peer)
    told = site.peers[0]
    assert told.card is not None
    older = replace(told, card=replace(told.card, software_version="0.0.9"))
    found = only(await version_check.check(replace(site, nodes=(site.nodes[0], older))))
    assert found.level is Level.WARNING
    assert "0.0.9 on mini-2" in found.cause


async def test_what_nodes_tell_reaches_no_terminal_as_it_came(peer: HalfDeaf) -> None:
    peer.name = "mini\x1b[2J-2"
    peer.fleet_events = [
        wire.WatchFleetResponse(
            snapshot=wire.FleetSnapshot(
                fleet_name="home",
                nodes=[
                    wire.NodeStatus(
                        card=wire.CapabilityCard(
                            node_id="bb",
                            name=peer.name,
                            protocol_max=1,
                            addresses=["10.0.0.2:1"],
                        ),
                        liveness=wire.LIVENESS_ALIVE,
                    )
                ],
            )
        )
    ]
    site = await look_around(peer.address)
    assert site.node is not None
    for name in (site.node.card.name, site.peers[0].name):
        assert "\x1b" not in name
