"""Drives `fleet.membership.membership` with real clocks, real calls and a durable incarnation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

import structlog

from kakeya import KakeyaError, NodeUnreachable
from kakeya_fleet.fleet.cards.card import Card, SignedCard
from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.membership import exchange
from kakeya_fleet.fleet.membership.events import (
    AddressFound,
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
    NetworksChanged,
    OwnCardChanged,
    ProbeDone,
    ProbeOutcome,
    ProbeVia,
    PutOut,
    Reached,
    ReceivedCard,
    Refute,
    Removed,
    Skipped,
    Tick,
)
from kakeya_fleet.fleet.membership.exchange import ExchangeAnswer, ExchangeMessage
from kakeya_fleet.fleet.membership.membership import step
from kakeya_fleet.fleet.membership.state import Membership
from kakeya_fleet.node.config.config import split_address
from kakeya_fleet.node.errors import BadCertificate, CloneYields, StateUnwritable
from kakeya_fleet.node.membership.called_addresses import CalledAddresses
from kakeya_fleet.node.membership.card_maker import CardMaker
from kakeya_fleet.node.membership.dial_budget import DialBudget
from kakeya_fleet.node.membership.exchange_client import Answered, ExchangeClient, Unanswered
from kakeya_fleet.node.membership.fleet_changes import FleetChanges
from kakeya_fleet.node.membership.known_fleet import KnownFleet
from kakeya_fleet.node.membership.missed_statements import MissedStatements
from kakeya_fleet.node.membership.peers import Peers
from kakeya_fleet.node.membership.seed_watch import SeedWatch
from kakeya_fleet.node.membership.statement_exchange import StatementExchange
from kakeya_fleet.node.membership.surroundings import Surroundings
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.refusals import TooManyProbes
from kakeya_fleet.node.watch.background import BackgroundTasks, Work

# Peers that hear at once of what a node serves from now on.
SPREAD_PEERS = 3

SMALL_FLEET = 8
"""Up to so many live nodes the ways to all are measured at once."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Clocks:
    """`monotonic` seconds for all that is measured, `unix` seconds since 1970 for cards."""

    monotonic: Callable[[], float]
    unix: Callable[[], float]


@dataclass(frozen=True, slots=True)
class GossipParts:
    """What the gossip works with; the agent owns and closes all of it."""

    membership: Membership
    client: ExchangeClient
    peers: Peers
    known: KnownFleet
    changes: FleetChanges
    seeds: SeedWatch
    card_maker: CardMaker
    surroundings: Surroundings
    budget: DialBudget
    metrics: NodeMetrics
    clocks: Clocks
    rng: Random
    statements: StatementExchange | None = None
    missed: MissedStatements | None = None


class Gossip:
    """One node's part in the gossip. Its calls are tasks of `tasks`.

    Everything runs in one event loop; between two awaits nothing else changes
    the membership.
    """

    def __init__(self, parts: GossipParts, tasks: BackgroundTasks) -> None:
        self._parts = parts
        self._tasks = tasks
        self._running: set[asyncio.Future[None]] = set()
        registry = parts.membership.registry
        self._addresses = CalledAddresses(registry, parts.peers, parts.surroundings)
        self._measuring: set[str] = set()
        self._is_changed = True

    async def run(self) -> None:
        """Ticks once a period until cancelled."""
        period = self._parts.membership.settings.period_seconds
        clock = self._parts.clocks.monotonic
        due = clock()
        while True:
            self._parts.metrics.event_loop_lag_seconds.set(max(0.0, clock() - due))
            self._feed(Tick())
            if self._is_changed or self._addresses.may_prune:
                self._is_changed = False
                self._parts.known.count(self._parts.metrics)
                await self._addresses.prune()
            # Periods that were missed are not made up for.
            due = max(due + period, clock())
            await asyncio.sleep(due - clock())

    def found(self, address: str) -> None:
        """Somebody of this fleet may answer at host:port: a person or a former run says so."""
        self._feed(AddressFound(address))

    def announced(self, address: str) -> None:
        """Anybody on the network says that somebody of this fleet answers at host:port."""
        own = self._parts.membership.registry.own.card.addresses[0]
        if not self._parts.surroundings.now().permits(address, split_address("peers", own)[0]):
            return
        if self._parts.budget.take(""):
            self._feed(AddressFound(address))

    def announce(self, signed: SignedCard) -> None:
        """Spreads a new card of this node itself."""
        self._feed(OwnCardChanged(signed))

    async def settle(self, timeout_seconds: float) -> None:
        """Waits for the calls that run now: after the first ones, the fleet is known."""
        calls = set(self._running)
        if calls:
            await asyncio.wait(calls, timeout=timeout_seconds)

    async def spread(self, timeout_seconds: float) -> None:
        """Brings what is known here to some live peers now, before their turn comes."""
        parts = self._parts
        registry = parts.membership.registry
        peers = [
            node_id
            for node_id in registry.nodes()
            if parts.membership.found(node_id) is Liveness.ALIVE and node_id != registry.own_id
        ]
        before = set(self._running)
        for node_id in parts.rng.sample(peers, min(SPREAD_PEERS, len(peers))):
            dial = DialAddress(self._addresses.of(node_id), timeout_seconds)
            self._spawn(partial(self._dial, dial))
        calls = self._running - before
        if calls:
            await asyncio.wait(calls, timeout=timeout_seconds)

    def answer(
        self,
        message: ExchangeMessage,
        cards: Sequence[ReceivedCard],
        rumours: Sequence[Rumour],
        host: str,
    ) -> tuple[ExchangeAnswer, tuple[tuple[int, str], ...]]:
        """Merges what a node sent from `host` and answers; also (index, rule) of skipped cards."""
        effects = self._heard(message.sender_id, cards, rumours, host)
        skipped = [effect.cards for effect in effects if isinstance(effect, Skipped)]
        return exchange.answer(self._parts.membership, message), sum(skipped, ())

    async def probe(self, node_id: str, timeout_seconds: float, host: str) -> float | None:
        """Round trip to a third node in seconds for one at `host`, None without an answer.

        Raises `fleet.errors.NodeNotFound`, and `TooManyProbes` when the host asks too often.
        """
        self._parts.membership.registry.record(node_id)
        if not self._parts.budget.take(host):
            self._parts.metrics.dials_refused.inc()
            raise TooManyProbes(
                f"{host} asks for more than {self._parts.budget.limits.dials_a_second:.0f} probes"
                " a second; ask later"
            )
        address = self._addresses.of(node_id)
        with self._addresses.calling(address):
            return await self._parts.client.ping(address, node_id, timeout_seconds)

    async def leave(self) -> None:
        """Tells up to three peers, by a signed statement, that this node left."""
        farewell_seconds = self._parts.membership.settings.farewell_seconds
        if self._addresses.is_calling and self._running:
            # Whoever is dialled now will know this node, and is to hear that it left.
            await asyncio.wait(set(self._running), timeout=farewell_seconds / 2)
        before = set(self._running)
        self._feed(Leaving(self._parts.card_maker.farewell()))
        farewells = self._running - before
        if farewells:
            await asyncio.wait(farewells, timeout=farewell_seconds)

    def moved(self) -> None:
        """The machine's networks are others than before."""
        self._feed(NetworksChanged(self._parts.surroundings.usable))

    def put_out(self, node_ids: frozenset[str]) -> None:
        """Drops nodes that keepers of the fleet have put out."""
        self._feed(PutOut(node_ids))

    def stop(self) -> None:
        """Cancels the calls that still run."""
        for task in self._running:
            task.cancel()

    def _feed(self, event: Event) -> tuple[Effect, ...]:
        parts = self._parts
        effects = step(parts.membership, event, parts.clocks.monotonic(), parts.rng)
        for effect in effects:
            self._act(effect)
        return effects

    def _heard(
        self,
        sender_id: str,
        cards: Sequence[ReceivedCard],
        rumours: Sequence[Rumour],
        host: str,
    ) -> tuple[Effect, ...]:
        return self._feed(Heard(sender_id, cards, rumours, self._parts.clocks.unix(), host))

    def _act(self, effect: Effect) -> None:
        match effect:
            case Exchange():
                self._spawn(partial(self._exchange, effect))
            case DialAddress():
                self._spawn(partial(self._dial, effect))
            case ProbeVia():
                self._spawn(partial(self._probe_via, effect))
            case Refute():
                self._spawn(partial(self._refute, effect))
            case Changed(node_id):
                self._is_changed = True
                self._parts.changes.changed(node_id)
                self._meet(node_id)
                self._measure(node_id)
            case Removed(node_id):
                self._is_changed = True
                self._parts.changes.removed(node_id)
            case CloneFound():
                self._clone(effect)
            case Skipped():
                self._count_skipped(effect)

    def _meet(self, node_id: str) -> None:
        """A seed peer that joined by another way is not called any more."""
        record = self._parts.membership.registry.record(node_id)
        if record.liveness is Liveness.ALIVE:
            for address in record.card.addresses:
                self._parts.seeds.answered(address)

    def _measure(self, node_id: str) -> None:
        """Measures the way to a node before its turn in the gossip comes.

        To one that is new here, or has the address no more by which it was reached.
        """
        parts = self._parts
        record = parts.membership.registry.record(node_id)
        if (
            node_id == parts.membership.registry.own_id
            or record.liveness is not Liveness.ALIVE
            or parts.peers.way(node_id) in record.card.addresses
            or node_id in self._measuring
            or self._can_wait(record.card)
        ):
            return
        if not parts.budget.take(parts.membership.registry.introducer(node_id)):
            # Its turn in the gossip comes.
            parts.metrics.dials_refused.inc()
            return
        self._measuring.add(node_id)
        self._spawn(partial(self._measured, node_id, self._addresses.of(node_id)))

    def _can_wait(self, card: Card) -> bool:
        """Whether the way to the node is needed no sooner than its turn comes.

        Nothing is placed on one that serves nothing; when many begin at once, calls from each to
        each would take longer than all else.
        """
        serves = bool(card.models) or card.archive is not None
        return not serves and self._parts.membership.registry.live_count() > SMALL_FLEET

    async def _measured(self, node_id: str, address: str) -> None:
        parts = self._parts
        try:
            timeout = parts.membership.settings.period_seconds
            with self._addresses.calling(address):
                seconds = await parts.client.ping(address, node_id, timeout)
        finally:
            self._measuring.discard(node_id)
        if seconds is not None:
            self._feed(Reached(node_id))
        if seconds is not None and node_id in parts.membership.registry:
            parts.peers.record_round_trip(node_id, seconds, address)
            parts.changes.changed(node_id)

    def _spawn(self, begin: Callable[[], Work]) -> None:
        task = self._tasks.once("gossip call", begin)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _exchange(self, effect: Exchange) -> None:
        parts = self._parts
        if effect.node_id not in parts.membership.registry:
            return
        message = exchange.opening(parts.membership, effect.node_id)
        address = self._addresses.of(effect.node_id)
        with self._addresses.calling(address):
            answered = await parts.client.exchange(
                address, message, effect.timeout_seconds, effect.node_id
            )
        if isinstance(answered, Unanswered) or answered.sender_id != effect.node_id:
            self._addresses.failed(effect.node_id, address)
            self._feed(ExchangeFailed(effect.node_id))
        # Whoever answers at that address is alive, also when it is another node by now.
        if isinstance(answered, Answered) and not self._is_own(answered):
            await self._take(address, answered, effect.timeout_seconds)

    async def _dial(self, effect: DialAddress) -> None:
        parts = self._parts
        message = exchange.opening(parts.membership)
        await self._addresses.resolve(effect.address)
        with self._addresses.calling(effect.address):
            answered = await parts.client.exchange(effect.address, message, effect.timeout_seconds)
        if isinstance(answered, Unanswered):
            await self._unanswered(effect.address, answered.error)
        else:
            parts.seeds.answered(effect.address)
            if not self._is_own(answered):
                await self._take(effect.address, answered, effect.timeout_seconds)

    async def _unanswered(self, address: str, error: KakeyaError) -> None:
        found: KakeyaError | BadCertificate = error
        if self._parts.missed is not None and isinstance(error, NodeUnreachable):
            try:
                await self._parts.missed.ask(address)
            except BadCertificate as stranger:
                found = stranger
        await self._parts.seeds.failed(address, found, is_known=self._addresses.is_members(address))

    def _is_own(self, answered: Answered) -> bool:
        """Whether this node itself answered, at an address that leads back here."""
        return answered.sender_id == self._parts.membership.registry.own_id

    async def _take(self, address: str, answered: Answered, timeout_seconds: float) -> None:
        parts = self._parts
        self._addresses.answered(address, answered)
        if parts.statements is not None:
            parts.statements.differs(address, answered.sender_id, answered.trust_hash)
        now_unix = parts.clocks.unix()
        host = self._addresses.host(address)
        self._feed(
            ExchangeSucceeded(answered.sender_id, answered.cards, answered.rumours, now_unix, host)
        )
        received = ExchangeAnswer(answered.sender_id, answered.root_hash, (), (), answered.digest)
        message = exchange.follow_up(parts.membership, received, parts.rng)
        if message is None:
            return
        with self._addresses.calling(address):
            further = await parts.client.exchange(
                address, message, timeout_seconds, answered.sender_id
            )
        if isinstance(further, Answered) and further.sender_id == answered.sender_id:
            self._heard(further.sender_id, further.cards, further.rumours, host)

    async def _probe_via(self, effect: ProbeVia) -> None:
        outcome = ProbeOutcome.SILENT
        if effect.via in self._parts.membership.registry:
            outcome = await self._parts.client.probe(
                self._addresses.of(effect.via), effect.via, effect.node_id, effect.timeout_seconds
            )
        self._feed(ProbeDone(effect.node_id, effect.via, outcome))

    async def _refute(self, effect: Refute) -> None:
        parts = self._parts
        period = parts.membership.settings.period_seconds
        while True:
            try:
                signed = await asyncio.to_thread(parts.card_maker.raise_to, effect.incarnation)
                break
            except StateUnwritable as error:
                # Announcing it anyway could make the next start look like a clone.
                _log.error("incarnation_not_durable", reason=error.reason, cause=error.cause)
                await asyncio.sleep(period)
        parts.metrics.incarnation.set(signed.card.incarnation)
        _log.info("refuted", incarnation=signed.card.incarnation)
        self._feed(OwnCardChanged(signed))

    def _clone(self, effect: CloneFound) -> None:
        _log.error("clone_found", node_id=effect.node_id, must_yield=effect.must_yield)
        if effect.must_yield:
            self._spawn(partial(_yield_to_clone, effect.node_id))

    def _count_skipped(self, effect: Skipped) -> None:
        for _, rule in effect.cards:
            self._parts.metrics.cards_skipped.labels(rule=rule).inc()
        for _, rule in effect.rumours:
            self._parts.metrics.rumours_skipped.labels(rule=rule).inc()
        rules = sorted({str(rule) for _, rule in effect.cards})
        if rules:
            _log.warning("cards_skipped", sender=effect.sender_id, rules=rules)


async def _yield_to_clone(node_id: str) -> None:
    """Fails the agent's tasks, so that it stops."""
    raise CloneYields(
        f"another agent announces this node's identity {node_id[:16]}",
        "give each machine its own: remove the state directory of the copy, then join again as a "
        "new node, with a code of `fleet invite` if the fleet has an authority",
        node_id=node_id,
    )
