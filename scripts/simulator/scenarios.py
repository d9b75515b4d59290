"""What is measured of fleets in peace: news, deaths, bytes, memory, and hours of loss."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Mapping
from typing import Any

from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.membership.events import Heard, Reached
from kakeya_fleet.fleet.membership.membership import step
from kakeya_fleet.fleet.membership.registry import Registry
from kakeya_fleet.fleet.membership.state import Membership
from scripts.simulator.cards import NOW_UNIX, signed, simulated_card, verify
from scripts.simulator.faults import Weather
from scripts.simulator.fleet import SimulatedFleet
from scripts.simulator.measures import (
    all_hold,
    all_hold_as,
    false_deaths,
    roots_agree,
    seconds_until,
)
from scripts.simulator.randomness import QuickRandom

Row = Mapping[str, Any]

SETTLE_SECONDS = 3.0
# No news and no death takes longer; what does is told as missed.
LIMIT_SECONDS = 120.0
# Roots that are not equal so long after the news was everywhere are told as None.
ROOTS_SECONDS = 5.0
IDLE_SECONDS = 30.0
HOUR_SECONDS = 3600.0
# Smaller fleets keep registries of their own.
SHARED_FROM = 500


def news(node_count: int, loss: float, seed: int, count: int) -> Row:
    """Rounds until every node holds a changed card, and until all roots are equal.

    The nodes know each other; `count` nodes change their cards, one when the last one's is
    everywhere. A round is a period, 1 s. Bytes are of all messages of that time.
    """
    rng = QuickRandom(seed)
    weather, shared = Weather(loss=loss), node_count >= SHARED_FROM
    fleet = SimulatedFleet(node_count, rng, weather=weather, shared=shared)
    fleet.run(SETTLE_SECONDS)
    nodes = list(fleet.nodes.values())
    held: list[float | None] = []
    equal: list[float | None] = []
    began, bytes_before = fleet.now, fleet.network.sent_bytes.total()
    for _ in range(count):
        announced = fleet.announce(rng.choice(nodes))
        rounds = seconds_until(fleet, LIMIT_SECONDS, all_hold(fleet, announced))
        held.append(_rounded(rounds))
        more = seconds_until(fleet, ROOTS_SECONDS, lambda: roots_agree(fleet))
        equal.append(None if rounds is None or more is None else _rounded(rounds + more))
    sent = fleet.network.sent_bytes.total() - bytes_before
    return {
        "rounds_held": held,
        "rounds_equal_roots": equal,
        "bytes_a_second_a_node": round(sent / (fleet.now - began) / node_count, 1),
        "false_deaths": len(false_deaths(fleet.burials)),
    }


def death(node_count: int, seed: int) -> Row:
    """Virtual seconds from a crash until the first survivor, and all, hold the node DEAD."""
    rng = QuickRandom(seed)
    fleet = SimulatedFleet(node_count, rng, shared=node_count >= SHARED_FROM)
    fleet.run(SETTLE_SECONDS + rng.random())
    victim = rng.choice(fleet.living())
    killed_at = fleet.now
    fleet.kill(victim)
    everyone = seconds_until(
        fleet, LIMIT_SECONDS, lambda: all_hold_as(fleet, victim.node_id, Liveness.DEAD)
    )
    found = [burial.at for burial in fleet.burials if burial.subject == victim.node_id]
    return {
        "first_seconds": _rounded(min(found) - killed_at) if found else None,
        "everyone_seconds": _rounded(everyone),
        "false_deaths": len(false_deaths(fleet.burials)),
    }


def idle(node_count: int, seed: int) -> Row:
    """Bytes a second that a node sends while nothing happens."""
    fleet = SimulatedFleet(node_count, QuickRandom(seed), shared=node_count >= SHARED_FROM)
    fleet.run(SETTLE_SECONDS)
    before, messages = fleet.network.sent_bytes.total(), fleet.network.sent_count
    fleet.run(IDLE_SECONDS)
    sent = fleet.network.sent_bytes.total() - before
    return {
        "bytes_a_second_a_node": round(sent / IDLE_SECONDS / node_count, 1),
        "messages_a_second_a_node": round(
            (fleet.network.sent_count - messages) / IDLE_SECONDS / node_count, 3
        ),
    }


def memory(node_count: int) -> Row:
    """Bytes that the membership of one node takes, cards included, when all have answered it."""
    gc.collect()
    tracemalloc.start()
    state = Membership(Registry(signed(simulated_card(0)), verify, now=0.0))
    cards = [signed(simulated_card(index)) for index in range(1, node_count)]
    rng = QuickRandom(0)
    step(state, Heard("", cards, (), NOW_UNIX), 0.0, rng)
    for card in cards:
        step(state, Reached(card.card.node_id), 0.0, rng)
    state.registry.root_hash()
    state.registry.digest_part(0)
    del cards
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"bytes": taken, "bytes_a_known_node": round(taken / node_count)}


def hours_of_loss(node_count: int, loss: float, seed: int, hours: float) -> Row:
    """Deaths of nodes that live, while so many messages are lost."""
    fleet = SimulatedFleet(node_count, QuickRandom(seed), weather=Weather(loss=loss))
    fleet.run(hours * HOUR_SECONDS)
    own = [node.membership.registry.own.card.incarnation for node in fleet.living()]
    return {
        "false_deaths": len(false_deaths(fleet.burials)),
        "refutations_a_node_an_hour": round((sum(own) / node_count - 1) / hours, 1),
        "bytes_a_second_a_node": round(
            fleet.network.sent_bytes.total() / (hours * HOUR_SECONDS) / node_count, 1
        ),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)
