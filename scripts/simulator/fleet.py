"""Nodes, their lives, and what they find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kakeya_fleet.fleet.cards.card import SignedCard
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.cards.signed_message import left_message
from kakeya_fleet.fleet.membership.events import (
    Changed,
    CloneFound,
    DialAddress,
    Effect,
    Event,
    Exchange,
    Heard,
    Leaving,
    OwnCardChanged,
    ProbeVia,
    Reached,
    Refute,
    Skipped,
    Tick,
)
from kakeya_fleet.fleet.membership.membership import step
from kakeya_fleet.fleet.membership.randomness import Randomness
from kakeya_fleet.fleet.membership.registry import Registry
from kakeya_fleet.fleet.membership.settings import MembershipSettings
from kakeya_fleet.fleet.membership.state import Membership
from scripts.simulator.agenda import Agenda
from scripts.simulator.calls import Calls
from scripts.simulator.cards import NOW_UNIX, sign, signed, simulated_card, verify
from scripts.simulator.faults import Weather
from scripts.simulator.network import Network
from scripts.simulator.node import SimulatedNode
from scripts.simulator.shared_storage import LaterRegistry, SharedFleet

# A process that leaves ends so long after its farewell.
FAREWELL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Burial:
    """An observer came to hold a node DEAD, at a time in virtual seconds.

    `was_alive` tells that this very process ran and was not frozen: a false death.
    """

    at: float
    observer: str
    subject: str
    was_alive: bool


class SimulatedFleet:
    """`node_count` nodes on a network, with a virtual clock in `now` seconds.

    `acquainted` nodes know each other and hold nothing for news; others know the address of
    the first node. `shared` nodes keep what they all hold in one place: see `shared_storage`.
    """

    def __init__(
        self,
        node_count: int,
        rng: Randomness,
        *,
        weather: Weather | None = None,
        settings: MembershipSettings | None = None,
        acquainted: bool = True,
        shared: bool = False,
    ) -> None:
        self.agenda = Agenda()
        self.network = Network(self.agenda, rng, weather or Weather())
        self.burials: list[Burial] = []
        self._rng = rng
        self._settings = settings or MembershipSettings()
        self._calls = Calls(self.agenda, self.network, rng, self._fed)
        cards = [signed(simulated_card(index)) for index in range(node_count)]
        self._common = SharedFleet(cards, verify) if shared else None
        if self._common is not None:
            for own in cards:
                self._start(self._common.membership(own, self._settings, rng))
            return
        for own in cards:
            self.boot(own, seeds=() if acquainted else cards[0].card.addresses)
        if acquainted:
            for node in self.nodes.values():
                self._acquaint(node, cards)

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self.agenda.now

    @property
    def nodes(self) -> dict[str, SimulatedNode]:
        """The latest process of every node, dead ones too, by id."""
        return self.network.nodes

    def boot(
        self, own: SignedCard, seeds: Sequence[str] = (), *, skew_seconds: float = 0.0
    ) -> SimulatedNode:
        """Starts a node that knows only itself, and ticks from a random moment on."""
        common = self._common
        registry = (
            Registry(own, verify, now=self.now)
            if common is None
            else LaterRegistry(common, own, now=self.now)
        )
        membership = Membership(registry, settings=self._settings, seeds=list(seeds))
        return self._start(membership, skew_seconds)

    def restart(self, node: SimulatedNode, seeds: Sequence[str]) -> SimulatedNode:
        """The node's next life after `kill` or `leave`: a higher incarnation, another boot id."""
        old = node.membership.registry.own.card
        incarnation = max(old.incarnation, node.membership.rising_to) + 1
        boot_id = f"{old.boot_id.partition('+')[0]}+{incarnation}"
        card = replace(old, incarnation=incarnation, sequence=0, boot_id=boot_id)
        return self.boot(signed(card), seeds, skew_seconds=node.skew_seconds)

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Runs virtual time; see `Agenda.run`."""
        return self.agenda.run(seconds, until)

    def living(self) -> list[SimulatedNode]:
        """Nodes whose process runs."""
        return [node for node in self.nodes.values() if not node.is_dead]

    def announce(self, node: SimulatedNode) -> SignedCard:
        """The node changes its card within its incarnation."""
        own = node.membership.registry.own.card
        stamp = self._calls.now_unix(node)
        changed = signed(replace(own, sequence=own.sequence + 1, announced_at_unix=stamp))
        self.feed(node, OwnCardChanged(changed))
        return changed

    def leave(self, node: SimulatedNode) -> None:
        """The node says farewell and ends half a second later."""
        own = node.membership.registry.own.card
        signature = sign(own.public_key, left_message(own.node_id, own.incarnation))
        self.feed(node, Leaving(signature))
        self.agenda.after(FAREWELL_SECONDS, lambda: self.kill(node))

    def kill(self, node: SimulatedNode) -> None:
        """The process ends without a word."""
        node.is_dead = True

    def hear(self, node: SimulatedNode, event: Heard) -> tuple[Effect, ...]:
        """Gives the node a message from outside the simulation."""
        return self.feed(node, event)

    def feed(self, node: SimulatedNode, event: Event) -> tuple[Effect, ...]:
        """One step of the node, and what it asks for."""
        effects = step(node.membership, event, self.now, self._rng)
        for effect in effects:
            self._act(node, effect)
        return effects

    def _fed(self, node: SimulatedNode, event: Event) -> None:
        self.feed(node, event)

    def _start(self, membership: Membership, skew_seconds: float = 0.0) -> SimulatedNode:
        own = membership.registry.own.card
        node = SimulatedNode(own.node_id, membership, skew_seconds)
        self.network.join(node, own.addresses)
        first = self._rng.random() * self._settings.period_seconds
        self.agenda.after(first, lambda: node.do(lambda: self._tick(node)))
        return node

    def _acquaint(self, node: SimulatedNode, cards: Sequence[SignedCard]) -> None:
        self.feed(node, Heard("", cards, (), NOW_UNIX))
        for card in cards:
            self.feed(node, Reached(card.card.node_id))
            # What everybody knows is no news.
            node.membership.hot_cards.cool(card.card.node_id)

    def _tick(self, node: SimulatedNode) -> None:
        self.feed(node, Tick())
        self.agenda.after(self._settings.period_seconds, lambda: node.do(lambda: self._tick(node)))

    def _act(self, node: SimulatedNode, effect: Effect) -> None:
        match effect:
            case Exchange(node_id, timeout):
                self._calls.exchange(node, node_id, timeout)
            case DialAddress(address, timeout):
                self._calls.dial(node, address, timeout)
            case ProbeVia(node_id, via, timeout):
                self._calls.probe(node, node_id, via, timeout)
            case Refute(incarnation):
                own = node.membership.registry.own.card
                card = signed(replace(own, incarnation=incarnation, sequence=0))
                self.feed(node, OwnCardChanged(card))
            case Changed(node_id):
                self._note(node, node_id)
            case CloneFound():
                node.clones_found.append(effect)
                if effect.must_yield:
                    self.kill(node)
            case Skipped(_, cards, rumours):
                node.skipped_count += len(cards) + len(rumours)
            case _:
                pass

    def _note(self, observer: SimulatedNode, node_id: str) -> None:
        registry = observer.membership.registry
        if registry.liveness(node_id) is not Liveness.DEAD:
            return
        subject = self.nodes.get(node_id)
        was_alive = (
            subject is not None
            and not (subject.is_dead or subject.is_frozen)
            # Who started anew is not who is buried.
            and subject.membership.registry.own.card.boot_id == registry.card(node_id).boot_id
        )
        self.burials.append(Burial(self.now, observer.node_id, node_id, was_alive))
