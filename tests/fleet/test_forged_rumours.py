"""Unsigned statements of liveness, as a hostile peer sends them. Parameters name the seeds."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.membership.events import Heard
from scripts.simulator.cards import NOW_UNIX
from scripts.simulator.fleet import SimulatedFleet
from scripts.simulator.node import SimulatedNode

LOOKS = 300
LOOK_SECONDS = 0.1


def looks_at(
    fleet: SimulatedFleet, observer: SimulatedNode, victim: SimulatedNode, liveness: Liveness
) -> Counter[Liveness]:
    """How a living node is held during half a minute in which each look follows a forged rumour."""
    seen: Counter[Liveness] = Counter()
    registry = observer.membership.registry
    for _ in range(LOOKS):
        incarnation = registry.card(victim.node_id).incarnation
        forged = Rumour(victim.node_id, incarnation, liveness)
        fleet.hear(observer, Heard("", (), (forged,), NOW_UNIX))
        seen[registry.liveness(victim.node_id)] += 1
        fleet.run(LOOK_SECONDS)
    return seen


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("node_count", [2, 6])
def test_forged_dead_rumours_bury_nobody(node_count: int, seed: int) -> None:
    fleet = SimulatedFleet(node_count, Random(seed))
    fleet.run(3.0)
    observer, victim = fleet.living()[:2]
    seen = looks_at(fleet, observer, victim, Liveness.DEAD)
    assert seen[Liveness.DEAD] == 0
    assert fleet.burials == []


@pytest.mark.parametrize("liveness", [Liveness.SUSPECT, Liveness.DEAD])
def test_whom_only_strangers_accuse_goes_on_to_be_used(liveness: Liveness) -> None:
    fleet = SimulatedFleet(6, Random(1))
    fleet.run(3.0)
    observer, victim = fleet.living()[:2]
    registry = observer.membership.registry
    for _ in range(LOOKS):
        incarnation = registry.card(victim.node_id).incarnation
        forged = Rumour(victim.node_id, incarnation, liveness)
        fleet.hear(observer, Heard("", (), (forged,), NOW_UNIX))
        assert observer.membership.found(victim.node_id) is Liveness.ALIVE
        fleet.run(LOOK_SECONDS)


def test_a_flood_of_accusations_makes_a_node_rise_once_a_period_at_most() -> None:
    fleet = SimulatedFleet(2, Random(2))
    fleet.run(3.0)
    observer, victim = fleet.living()
    own = victim.membership.registry
    before = own.own.card.incarnation
    for _ in range(LOOKS):
        forged = Rumour(victim.node_id, own.own.card.incarnation, Liveness.DEAD)
        fleet.hear(victim, Heard("", (), (forged,), NOW_UNIX))
        fleet.run(LOOK_SECONDS)
    assert own.own.card.incarnation - before <= LOOKS * LOOK_SECONDS + 1
    assert observer.membership.found(victim.node_id) is Liveness.ALIVE
