"""A running node: its parts wired, served, drained."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random
from typing import Any

import grpc.aio
import structlog
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION_SERVICE
from grpc_reflection.v1alpha.reflection import enable_server_reflection

from fleet.card import Role
from fleet.membership_settings import MembershipSettings
from fleet.membership_state import Membership
from fleet.registry import Registry
from kakeya.v1 import capability_pb2_grpc
from node.agent_events import AgentEvents
from node.capability_service import SERVICE_NAME, CapabilityServicer
from node.config import Config, is_loopback, join_address, split_address
from node.errors import NodeError
from node.http.server import HttpServer, ServingNode
from node.links.roads.ring_probe import RingProbe
from node.links.roads.road_builders import road_builders, wants_ring
from node.machine import machine, memory_free_bytes
from node.membership.card_maker import CardFacts, CardMaker
from node.membership.discovery import Announcement, Discovery
from node.membership.exchange_client import ExchangeClient
from node.membership.fleet_changes import EventSink, FleetChanges
from node.membership.fleet_watch import FleetWatch
from node.membership.gossip import Clocks, Gossip, GossipParts
from node.membership.identity import Identity, verifies
from node.membership.known_fleet import KnownFleet
from node.membership.network import addresses_of
from node.membership.peer_memory import PeerMemory
from node.membership.peers import Peers
from node.metrics import NodeMetrics
from node.node_report import NodeReport
from node.role_spec import parse_role_specs
from node.roles import Roles
from node.rpc.grpc_settings import LEAVE_SECONDS, STOP_SECONDS
from node.rpc.health import HEALTH_SERVICE, Health
from node.state_directory import StateDirectory
from node.watching.doings import Doings
from node.watching.event_log import EventKind
from node.watching.node_watch import NodeWatch

_log = structlog.get_logger(__name__)

# The trial of a ring takes a core for half a second: not from those who wait for the node.
PROBE_AFTER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What the agent made and closes again; the server is bound.

    The roles know what they will load, and `load` loads it.
    """

    config: Config
    state: StateDirectory
    identity: Identity
    metrics: NodeMetrics
    roles: Roles
    server: grpc.aio.Server
    doings: Doings
    load: Callable[[], Coroutine[None, None, None]]
    http: HttpServer | None = None


class RunningNode:
    """A node from its first card to its last. `leave` is what the Leave call calls."""

    def __init__(
        self, parts: NodeParts, on_event: EventSink, leave: Callable[[float], None]
    ) -> None:
        self._config = parts.config
        self._on_event = on_event
        self._ask_to_leave = leave
        self._state = parts.state
        self._identity = parts.identity
        self._metrics = parts.metrics
        self._roles = parts.roles
        self._server = parts.server
        self._http = parts.http
        self._doings = parts.doings
        self._load = parts.load
        self._gossip: Gossip | None = None
        self._loaded = asyncio.Event()
        self._watch = FleetWatch(parts.metrics)
        self._peers = Peers()
        self._memory = PeerMemory(parts.state)
        self._ring_probe = RingProbe()

    async def serve(
        self, incarnation: int, port: int, *, until: Callable[[], Awaitable[float]]
    ) -> None:
        """Serves until `until` gives the seconds to drain, and has left on return.

        It has joined the fleet before its models are loaded. One task group owns all tasks
        of the node. Raises `NodeError`, and after it has left what loading raised.
        """
        async with AsyncExitStack() as stack:
            await self._serve(stack, incarnation, port, until)
        self._on_event({"event": "left", "node_id": self._identity.node_id})

    async def _serve(
        self,
        stack: AsyncExitStack,
        incarnation: int,
        port: int,
        until: Callable[[], Awaitable[float]],
    ) -> None:
        host, _ = self._config.bind_address
        hosts = addresses_of(host)
        addresses = tuple(join_address(each, port) for each in hosts)
        card_maker = self._card_maker(incarnation, addresses)
        membership = self._membership(card_maker)
        known = KnownFleet(membership.registry, self._peers, time.monotonic)
        http_address = self._http.address if self._http else ""
        report = NodeReport(known, self._roles, http_address, time.time())
        node_watch = NodeWatch(report, self._doings, self._metrics)
        self._roles.session_watch.on_change = node_watch.changed
        events = AgentEvents(
            self._identity.node_id,
            self._config.name,
            self._config.fleet_name,
            addresses[0],
            http_address,
        )
        discovery = self._discovery(hosts, port)
        stack.push_async_callback(self._peers.close)
        stack.push_async_callback(discovery.close)
        failure: Exception | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                gossip = Gossip(self._gossip_parts(membership, known, card_maker), tasks)
                servicer = CapabilityServicer(
                    gossip,
                    known,
                    self._watch,
                    report,
                    node_watch,
                    self._metrics,
                    self._ask_to_leave,
                )
                self._gossip = gossip
                health = self._register(servicer, known, is_local=all(map(is_loopback, hosts)))
                await self._server.start()
                self._open_http(addresses[0], known)
                self._announce(addresses[0], http_address, port)
                works = (
                    gossip.run(),
                    self._roles.run(),
                    discovery.run(gossip.found),
                    self._follow_offers(card_maker, gossip, health),
                    node_watch.run(),
                    self._offer_ring(card_maker, gossip, addresses),
                    self._memory.run(membership.registry, 2 * self._config.period_seconds),
                )
                background = [tasks.create_task(work) for work in works]
                if self._roles.expected.takes_time:
                    self._on_event(events.joined(self._config.serve))
                for address in dict.fromkeys((*self._config.peers, *self._memory.recall())):
                    gossip.found(address)

                async def ready() -> None:
                    self._offer(card_maker, gossip, health)
                    await gossip.spread(self._config.period_seconds)
                    self._loaded.set()
                    mdns = discovery.fault or "on" if self._config.mdns else "off"
                    self._on_event(events.ready(self._roles.offers(), mdns, self._state.path))
                    node_watch.changed()

                drain_seconds, failure = await self._stay(until, ready)
                if failure is None:
                    self._on_event(events.draining(drain_seconds))
                await self._leave(health, gossip, node_watch, drain_seconds)
                for task in background:
                    task.cancel()
                gossip.stop()
        except BaseExceptionGroup as group:
            raise _expected(group) from None
        if failure is not None:
            raise failure

    @property
    def is_loaded(self) -> bool:
        """Whether everything that it is to serve is loaded."""
        return self._loaded.is_set()

    async def say_farewell(self) -> None:
        """Tells peers that the node leaves, for a process that ends without draining."""
        if self._gossip is not None:
            await self._gossip.leave(LEAVE_SECONDS)

    async def _stay(
        self, until: Callable[[], Awaitable[float]], ready: Callable[[], Awaitable[None]]
    ) -> tuple[float, Exception | None]:
        """Loads, and waits until the node is to leave: the seconds to drain, and what failed."""
        leaving = asyncio.ensure_future(until())
        try:
            if await self._is_ready(leaving):
                await ready()
            return await leaving, None
        except Exception as error:  # noqa: BLE001 raised again once it has left
            return 0.0, error
        finally:
            leaving.cancel()

    async def _is_ready(self, leaving: asyncio.Future[float]) -> bool:
        """Loads; False when the node is asked to leave before. Raises what loading does."""
        loading = asyncio.ensure_future(self._load())
        try:
            both: set[asyncio.Future[Any]] = {loading, leaving}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not loading.done():
                return False
            loading.result()
            return True
        finally:
            loading.cancel()

    async def _leave(
        self, health: Health, gossip: Gossip, node_watch: NodeWatch, drain_seconds: float
    ) -> None:
        _log.info("draining", drain_seconds=drain_seconds)
        self._doings.events.add(
            EventKind.DRAINING,
            f"{self._config.name} leaves the fleet; running answers get {drain_seconds:g} s.",
        )
        health.drain()
        await self._roles.drain(drain_seconds)
        await gossip.leave(LEAVE_SECONDS)
        self._watch.close()
        self._roles.session_watch.close()
        node_watch.close()
        health.close()
        await self._server.stop(STOP_SECONDS)
        _log.info("left")

    async def _follow_offers(self, card_maker: CardMaker, gossip: Gossip, health: Health) -> None:
        """Announces a new card whenever the roles offer something else than before."""
        changed = self._roles.offers_changed
        while True:
            await changed.wait()
            changed.clear()
            self._offer(card_maker, gossip, health)

    def _offer(self, card_maker: CardMaker, gossip: Gossip, health: Health) -> None:
        """Brings card and health to what is served now."""
        roles, card = self._roles, card_maker.current.card
        awaited = roles.awaited()
        health.await_roles(role.value for role in awaited)
        offers, archive, loading = roles.offers(), roles.archive_offer(), bool(awaited)
        # How much of an archive is free is no reason for a new card.
        known = (card.models, card.archive is not None, card.loading)
        if known != (offers, archive is not None, loading):
            free = memory_free_bytes()
            gossip.announce(card_maker.offers(offers, archive, free, loading=loading))

    async def _offer_ring(
        self, card_maker: CardMaker, gossip: Gossip, addresses: tuple[str, ...]
    ) -> None:
        """Puts a ring on the card when this host can form one; `links` may forbid the trial."""
        # MLX's ring speaks IPv4 only.
        usable = [address for address in addresses if not address.startswith("[")]
        if not wants_ring(self._config.links) or not usable:
            return
        await self._loaded.wait()
        await asyncio.sleep(PROBE_AFTER_SECONDS)
        reason = await self._ring_probe.run()
        self._roles.look_for_roads()
        if reason:
            _log.info("no_ring", reason=reason)
        else:
            gossip.announce(card_maker.offer_ring(usable[0]))

    def _card_maker(self, incarnation: int, addresses: tuple[str, ...]) -> CardMaker:
        facts = CardFacts(
            name=self._config.name,
            fleet_name=self._config.fleet_name,
            boot_id=secrets.token_hex(16),
            addresses=addresses,
            machine=machine(),
            memory_free_bytes=memory_free_bytes(),
            models=self._roles.offers(),
            archive=self._roles.archive_offer(),
            loading=bool(self._roles.awaited()),
            http_address=self._http_on_card(addresses),
        )
        return CardMaker(self._identity, self._state, facts, incarnation, time.time)

    def _membership(self, card_maker: CardMaker) -> Membership:
        period = self._config.period_seconds
        registry = Registry(card_maker.current, verifies, now=time.monotonic())
        settings = MembershipSettings(
            period_seconds=period,
            exchange_timeout_seconds=period / 2,
            probe_timeout_seconds=period / 2,
            dial_seconds=10 * period,
        )
        return Membership(registry, settings)

    def _gossip_parts(
        self, membership: Membership, known: KnownFleet, card_maker: CardMaker
    ) -> GossipParts:
        return GossipParts(
            membership=membership,
            client=ExchangeClient(
                self._config.fleet_name, self._peers, self._metrics, time.monotonic
            ),
            peers=self._peers,
            known=known,
            changes=FleetChanges(known, self._watch, self._on_event, self._doings.events),
            card_maker=card_maker,
            metrics=self._metrics,
            clocks=Clocks(time.monotonic, time.time),
            rng=Random(),
        )

    def _open_http(self, address: str, known: KnownFleet) -> None:
        """Opens HTTP, which was bound before the models were loaded, to all that it serves."""
        if self._http is None:
            return
        specs = parse_role_specs(self._config.serve)
        self._http.open(
            ServingNode(
                name=self._config.name,
                address=address,
                roles=self._roles,
                verifier_count=sum(spec.role is Role.VERIFIER for spec in specs),
                views=known.nodes,
            )
        )

    def _http_on_card(self, addresses: tuple[str, ...]) -> str:
        """Where others find HTTP; a node that only its own machine reaches tells that one."""
        bound = self._config.http_address
        if self._http is None or bound is None:
            return ""
        stays_here = all(is_loopback(split_address("bind", each)[0]) for each in addresses)
        return self._http.address if stays_here or not is_loopback(bound[0]) else ""

    def _discovery(self, hosts: tuple[str, ...], port: int) -> Discovery:
        announcement = Announcement(self._identity.node_id, self._config.fleet_name, hosts, port)
        discovery = Discovery(announcement)
        if self._config.mdns:
            discovery.open()
        return discovery

    def _register(
        self, servicer: CapabilityServicer, known: KnownFleet, *, is_local: bool
    ) -> Health:
        server = self._server
        capability_pb2_grpc.add_CapabilityServiceServicer_to_server(servicer, server)
        roads = road_builders(self._config.links, self._road_host(), self._ring_probe)
        services = (SERVICE_NAME, *self._roles.register(server, known, roads))
        health = Health((*services, *(role.value for role in self._roles.expected.roles)))
        health.await_roles(role.value for role in self._roles.awaited())
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        if is_local:
            enable_server_reflection((*services, HEALTH_SERVICE, REFLECTION_SERVICE), server)
        return health

    def _road_host(self) -> str:
        """The address at which another host's ring reaches this one, an IPv4 address if any."""
        hosts = addresses_of(self._config.bind_address[0])
        return next((host for host in hosts if ":" not in host), hosts[0])

    def _announce(self, address: str, http_address: str, port: int) -> None:
        """Leaves the addresses for local tools and for the next start."""
        self._state.remember_port(port)
        if self._http is not None:
            self._state.remember_http_port(self._http.port)
        self._state.announce(
            {
                "name": self._config.name,
                "node_id": self._identity.node_id,
                "address": address,
                "http_address": http_address,
                "metrics_address": http_address,
                "fleet_name": self._config.fleet_name,
                "pid": os.getpid(),
            }
        )


def _expected(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error meant for people when the group holds nothing else."""
    expected, rest = group.split(NodeError)
    if rest is not None or expected is None:
        return group
    first: BaseException = expected
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
