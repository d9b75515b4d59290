"""Nodes that come and go."""

from __future__ import annotations

from random import Random

from scripts.simulator.cards import signed, simulated_card
from scripts.simulator.fleet import SimulatedFleet

# Fewer than these are not taken away from.
FEWEST = 3


def churn(fleet: SimulatedFleet, rng: Random, *, changes: int, every_seconds: float) -> None:
    """So many joins, farewells, crashes and restarts, one after the other.

    Who comes knows the address of one living node.
    """
    booted = len(fleet.nodes)
    for _ in range(changes):
        living = fleet.living()
        seeds = rng.choice(living).membership.registry.own.card.addresses
        gone = [node for node in fleet.nodes.values() if node.is_dead]
        node = rng.choice(living)
        match rng.choice(("join", "leave", "crash", "restart")):
            case "leave" if len(living) > FEWEST and not node.membership.is_leaving:
                fleet.leave(node)
            case "crash" if len(living) > FEWEST:
                fleet.kill(node)
            case "restart" if gone:
                fleet.restart(rng.choice(gone), seeds)
            case _:
                fleet.boot(signed(simulated_card(booted)), seeds)
                booted += 1
        fleet.run(every_seconds)
