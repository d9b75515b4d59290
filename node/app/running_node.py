"""A running node: its parts wired, served, drained."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from functools import partial
from random import Random
from typing import Any

import structlog
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION_SERVICE
from grpc_reflection.v1alpha.reflection import enable_server_reflection

from kakeya.v1 import capability_pb2_grpc
from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.views.advice import advise
from kakeya_fleet.node.app.capability_service import SERVICE_NAME, CapabilityServicer
from kakeya_fleet.node.app.wiring import NodeParts, Wired, wire
from kakeya_fleet.node.config.config import answerable, is_loopback
from kakeya_fleet.node.config.machine import memory_free_bytes
from kakeya_fleet.node.config.role_spec import parse_role_specs
from kakeya_fleet.node.config.state_directory import RUNNING
from kakeya_fleet.node.errors import NodeError
from kakeya_fleet.node.http.server import ServingNode
from kakeya_fleet.node.links.roads.host_roads import RingProbe, road_builders, wants_ring
from kakeya_fleet.node.membership.card_maker import CardMaker
from kakeya_fleet.node.membership.exchange_client import ExchangeClient
from kakeya_fleet.node.membership.fleet_changes import EventSink, FleetChanges
from kakeya_fleet.node.membership.fleet_watch import FleetWatch
from kakeya_fleet.node.membership.gossip import Clocks, Gossip, GossipParts
from kakeya_fleet.node.membership.known_fleet import KnownFleet
from kakeya_fleet.node.membership.network import addresses_of
from kakeya_fleet.node.membership.peer_memory import PeerMemory
from kakeya_fleet.node.membership.peers import Peers
from kakeya_fleet.node.membership.seed_watch import SeedWatch
from kakeya_fleet.node.rpc.grpc_settings import LEAVE_SECONDS, STOP_SECONDS
from kakeya_fleet.node.rpc.health import HEALTH_SERVICE, Health
from kakeya_fleet.node.watch.event_log import EventKind
from kakeya_fleet.node.watch.node_watch import NodeWatch

_log = structlog.get_logger(__name__)

# The trial of a ring takes a core for half a second: not from those who wait for the node.
PROBE_AFTER_SECONDS = 2.0


class RunningNode:
    """A node from its first card to its last. `leave` is what the Leave call calls."""

    def __init__(
        self, parts: NodeParts, on_event: EventSink, leave: Callable[[float], None]
    ) -> None:
        self._parts = parts
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
        self._gossip: Gossip | None = None
        self._loaded = asyncio.Event()
        self._watch = FleetWatch(parts.metrics)
        self._peers = Peers()
        self._seeds = SeedWatch(
            self._config.peers,
            self._config.fleet_name,
            on_event,
            parts.doings.events,
            time.monotonic,
        )
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
        wired = wire(self._parts, self._peers, self._seeds, incarnation, port)
        stack.push_async_callback(self._peers.close)
        stack.push_async_callback(wired.discovery.close)
        failure: Exception | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                gossip = Gossip(self._gossip_parts(wired), tasks)
                self._gossip = gossip
                health = await self._open(wired, gossip)
                background = [
                    tasks.create_task(work) for work in self._works(wired, gossip, health)
                ]
                if self._roles.expected.takes_time:
                    self._on_event(wired.events.joined(self._config.serve))
                recalled = answerable(wired.hosts, self._memory.recall())
                for address in dict.fromkeys((*self._config.peers, *recalled)):
                    gossip.found(address)
                drain_seconds, failure = await self._stay(
                    until, partial(self._ready, wired, gossip, health)
                )
                if failure is None:
                    self._on_event(wired.events.draining(drain_seconds))
                await self._leave(health, gossip, wired.node_watch, drain_seconds)
                for task in background:
                    task.cancel()
                gossip.stop()
        except BaseExceptionGroup as group:
            raise _expected(group) from None
        if failure is not None:
            raise failure

    async def _open(self, wired: Wired, gossip: Gossip) -> Health:
        """Answers from now on, over gRPC and HTTP, and says so to local tools."""
        servicer = CapabilityServicer(
            gossip,
            wired.known,
            self._watch,
            wired.report,
            wired.node_watch,
            self._metrics,
            self._ask_to_leave,
        )
        is_local = all(map(is_loopback, wired.hosts))
        health = self._register(servicer, wired.known, is_local=is_local)
        await self._server.start()
        self._open_http(wired.addresses[0], wired.known)
        self._announce(wired.addresses[0], wired.events.http_address, wired.port)
        return health

    def _works(
        self, wired: Wired, gossip: Gossip, health: Health
    ) -> Iterator[Coroutine[None, None, None]]:
        """What runs as long as the node does."""
        yield gossip.run()
        yield self._roles.run()
        yield wired.discovery.run(gossip.found)
        yield self._follow_offers(wired.card_maker, gossip, health)
        yield wired.node_watch.run()
        yield self._offer_ring(wired.card_maker, gossip, wired.addresses)
        yield self._memory.run(wired.membership.registry, 2 * self._config.period_seconds)
        yield self._advise(wired, gossip)

    async def _ready(self, wired: Wired, gossip: Gossip, health: Health) -> None:
        """All is loaded: peers and people hear of it."""
        self._offer(wired.card_maker, gossip, health)
        await gossip.spread(self._config.period_seconds)
        self._loaded.set()
        mdns = wired.discovery.fault or "on" if self._config.mdns else "off"
        self._on_event(wired.events.ready(self._roles.offers(), mdns, self._state.path))
        wired.node_watch.changed()

    async def _advise(self, wired: Wired, gossip: Gossip) -> None:
        """Tells the person at the terminal what the fleet lacks, once all is loaded."""
        await self._loaded.wait()
        await gossip.settle(self._config.period_seconds)
        others = [
            view.card
            for view in wired.known.nodes()
            if view.liveness is Liveness.ALIVE and view.card.node_id != self._identity.node_id
        ]
        self._on_event(wired.events.advice(advise(wired.card_maker.current.card, others)))

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
        loading = asyncio.ensure_future(self._parts.load())
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

    def _gossip_parts(self, wired: Wired) -> GossipParts:
        return GossipParts(
            membership=wired.membership,
            client=ExchangeClient(
                self._config.fleet_name, self._peers, self._metrics, time.monotonic
            ),
            peers=self._peers,
            known=wired.known,
            changes=FleetChanges(wired.known, self._watch, self._on_event, self._doings.events),
            seeds=self._seeds,
            card_maker=wired.card_maker,
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
                "state": RUNNING,
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
