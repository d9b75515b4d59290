"""The rules of membership, seen from above. Parameters name the seeds."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest

from kakeya_fleet.fleet.cards.card import SignedCard
from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.membership.events import Heard
from scripts.simulator.cards import NOW_UNIX, signed, simulated_card
from scripts.simulator.faults import Weather
from scripts.simulator.fleet import SimulatedFleet
from scripts.simulator.measures import agrees, knows_all, roots_agree
from scripts.simulator.node import SimulatedNode
from tests.support.breadth import all_wide_but, wide


def rounds_to_all(fleet: SimulatedFleet, announced: SignedCard) -> float:
    """Seconds, which are rounds, until every living node holds the card or a newer one."""
    started = fleet.now
    node_id, least = announced.card.node_id, (announced.card.incarnation, announced.card.sequence)

    def is_known() -> bool:
        held = (node.membership.registry.card(node_id) for node in fleet.living())
        return all((card.incarnation, card.sequence) >= least for card in held)

    assert fleet.run(120.0, until=is_known)
    return fleet.now - started


@pytest.mark.parametrize(
    ("node_count", "loss", "samples"),
    [(2, 0.3, 20), (10, 0.0, 20), (50, 0.3, 5), wide(200, 0.0, 1)],
)
def test_news_reaches_all_in_logarithmic_rounds(node_count: int, loss: float, samples: int) -> None:
    rng = Random(1)
    fleet = SimulatedFleet(node_count, rng, weather=Weather(loss=loss))
    fleet.run(2.0)
    nodes = list(fleet.nodes.values())
    slope, offset = (1.4, 5.0) if loss else (1.0, 4.0)
    bound = slope * math.log2(node_count) + offset
    for _ in range(samples):
        assert rounds_to_all(fleet, fleet.announce(rng.choice(nodes))) <= bound
    assert fleet.burials == []


@pytest.mark.parametrize("seed", all_wide_but({0, 1}, range(5)))
def test_a_pair_finds_a_death_in_four_to_seven_seconds(seed: int) -> None:
    fleet = SimulatedFleet(2, Random(seed))
    fleet.run(3.0 + seed / 10)
    survivor, victim = fleet.nodes.values()
    killed_at = fleet.now
    fleet.kill(victim)
    fleet.run(20.0)
    assert [burial.subject for burial in fleet.burials] == [victim.node_id]
    assert 4.0 <= fleet.burials[0].at - killed_at <= 7.0
    assert fleet.burials[0].observer == survivor.node_id


@pytest.mark.parametrize("seed", [1])
def test_a_third_of_messages_lost_for_ten_minutes_kills_nobody(seed: int) -> None:
    fleet = SimulatedFleet(10, Random(seed), weather=Weather(loss=0.3))
    fleet.run(600.0)
    assert fleet.burials == []


def test_a_death_among_ten_is_found_by_all_and_by_nobody_twice() -> None:
    fleet = SimulatedFleet(10, Random(4))
    fleet.run(3.0)
    victim = next(iter(fleet.nodes.values()))
    fleet.kill(victim)
    fleet.run(30.0)
    assert {burial.subject for burial in fleet.burials} == {victim.node_id}
    assert len(fleet.burials) == 9
    assert roots_agree(fleet)


def test_a_one_way_cut_kills_nobody_in_ten_minutes() -> None:
    fleet = SimulatedFleet(5, Random(5))
    first, second = list(fleet.nodes)[:2]
    fleet.network.is_cut = lambda sender, receiver: (sender, receiver) == (first, second)
    fleet.run(600.0)
    assert fleet.burials == []


@pytest.mark.parametrize("seed", all_wide_but({3}, [3, 6, 7]))
def test_news_flows_over_the_only_bridge_and_nobody_is_buried(seed: int) -> None:
    fleet = SimulatedFleet(7, Random(seed))
    fleet.run(2.0)
    ids = list(fleet.nodes)
    side = {node_id: index % 2 for index, node_id in enumerate(ids[1:])}
    fleet.network.is_cut = lambda sender, receiver: (
        ids[0] not in (sender, receiver) and side[sender] != side[receiver]
    )
    for node_id in ids[1:4]:
        assert rounds_to_all(fleet, fleet.announce(fleet.nodes[node_id])) <= 15.0
    fleet.run(300.0)
    assert fleet.burials == []


@pytest.mark.parametrize("seed", all_wide_but({0}, range(3)))
def test_a_partition_of_a_minute_heals_in_thirty_seconds(seed: int) -> None:
    fleet = SimulatedFleet(10, Random(seed))
    fleet.run(3.0)
    half = set(list(fleet.nodes)[:5])
    fleet.network.is_cut = lambda sender, receiver: (sender in half) != (receiver in half)
    fleet.run(60.0)
    for node in fleet.living():
        registry = node.membership.registry
        others = [other for other in fleet.nodes if (other in half) == (node.node_id in half)]
        assert all(registry.liveness(other) is Liveness.ALIVE for other in others)
    assert fleet.burials
    fleet.network.is_cut = lambda _sender, _receiver: False
    assert fleet.run(30.0, until=lambda: agrees(fleet))


@pytest.mark.parametrize("seed", all_wide_but({0}, range(3)))
def test_a_node_frozen_until_dead_rejoins_and_accuses_nobody(seed: int) -> None:
    fleet = SimulatedFleet(10, Random(seed))
    fleet.run(3.0)
    frozen = list(fleet.nodes.values())[seed]

    def is_dead_to_all() -> bool:
        return all(
            node.membership.registry.liveness(frozen.node_id) is Liveness.DEAD
            for node in fleet.living()
            if node is not frozen
        )

    frozen.freeze()
    assert fleet.run(60.0, until=is_dead_to_all)
    frozen.thaw()
    assert fleet.run(2 * math.log2(10), until=lambda: knows_all(fleet))
    fleet.run(30.0)
    assert frozen.membership.registry.own.card.incarnation >= 2
    assert {burial.subject for burial in fleet.burials} == {frozen.node_id}
    assert knows_all(fleet)


def test_a_short_freeze_starts_no_war_of_incarnations() -> None:
    fleet = SimulatedFleet(5, Random(8))
    fleet.run(3.0)
    frozen = list(fleet.nodes.values())[2]
    frozen.freeze()
    fleet.run(10.0)
    frozen.thaw()
    fleet.run(60.0)
    assert knows_all(fleet)
    for node in fleet.living():
        most = 3 if node is frozen else 1
        assert node.membership.registry.own.card.incarnation <= most


def test_after_a_power_cut_all_meet_within_ten_seconds() -> None:
    fleet = SimulatedFleet(20, Random(9), acquainted=False)
    assert fleet.run(10.0, until=lambda: agrees(fleet))


def test_a_restarted_node_is_alive_again_with_its_next_incarnation() -> None:
    fleet = SimulatedFleet(5, Random(10))
    fleet.run(3.0)
    old = list(fleet.nodes.values())[1]
    fleet.kill(old)
    fleet.run(40.0)
    card = replace(old.membership.registry.own.card, incarnation=2, boot_id="second boot")
    fleet.boot(signed(card), seeds=simulated_card(0).addresses)
    assert fleet.run(10.0, until=lambda: agrees(fleet))
    assert all(not node.clones_found for node in fleet.living())


def test_a_farewell_is_known_to_all_and_is_no_death() -> None:
    fleet = SimulatedFleet(10, Random(11))
    fleet.run(3.0)
    leaver = list(fleet.nodes.values())[3]
    fleet.leave(leaver)

    def is_known() -> bool:
        return all(
            node.membership.registry.liveness(leaver.node_id) is Liveness.LEFT
            for node in fleet.living()
        )

    assert fleet.run(math.log2(10) + 4, until=is_known)
    fleet.run(30.0)
    assert fleet.burials == []


def test_a_flood_of_forged_suspicion_kills_nobody() -> None:
    fleet = SimulatedFleet(6, Random(12))
    fleet.run(3.0)
    victims: list[SimulatedNode] = fleet.living()
    for _ in range(60):
        registry = victims[0].membership.registry
        forged = [
            Rumour(node.node_id, incarnation, Liveness.SUSPECT)
            for node in victims
            for incarnation in (registry.card(node.node_id).incarnation, 2**62)
        ]
        fleet.hear(victims[0], Heard("", (), forged, NOW_UNIX))
        fleet.run(1.0)
    assert fleet.burials == []
    assert all(node.membership.registry.own.card.incarnation < 200 for node in victims)
