"""What those say who mean harm: strangers, eavesdroppers, and a member with a key of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from kakeya_fleet.fleet.cards.card import SignedCard
from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.membership.events import Heard
from scripts.simulator.cards import NOW_UNIX, signed
from scripts.simulator.fleet import SimulatedFleet
from scripts.simulator.node import SimulatedNode

# Tells one node something, once.
Attack = Callable[[SimulatedNode], None]
FAR_AHEAD = 2**62


class Adversary:
    """Speaks to nodes from outside the network, which loses nothing of what it says.

    It has heard the cards that the fleet began with, and hears every later one.
    """

    def __init__(self, fleet: SimulatedFleet, rng: Random) -> None:
        self._fleet = fleet
        self._rng = rng
        self._past = self._present()

    def assault(self, attack: Attack, seconds: float) -> None:
        """The attack on a random living node, once a virtual second."""
        for _ in range(int(seconds)):
            attack(self._rng.choice(self._fleet.living()))
            self._fleet.run(1.0)

    def accuse(self, victim: SimulatedNode) -> None:
        """Forged statements about everybody, of this life and of a far later one."""
        self._say(victim, (), self._accusations())

    def replay(self, victim: SimulatedNode) -> None:
        """Cards that were true once."""
        self._say(victim, self._past, ())

    def corrupt(self, victim: SimulatedNode) -> None:
        """Everybody's card with another byte, and raised ones under the old signature."""
        cards = []
        for own in self._present():
            place = self._rng.randrange(len(own.card_bytes))
            bent = bytearray(own.card_bytes)
            bent[place] ^= 1 << self._rng.randrange(8)
            cards.append(replace(own, card_bytes=bytes(bent)))
            risen = signed(replace(own.card, incarnation=FAR_AHEAD))
            cards.append(replace(risen, signature=own.signature))
        self._say(victim, cards, ())

    def lie_as(self, member: SimulatedNode) -> Attack:
        """What a member may say under its own key: a new card at every turn, and accusations."""

        def lie(victim: SimulatedNode) -> None:
            changed = self._fleet.announce(member)
            self._say(victim, (changed,), self._accusations(), member.node_id)

        return lie

    def _present(self) -> list[SignedCard]:
        return [node.membership.registry.own for node in self._fleet.living()]

    def _accusations(self) -> list[Rumour]:
        return [
            Rumour(own.card.node_id, incarnation, liveness, own.signature)
            for own in self._present()
            for incarnation in (own.card.incarnation, FAR_AHEAD)
            for liveness in (Liveness.SUSPECT, Liveness.DEAD, Liveness.LEFT)
        ]

    def _say(
        self,
        victim: SimulatedNode,
        cards: list[SignedCard] | tuple[SignedCard, ...],
        rumours: list[Rumour] | tuple[Rumour, ...],
        sender_id: str = "",
    ) -> None:
        self._fleet.feed(victim, Heard(sender_id, cards, rumours, NOW_UNIX + self._fleet.now))
