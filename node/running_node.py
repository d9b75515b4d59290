"""A running node: its parts wired, served, drained."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random

import grpc.aio
import structlog
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha.reflection import SERVICE_NAME as REFLECTION_SERVICE
from grpc_reflection.v1alpha.reflection import enable_server_reflection

from fleet.membership_settings import MembershipSettings
from fleet.membership_state import Membership
from fleet.registry import Registry
from kakeya.v1 import capability_pb2_grpc
from node.capability_service import SERVICE_NAME, CapabilityServicer
from node.config import Config, is_loopback, join_address
from node.errors import NodeError
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
from node.metrics import MetricsServer, NodeMetrics, serve_metrics
from node.node_report import NodeReport
from node.roles import Roles
from node.rpc.grpc_settings import LEAVE_SECONDS, STOP_SECONDS
from node.rpc.health import HEALTH_SERVICE, Health
from node.state_directory import StateDirectory

_log = structlog.get_logger(__name__)

# The trial of a ring takes a core for half a second: not from those who wait for the node.
PROBE_AFTER_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What the agent made and closes again; the roles are loaded, the server is bound."""

    config: Config
    state: StateDirectory
    identity: Identity
    metrics: NodeMetrics
    roles: Roles
    server: grpc.aio.Server


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
        self._watch = FleetWatch(parts.metrics)
        self._peers = Peers()
        self._memory = PeerMemory(parts.state)
        self._ring_probe = RingProbe()

    async def serve(
        self, incarnation: int, port: int, *, until: Callable[[], Awaitable[float]]
    ) -> None:
        """Serves until `until` gives the seconds to drain, and has left on return.

        One task group owns all tasks of the node. Raises `NodeError`.
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
        metrics_server = self._serve_metrics(stack)
        metrics_address = metrics_server.address if metrics_server else ""
        report = NodeReport(known, self._roles, metrics_address)
        discovery = self._discovery(hosts, port)
        stack.push_async_callback(self._peers.close)
        stack.push_async_callback(discovery.close)
        try:
            async with asyncio.TaskGroup() as tasks:
                gossip = Gossip(self._gossip_parts(membership, known, card_maker), tasks)
                servicer = CapabilityServicer(
                    gossip, known, self._watch, report, self._metrics, self._ask_to_leave
                )
                health = self._register(servicer, known, is_local=all(map(is_loopback, hosts)))
                await self._server.start()
                self._announce(addresses[0], metrics_address, port)
                background = [
                    tasks.create_task(gossip.run()),
                    tasks.create_task(self._roles.run()),
                    tasks.create_task(discovery.run(gossip.found)),
                    tasks.create_task(self._follow_offers(card_maker, gossip)),
                    tasks.create_task(self._offer_ring(card_maker, gossip, addresses)),
                    tasks.create_task(
                        self._memory.run(membership.registry, 2 * self._config.period_seconds)
                    ),
                ]
                self._on_event(self._ready(addresses[0], metrics_address, discovery))
                for address in dict.fromkeys((*self._config.peers, *self._memory.recall())):
                    gossip.found(address)
                await self._leave(health, gossip, await until())
                for task in background:
                    task.cancel()
                gossip.stop()
        except BaseExceptionGroup as group:
            raise _expected(group) from None

    async def _leave(self, health: Health, gossip: Gossip, drain_seconds: float) -> None:
        node_id = self._identity.node_id
        self._on_event({"event": "draining", "node_id": node_id, "drain_seconds": drain_seconds})
        _log.info("draining", drain_seconds=drain_seconds)
        health.drain()
        await self._roles.drain(drain_seconds)
        await gossip.leave(LEAVE_SECONDS)
        self._watch.close()
        health.close()
        await self._server.stop(STOP_SECONDS)
        _log.info("left")

    async def _follow_offers(self, card_maker: CardMaker, gossip: Gossip) -> None:
        """Announces a new card whenever the roles offer other models than before."""
        changed = self._roles.offers_changed
        while True:
            await changed.wait()
            changed.clear()
            if self._roles.offers() != card_maker.current.card.models:
                gossip.announce(card_maker.change(self._roles.offers(), memory_free_bytes()))

    async def _offer_ring(
        self, card_maker: CardMaker, gossip: Gossip, addresses: tuple[str, ...]
    ) -> None:
        """Puts a ring on the card when this host can form one; `links` may forbid the trial."""
        # MLX's ring speaks IPv4 only.
        usable = [address for address in addresses if not address.startswith("[")]
        if not wants_ring(self._config.links) or not usable:
            return
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
            changes=FleetChanges(known, self._watch, self._on_event),
            card_maker=card_maker,
            metrics=self._metrics,
            clocks=Clocks(time.monotonic, time.time),
            rng=Random(),
        )

    def _serve_metrics(self, stack: AsyncExitStack) -> MetricsServer | None:
        address = self._config.metrics_address
        if address is None:
            return None
        server = serve_metrics(self._metrics, *address)
        stack.callback(server.close)
        return server

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
        health = Health((*services, *(role.value for role in self._roles.served())))
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        if is_local:
            enable_server_reflection((*services, HEALTH_SERVICE, REFLECTION_SERVICE), server)
        return health

    def _road_host(self) -> str:
        """The address at which another host's ring reaches this one, an IPv4 address if any."""
        hosts = addresses_of(self._config.bind_address[0])
        return next((host for host in hosts if ":" not in host), hosts[0])

    def _announce(self, address: str, metrics_address: str, port: int) -> None:
        """Leaves the address for local tools and for the next start."""
        self._state.remember_port(port)
        self._state.announce(
            {
                "name": self._config.name,
                "node_id": self._identity.node_id,
                "address": address,
                "metrics_address": metrics_address,
                "fleet_name": self._config.fleet_name,
                "pid": os.getpid(),
            }
        )

    def _ready(
        self, address: str, metrics_address: str, discovery: Discovery
    ) -> Mapping[str, object]:
        mdns = "off" if not self._config.mdns else discovery.fault or "on"
        return {
            "event": "ready",
            "node_id": self._identity.node_id,
            "name": self._config.name,
            "address": address,
            "metrics_address": metrics_address,
            "fleet_name": self._config.fleet_name,
            "models": [
                {"model_id": offer.model_id, "role": offer.role.value}
                for offer in self._roles.offers()
            ],
            "mdns": mdns,
            "pid": os.getpid(),
            "state": str(self._state.path),
        }


def _expected(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error meant for people when the group holds nothing else."""
    expected, rest = group.split(NodeError)
    if rest is not None or expected is None:
        return group
    first: BaseException = expected
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
