"""What a network does to messages: loses, delays, doubles and cuts them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from kakeya_fleet.fleet.membership.randomness import Randomness

# Whether what goes from a sender's id to a receiver's is dropped.
Cut = Callable[[str, str], bool]
# Seconds that one message takes.
Delay = Callable[[Randomness], float]


@dataclass(frozen=True, slots=True)
class Weather:
    """Of every message: `loss` and `duplicates` are probabilities, 0 to 1.

    Each copy has a delay of its own, so that a wide `delay` brings messages out of order.
    """

    loss: float = 0.0
    duplicates: float = 0.0
    delay: Delay = lambda rng: 0.001 + 0.009 * rng.random()


def between(least_seconds: float, most_seconds: float) -> Delay:
    """Any delay between two, as likely as any other."""
    span = most_seconds - least_seconds
    return lambda rng: least_seconds + span * rng.random()


def long_tailed(median_seconds: float, spread: float = 1.0) -> Delay:
    """Log-normal: one message of forty takes longer than exp(2 * spread) medians."""

    def drawn(rng: Randomness) -> float:
        # Box and Muller 1958; 1 - random() is never 0.
        radius = math.sqrt(-2.0 * math.log(1.0 - rng.random()))
        normal = radius * math.cos(2.0 * math.pi * rng.random())
        return median_seconds * math.exp(spread * normal)

    return drawn


def whole(_sender: str, _receiver: str) -> bool:
    """Nothing is cut."""
    return False


def two_sides(side: Collection[str]) -> Cut:
    """Nothing crosses the border of `side`."""
    inside = frozenset(side)
    return lambda sender, receiver: (sender in inside) != (receiver in inside)


def one_way(sender: str, receiver: str) -> Cut:
    """Nothing goes from one node to one other; the way back is open."""
    return lambda source, target: (source, target) == (sender, receiver)


def bridge(sides: Mapping[str, int]) -> Cut:
    """Only nodes that are on no side speak with both sides."""

    def is_cut(sender: str, receiver: str) -> bool:
        return sender in sides and receiver in sides and sides[sender] != sides[receiver]

    return is_cut
