"""Who is in the fleet, as one node knows and tells it."""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.fleet.membership.merge_rules import Usable
from kakeya_fleet.fleet.membership.registry import Registry
from kakeya_fleet.fleet.membership.settings import MembershipSettings
from kakeya_fleet.fleet.membership.state import Membership
from kakeya_fleet.fleet.trust.host_names import HostNames
from kakeya_fleet.node.app.address_watch import AddressWatch
from kakeya_fleet.node.app.ground import Ground
from kakeya_fleet.node.app.trust_keeping import TrustKeeping
from kakeya_fleet.node.config.config import (
    Config,
    answerable,
    is_loopback,
    join_address,
    require_answerable,
)
from kakeya_fleet.node.config.machine import machine
from kakeya_fleet.node.membership.allowed_roles import AllowedRolesWatch
from kakeya_fleet.node.membership.announcement import Announcement
from kakeya_fleet.node.membership.card_maker import CardFacts, CardMaker
from kakeya_fleet.node.membership.dial_budget import DialBudget
from kakeya_fleet.node.membership.discovery import Discovery
from kakeya_fleet.node.membership.exchange_client import ExchangeClient
from kakeya_fleet.node.membership.fleet_changes import EventSink, FleetChanges
from kakeya_fleet.node.membership.fleet_watch import FleetWatch
from kakeya_fleet.node.membership.gossip import Clocks, Gossip, GossipParts
from kakeya_fleet.node.membership.identity import verifies
from kakeya_fleet.node.membership.known_fleet import KnownFleet
from kakeya_fleet.node.membership.members import members_of
from kakeya_fleet.node.membership.missed_statements import MissedStatements
from kakeya_fleet.node.membership.network import addresses_of
from kakeya_fleet.node.membership.own_addresses import OwnAddresses
from kakeya_fleet.node.membership.peer_memory import PeerMemory
from kakeya_fleet.node.membership.peers import Peers
from kakeya_fleet.node.membership.seed_watch import SeedWatch
from kakeya_fleet.node.membership.statement_exchange import StatementExchange
from kakeya_fleet.node.membership.surroundings import Surroundings
from kakeya_fleet.node.rpc.channels import Channels
from kakeya_fleet.node.trust.trust import Trust
from kakeya_fleet.node.watch.background import BackgroundTasks
from kakeya_fleet.node.watch.event_log import EventLog

if TYPE_CHECKING:
    from kakeya_fleet.node.joining.join_issuer import JoinIssuer


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """`own` is where this node answers now.

    `keeping` and `issuer` are None in a fleet without an authority. `tasks` are all that runs
    as long as the node does, and the gossip's calls.
    """

    ground: Ground
    tasks: BackgroundTasks
    own: OwnAddresses
    moves: AddressWatch
    card_maker: CardMaker
    membership: Membership
    peers: Peers
    known: KnownFleet
    seeds: SeedWatch
    watch: FleetWatch
    discovery: Discovery
    memory: PeerMemory
    gossip: Gossip
    keeping: TrustKeeping | None
    issuer: JoinIssuer | None

    @property
    def applications_address(self) -> str:
        """Where applications with a key call gRPC, host:port; empty where they cannot."""
        port = self.ground.applications_port
        return join_address(self.own.hosts[0], port) if port else ""

    @property
    def https_address(self) -> str:
        """The same of HTTPS."""
        http = self.ground.http
        port = http.https_port if http is not None else 0
        return join_address(self.own.hosts[0], port) if port else ""

    def begin(self) -> Iterator[asyncio.Task[None]]:
        """Begins what runs as long as the node does."""
        period, registry = self.ground.config.period_seconds, self.membership.registry
        yield self.tasks.keep("gossip", self.gossip.run)
        yield self.tasks.keep("discovery", lambda: self.discovery.run(self.gossip.announced))
        yield self.tasks.keep("addresses", self.moves.run)
        if self.keeping is not None:
            yield self.tasks.keep("certificate", self.keeping.run)
        yield self.tasks.keep("peer memory", lambda: self.memory.run(registry, 2 * period))

    def look_for_fleet(self) -> None:
        """Calls those whom the configuration names, and those who were in the fleet before."""
        recalled = self.memory.recall()
        if self.own.stays_here:
            recalled = answerable(self.own.hosts, recalled)
        for address in dict.fromkeys((*self.ground.config.peers, *recalled)):
            self.gossip.found(address)

    async def spread(self) -> None:
        """Tells some peers at once what this node serves now."""
        await self.gossip.spread(self.ground.config.period_seconds)


async def open_control_plane(
    stack: AsyncExitStack, ground: Ground, on_event: EventSink, events: EventLog
) -> ControlPlane:
    """Makes it, for as long as `stack` is open, and the one owner of the node's tasks.

    Nothing is opened but multicast DNS, unless the configuration forbids it. Raises
    `LoopbackBind` when the bind address is a name of loopback.
    """
    config, identity, trust = ground.config, ground.identity, ground.trust
    own = ground.own
    if own.stays_here:
        require_answerable(own.hosts, config.peers)
    card_maker = _card_maker(ground)
    surroundings = Surroundings(config.peers, time.monotonic, stays_here=own.stays_here)
    usable = members_of(trust, surroundings.usable) if trust is not None else surroundings.usable
    membership = _membership(card_maker, config.period_seconds, usable)
    channels = Channels(trust)
    peers = Peers(channels)
    stack.push_async_callback(peers.close)
    trust_hash = trust.ledger.root_hash if trust is not None else bytes
    known = KnownFleet(
        membership,
        peers,
        time.monotonic,
        trust_hash,
        trust.ledger.allowed_roles if trust is not None else lambda _: None,
    )
    seeds = SeedWatch(config.peers, config.fleet_name, on_event, events, time.monotonic)
    watch = FleetWatch(ground.metrics)
    discovery = Discovery(Announcement(identity.node_id, config.fleet_name, own.hosts, ground.port))
    stack.push_async_callback(discovery.close)
    if config.mdns:
        discovery.open()
    # Ended before what its tasks use is closed.
    owner = await stack.enter_async_context(asyncio.TaskGroup())
    tasks = BackgroundTasks(owner, events, ground.metrics)
    statements = missed = None
    if trust is not None:
        statements = StatementExchange(trust, peers, tasks)
        missed = MissedStatements(trust, channels, statements)
    changes = FleetChanges(known, watch, on_event, events)
    budget = DialBudget(time.monotonic, ground.allowances.limits.membership)
    _show_limits(ground, membership, budget, events)
    parts = GossipParts(
        membership=membership,
        client=ExchangeClient(config.fleet_name, peers, ground.metrics, time.monotonic, trust_hash),
        peers=peers,
        known=known,
        changes=changes,
        seeds=seeds,
        card_maker=card_maker,
        surroundings=surroundings,
        budget=budget,
        metrics=ground.metrics,
        clocks=Clocks(time.monotonic, time.time),
        rng=Random(),
        statements=statements,
        missed=missed,
    )
    gossip = Gossip(parts, tasks)
    keeping = issuer = None
    if trust is not None and statements is not None:
        AllowedRolesWatch(trust, known, changes, events)
        keeping = TrustKeeping(trust, statements, gossip, known, peers, card_maker, tasks, events)
        if ground.http is not None and ground.http.https_port:
            keeping.hosts = partial(_called_at, config)
        issuer = _join_issuer(ground, trust, known, events)
        stack.push_async_callback(issuer.close)
    http = partial(_http_on_card, ground)
    moves = AddressWatch(own, surroundings, peers, gossip, card_maker, discovery, events, http)
    return ControlPlane(
        ground=ground,
        tasks=tasks,
        own=own,
        moves=moves,
        card_maker=card_maker,
        membership=membership,
        peers=peers,
        known=known,
        seeds=seeds,
        watch=watch,
        discovery=discovery,
        memory=PeerMemory(ground.state),
        gossip=gossip,
        keeping=keeping,
        issuer=issuer,
    )


def _show_limits(
    ground: Ground, membership: Membership, budget: DialBudget, events: EventLog
) -> None:
    """What is taken of the bounds that membership keeps by itself."""
    watch, registry = ground.allowances.watch, membership.registry
    watch("membership.nodes", lambda: len(registry), lambda: registry.refused_count)
    watch("membership.introducers", lambda: len(budget))
    watch("membership.dial_burst", lambda: budget.most_taken, lambda: budget.refused_count)
    watch("watches.events", lambda: len(events.latest))


def _join_issuer(ground: Ground, trust: Trust, known: KnownFleet, events: EventLog) -> JoinIssuer:
    # A fleet without an authority lets nobody in.
    from kakeya_fleet.node.app.letting_in import grant_of  # noqa: PLC0415
    from kakeya_fleet.node.joining.join_issuer import JoinIssuer  # noqa: PLC0415

    config = ground.config
    return JoinIssuer(
        node_id=ground.identity.node_id,
        hosts=(config.bind_address[0],),
        grant=grant_of(trust, known, lambda: ground.own.addresses),
        events=events,
        metrics=ground.metrics,
        allowances=ground.allowances,
        mdns=config.mdns,
    )


def _called_at(config: Config) -> HostNames:
    """Where clients of HTTPS call this machine now."""
    name = socket.gethostname().partition(".")[0]
    names = (name, f"{name}.local", "localhost", *config.http_hosts)
    return HostNames.of(names, (*addresses_of(config.bind_address[0]), "127.0.0.1", "::1"))


def _card_maker(ground: Ground) -> CardMaker:
    facts = CardFacts(
        name=ground.config.name,
        fleet_name=ground.config.fleet_name,
        boot_id=secrets.token_hex(16),
        addresses=ground.own.addresses,
        machine=machine(ground.device, ground.config.backend),
        memory_free_bytes=system_memory.available_bytes(),
        models=(),
        loading=bool(ground.expected.awaited),
        http_address=_http_on_card(ground),
        certificate=ground.trust.member.certificate if ground.trust is not None else b"",
        applications_port=ground.applications_port,
        https_port=ground.http.https_port if ground.http is not None else 0,
    )
    return CardMaker(ground.identity, ground.state, facts, ground.incarnation, time.time)


def _http_on_card(ground: Ground) -> str:
    """Where others find HTTP; a node that only its own machine reaches tells that one."""
    bound = ground.config.http_address
    if bound is None:
        return ""
    return ground.http_address if ground.own.stays_here or not is_loopback(bound[0]) else ""


def _membership(card_maker: CardMaker, period_seconds: float, usable: Usable) -> Membership:
    registry = Registry(card_maker.current, verifies, now=time.monotonic(), usable=usable)
    settings = MembershipSettings(
        period_seconds=period_seconds,
        exchange_timeout_seconds=period_seconds / 2,
        probe_timeout_seconds=period_seconds / 2,
        dial_seconds=10 * period_seconds,
    )
    return Membership(registry, settings)
