"""Fleets in trouble: every storm is one row, with what it found and whether that is kept.

Rows of the fault matrix that are about membership; times are virtual seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from kakeya_fleet.fleet.cards.liveness import Liveness
from scripts.simulator.adversaries import Adversary
from scripts.simulator.churn import churn
from scripts.simulator.faults import Weather, bridge, long_tailed, one_way, two_sides, whole
from scripts.simulator.fleet import SimulatedFleet
from scripts.simulator.measures import (
    agrees,
    all_hold,
    all_hold_as,
    false_deaths,
    knows_all,
    seconds_until,
)
from scripts.simulator.randomness import QuickRandom

NODES = 10
HOUR = 3600.0
LIMIT_SECONDS = 120.0
Found = dict[str, Any]
Storm = Callable[[int, float], Found]
"""Of a seed, and seconds that it lasts where it is not said by the fault itself."""


def partition(seed: int, _seconds: float) -> Found:
    """Half against half for a minute: one view again 30 s after."""
    fleet = _fleet(seed)
    fleet.network.is_cut = two_sides(list(fleet.nodes)[: NODES // 2])
    fleet.run(60.0)
    fleet.network.is_cut = whole
    healed = seconds_until(fleet, LIMIT_SECONDS, lambda: agrees(fleet))
    return _within(healed, 30.0)


def one_way_link(seed: int, seconds: float) -> Found:
    """One node's messages to one other never come: indirect probes clear it."""
    fleet = _fleet(seed)
    fleet.network.is_cut = one_way(*list(fleet.nodes)[:2])
    fleet.run(seconds)
    return _none_buried(fleet)


def bridged(seed: int, seconds: float) -> Found:
    """Two sides that one node holds together: news comes through it.

    Who is buried is told too; the fault matrix asks for the news alone.
    """
    fleet = _fleet(seed)
    ids = list(fleet.nodes)
    fleet.network.is_cut = bridge({node_id: rank % 2 for rank, node_id in enumerate(ids[1:])})
    announced = fleet.announce(fleet.nodes[ids[1]])
    crossed = seconds_until(fleet, LIMIT_SECONDS, all_hold(fleet, announced))
    fleet.run(seconds)
    return {**_none_buried(fleet), "crossed_seconds": crossed, "kept": crossed is not None}


def bad_network(seed: int, seconds: float) -> Found:
    """Long-tailed delays that bring messages out of order, and every fifth one twice."""
    weather = Weather(loss=0.05, duplicates=0.2, delay=long_tailed(0.02))
    fleet = SimulatedFleet(NODES, QuickRandom(seed), weather=weather)
    fleet.run(seconds)
    found = _none_buried(fleet)
    fleet.network.weather = Weather()
    equal = seconds_until(fleet, LIMIT_SECONDS, lambda: agrees(fleet))
    return {**found, "equal_seconds": equal, "kept": found["kept"] and equal is not None}


def wrong_clocks(seed: int, _seconds: float) -> Found:
    """A clock an hour ahead, one behind: their news is as fast as any."""
    fleet = _fleet(seed)
    ahead, behind, *_ = fleet.living()
    ahead.skew_seconds, behind.skew_seconds = HOUR, -HOUR
    rounds = []
    for node in (ahead, behind, ahead):
        rounds.append(seconds_until(fleet, LIMIT_SECONDS, all_hold(fleet, fleet.announce(node))))
        # The clock is set right: the next card has an earlier stamp than the last.
        node.skew_seconds = -node.skew_seconds
    worst = None if None in rounds else max(filter(None, rounds))
    return _within(worst, math.log2(NODES) + 4)


def frozen(seed: int, _seconds: float) -> Found:
    """A node is stopped until all hold it DEAD, and goes on: back in 2 log2 N rounds."""
    fleet = _fleet(seed)
    node = fleet.living()[seed % NODES]
    node.freeze()
    fleet.run(LIMIT_SECONDS, until=lambda: all_hold_as(fleet, node.node_id, Liveness.DEAD))
    node.thaw()
    back = seconds_until(fleet, LIMIT_SECONDS, lambda: knows_all(fleet))
    return {**_within(back, 2 * math.log2(NODES)), **_others_buried(fleet)}


def power_cut(seed: int, _seconds: float) -> Found:
    """All boot at once and know one address: one view in 10 s."""
    fleet = SimulatedFleet(NODES, QuickRandom(seed), acquainted=False)
    return _within(seconds_until(fleet, LIMIT_SECONDS, lambda: agrees(fleet)), 10.0)


def comings_and_goings(seed: int, seconds: float) -> Found:
    """A join, farewell, crash or restart every 5 s; then one view of those who are there."""
    fleet, rng = _fleet(seed), QuickRandom(seed)
    churn(fleet, rng, changes=int(seconds / 5.0), every_seconds=5.0)
    equal = seconds_until(fleet, LIMIT_SECONDS, lambda: agrees(fleet))
    found = _none_buried(fleet)
    return {**found, "equal_seconds": equal, "kept": found["kept"] and equal is not None}


def assaulted(attack: str) -> Storm:
    """A storm of one attack a second on a random node: nobody is buried, all agree after."""

    def assault(seed: int, seconds: float) -> Found:
        fleet, rng = _fleet(seed), QuickRandom(seed)
        adversary = Adversary(fleet, rng)
        if attack == "lie":
            adversary.assault(adversary.lie_as(rng.choice(fleet.living())), seconds)
        else:
            adversary.assault(getattr(adversary, attack), seconds)
        found = _none_buried(fleet)
        equal = seconds_until(fleet, LIMIT_SECONDS, lambda: agrees(fleet))
        most = max(node.membership.registry.own.card.incarnation for node in fleet.living())
        # Who is accused rises at most once a period.
        kept = found["kept"] and equal is not None and most <= seconds + 2
        return {**found, "equal_seconds": equal, "highest_incarnation": most, "kept": kept}

    return assault


STORMS: Mapping[str, Storm] = {
    "partition of 60 s": partition,
    "one-way link": one_way_link,
    "bridge": bridged,
    "jitter, reorder, duplicates": bad_network,
    "clocks an hour wrong": wrong_clocks,
    "frozen until dead": frozen,
    "power cut": power_cut,
    "churn": comings_and_goings,
    "forged accusations": assaulted("accuse"),
    "replayed cards": assaulted("replay"),
    "corrupted cards": assaulted("corrupt"),
    "a member that lies": assaulted("lie"),
}


def storm(name: str, seed: int, seconds: float) -> Found:
    """The storm of that name. Raises `KeyError` for another."""
    return STORMS[name](seed, seconds)


def _fleet(seed: int) -> SimulatedFleet:
    fleet = SimulatedFleet(NODES, QuickRandom(seed))
    fleet.run(3.0)
    return fleet


def _within(seconds: float | None, most: float) -> Found:
    return {
        "seconds": seconds,
        "most_seconds": round(most, 2),
        "kept": seconds is not None and seconds <= most,
    }


def _none_buried(fleet: SimulatedFleet) -> Found:
    count = len(false_deaths(fleet.burials))
    return {"false_deaths": count, "kept": count == 0}


def _others_buried(fleet: SimulatedFleet) -> Found:
    return {"false_deaths": len(false_deaths(fleet.burials))}
