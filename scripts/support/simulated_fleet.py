"""A whole fleet in virtual time: the rules of membership, seen from above.

Nodes run the same `step` and the same messages as the agent, over a network
that loses, delays, cuts and freezes as it is told. Nothing but the seed decides
what happens, so that a failure is repeated by its seed.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from kakeya_fleet.fleet.cards.card import Accelerator, Card, SignedCard
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.cards.signed_message import card_message, left_message, node_id_of
from kakeya_fleet.fleet.membership.events import (
    Changed,
    CloneFound,
    DialAddress,
    Effect,
    Event,
    Exchange,
    ExchangeFailed,
    ExchangeSucceeded,
    Heard,
    Leaving,
    OwnCardChanged,
    ProbeDone,
    ProbeOutcome,
    ProbeVia,
    Reached,
    Refute,
    Tick,
)
from kakeya_fleet.fleet.membership.exchange import (
    ExchangeAnswer,
    ExchangeMessage,
    answer,
    follow_up,
    opening,
)
from kakeya_fleet.fleet.membership.membership import step
from kakeya_fleet.fleet.membership.randomness import Randomness
from kakeya_fleet.fleet.membership.registry import Registry
from kakeya_fleet.fleet.membership.settings import MembershipSettings
from kakeya_fleet.fleet.membership.state import Membership

FLEET_NAME = "simulated"
NOW_UNIX = 1_700_000_000.0
LEAST_LATENCY_SECONDS = 0.001
MOST_LATENCY_SECONDS = 0.010
LOOK_SECONDS = 0.1


def sign(public_key: bytes, message: bytes) -> bytes:
    """Stands for a signature: without a secret, but it fits one key and one message."""
    return hashlib.sha256(public_key + message).digest()


def verify(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Checks what `sign` made."""
    return signature == sign(public_key, message)


def signed(card: Card) -> SignedCard:
    """The card with bytes and a signature that follow from its fields."""
    card_bytes = repr(card).encode()
    return SignedCard(card, card_bytes, sign(card.public_key, card_message(card_bytes)))


def simulated_card(index: int) -> Card:
    """The first card of the node with this number, at incarnation 1."""
    public_key = hashlib.sha256(index.to_bytes(8, "big")).digest()
    return Card(
        node_id=node_id_of(public_key),
        name=f"node-{index}",
        fleet_name=FLEET_NAME,
        boot_id=f"boot-{index}",
        incarnation=1,
        sequence=0,
        public_key=public_key,
        addresses=(f"10.{index >> 16 & 255}.{index >> 8 & 255}.{index & 255}:7000",),
        platform="linux/x86_64",
        accelerator=Accelerator("cpu", "simulated"),
        memory_total_bytes=1 << 34,
        memory_free_bytes=1 << 33,
        software_version="0",
        protocol_min=1,
        protocol_max=1,
        models=(),
        ring_address="",
        announced_at_unix=NOW_UNIX,
        ttl_seconds=3600.0,
    )


@dataclass(slots=True)
class SimulatedNode:
    """One process; `waiting` holds what reached it while it was frozen."""

    node_id: str
    membership: Membership
    is_dead: bool = False
    is_frozen: bool = False
    waiting: list[Callable[[], None]] = field(default_factory=list)
    clones_found: list[CloneFound] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Burial:
    """An observer came to hold a node DEAD, at a time in virtual seconds."""

    at: float
    observer: str
    subject: str


class SimulatedFleet:
    """`node_count` nodes, a virtual clock in `now` seconds, and a network.

    `loss` is the probability that one message is lost, 0 to 1. `is_cut` tells
    for (sender id, receiver id) whether messages that way are dropped.
    """

    def __init__(
        self,
        node_count: int,
        rng: Randomness,
        *,
        loss: float = 0.0,
        settings: MembershipSettings | None = None,
        acquainted: bool = True,
    ) -> None:
        self.now = 0.0
        self.loss = loss
        self.is_cut: Callable[[str, str], bool] = lambda _sender, _receiver: False
        self.burials: list[Burial] = []
        self.nodes: dict[str, SimulatedNode] = {}
        self._rng = rng
        self._settings = settings or MembershipSettings()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._addresses: dict[str, str] = {}
        cards = [signed(simulated_card(index)) for index in range(node_count)]
        for own in cards:
            self.boot(own, seeds=() if acquainted else cards[0].card.addresses)
        if acquainted:
            for node in self.nodes.values():
                self._feed(node, Heard("", cards, (), NOW_UNIX))
                for other in self.nodes:
                    self._feed(node, Reached(other))
                # What everybody knows is no news.
                for card in cards:
                    node.membership.hot_cards.cool(card.card.node_id)

    def boot(self, own: SignedCard, seeds: tuple[str, ...] = ()) -> SimulatedNode:
        """Starts a node that knows only itself, and ticks from a random moment on."""
        registry = Registry(own, verify, now=self.now)
        membership = Membership(registry, settings=self._settings, seeds=list(seeds))
        node = SimulatedNode(own.card.node_id, membership)
        self.nodes[node.node_id] = node
        self._addresses[own.card.addresses[0]] = node.node_id
        self._after(self._rng.random() * self._settings.period_seconds, lambda: self._tick(node))
        return node

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Runs virtual time until `until` holds, looked at every `LOOK_SECONDS`.

        Returns whether it came to hold; False when there is none.
        """
        end = self.now + seconds
        while self.now < end:
            if until is not None and until():
                return True
            stop = end if until is None else min(end, self.now + LOOK_SECONDS)
            while self._agenda and self._agenda[0][0] <= stop:
                self.now, _, action = heapq.heappop(self._agenda)
                action()
            self.now = stop
        return until is not None and until()

    def living(self) -> list[SimulatedNode]:
        """Nodes whose process runs."""
        return [node for node in self.nodes.values() if not node.is_dead]

    def roots_agree(self) -> bool:
        """Whether all living nodes have one root hash."""
        return len({node.membership.registry.root_hash() for node in self.living()}) == 1

    def knows_all(self) -> bool:
        """Whether each living node holds each living node ALIVE."""
        ids = [node.node_id for node in self.living()]
        return all(
            node_id in node.membership.registry
            and node.membership.registry.liveness(node_id) is Liveness.ALIVE
            for node in self.living()
            for node_id in ids
        )

    def announce(self, node: SimulatedNode) -> SignedCard:
        """The node changes its card within its incarnation."""
        own = node.membership.registry.own.card
        changed = signed(replace(own, sequence=own.sequence + 1))
        self._feed(node, OwnCardChanged(changed))
        return changed

    def leave(self, node: SimulatedNode) -> None:
        """The node says farewell and ends half a second later."""
        own = node.membership.registry.own.card
        signature = sign(own.public_key, left_message(own.node_id, own.incarnation))
        self._feed(node, Leaving(signature))
        self._after(0.5, lambda: self.kill(node))

    def kill(self, node: SimulatedNode) -> None:
        """The process ends without a word."""
        node.is_dead = True

    def freeze(self, node: SimulatedNode) -> None:
        """The process stops; what reaches it waits."""
        node.is_frozen = True

    def thaw(self, node: SimulatedNode) -> None:
        """The process goes on with all that waited, in the order in which it came."""
        node.is_frozen = False
        waiting, node.waiting = node.waiting, []
        for action in waiting:
            action()

    def hear(self, node: SimulatedNode, event: Heard) -> tuple[Effect, ...]:
        """Gives the node a message from outside the simulation."""
        return self._feed(node, event)

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (self.now + seconds, next(self._order), action))

    def _at_node(self, node: SimulatedNode, action: Callable[[], None]) -> None:
        if node.is_frozen:
            node.waiting.append(action)
        elif not node.is_dead:
            action()

    def _send(self, sender: str, receiver: str, action: Callable[[], None]) -> None:
        """Delivers a message, unless the network loses or cuts it."""
        node = self.nodes[receiver]
        if self.is_cut(sender, receiver) or self._rng.random() < self.loss:
            return
        span = MOST_LATENCY_SECONDS - LEAST_LATENCY_SECONDS
        latency = LEAST_LATENCY_SECONDS + self._rng.random() * span
        self._after(latency, lambda: self._at_node(node, action))

    def _tick(self, node: SimulatedNode) -> None:
        if node.is_dead:
            return
        if node.is_frozen:
            node.waiting.append(lambda: self._tick(node))
            return
        self._feed(node, Tick())
        self._after(self._settings.period_seconds, lambda: self._tick(node))

    def _feed(self, node: SimulatedNode, event: Event) -> tuple[Effect, ...]:
        effects = step(node.membership, event, self.now, self._rng)
        for effect in effects:
            self._act(node, effect)
        return effects

    def _act(self, node: SimulatedNode, effect: Effect) -> None:
        match effect:
            case Exchange(node_id, timeout):
                self._exchange(node, node_id, timeout, opening(node.membership, node_id))
            case DialAddress(address, timeout):
                if address in self._addresses:
                    receiver = self._addresses[address]
                    self._exchange(node, receiver, timeout, opening(node.membership))
            case ProbeVia(node_id, via, timeout):
                self._probe(node, node_id, via, timeout)
            case Refute(incarnation):
                own = node.membership.registry.own.card
                card = signed(replace(own, incarnation=incarnation, sequence=0))
                self._feed(node, OwnCardChanged(card))
            case Changed(node_id):
                registry = node.membership.registry
                if registry.liveness(node_id) is Liveness.DEAD:
                    self.burials.append(Burial(self.now, node.node_id, node_id))
            case CloneFound():
                node.clones_found.append(effect)
                if effect.must_yield:
                    self.kill(node)
            case _:
                pass

    def _exchange(
        self, caller: SimulatedNode, receiver: str, timeout: float, message: ExchangeMessage
    ) -> None:
        """One exchange: request, answer, and a second round when the roots differed."""
        is_over = False

        def expire() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._feed(caller, ExchangeFailed(receiver))

        def answered(received: ExchangeAnswer) -> None:
            nonlocal is_over
            if is_over:
                return
            is_over = True
            event = ExchangeSucceeded(receiver, received.cards, received.rumours, NOW_UNIX)
            self._feed(caller, event)
            further = follow_up(caller.membership, received, self._rng)
            if further is not None:
                self._request(caller, receiver, further, heard)

        def heard(received: ExchangeAnswer) -> None:
            self._feed(caller, Heard(receiver, received.cards, received.rumours, NOW_UNIX))

        self._request(caller, receiver, message, answered)
        self._after(timeout, lambda: self._at_node(caller, expire))

    def _request(
        self,
        caller: SimulatedNode,
        receiver: str,
        message: ExchangeMessage,
        take: Callable[[ExchangeAnswer], None],
    ) -> None:
        def respond() -> None:
            node = self.nodes[receiver]
            self._feed(node, Heard(message.sender_id, message.cards, message.rumours, NOW_UNIX))
            back = answer(node.membership, message)
            self._send(receiver, caller.node_id, lambda: take(back))

        self._send(caller.node_id, receiver, respond)

    def _probe(self, caller: SimulatedNode, subject: str, via: str, timeout: float) -> None:
        """Caller -> via -> subject and back; the helper answers in any case."""
        is_told = False
        is_settled = False

        def conclude(outcome: ProbeOutcome) -> None:
            nonlocal is_told
            if not is_told:
                is_told = True
                self._feed(caller, ProbeDone(subject, via, outcome))

        def settle(outcome: ProbeOutcome) -> None:
            nonlocal is_settled
            if not is_settled:
                is_settled = True
                self._send(via, caller.node_id, lambda: conclude(outcome))

        def help_out() -> None:
            def ping() -> None:
                self._send(subject, via, lambda: settle(ProbeOutcome.REACHED))

            self._send(via, subject, ping)
            helper = self.nodes[via]
            give_up = partial(settle, ProbeOutcome.UNREACHED)
            self._after(timeout, lambda: self._at_node(helper, give_up))

        self._send(caller.node_id, via, help_out)
        silent = partial(conclude, ProbeOutcome.SILENT)
        self._after(2 * timeout, lambda: self._at_node(caller, silent))
