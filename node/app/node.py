"""A node from its first card to its last, and what it serves in between."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.views.advice import advise
from kakeya_fleet.node.app.agent_events import AgentEvents
from kakeya_fleet.node.app.announcements import Announcements
from kakeya_fleet.node.app.control_plane import ControlPlane
from kakeya_fleet.node.app.departure import Departure
from kakeya_fleet.node.app.ground import Ground
from kakeya_fleet.node.app.idle_models import IdleUnloading
from kakeya_fleet.node.app.model_loads import ModelLoads
from kakeya_fleet.node.app.model_pulls import ModelPulls
from kakeya_fleet.node.app.roles import Roles
from kakeya_fleet.node.config.role_spec import parse_role_spec
from kakeya_fleet.node.config.state_directory import RUNNING
from kakeya_fleet.node.errors import StateUnwritable
from kakeya_fleet.node.http.settings import ServingNode
from kakeya_fleet.node.links.roads.host_roads import RingProbe
from kakeya_fleet.node.membership.fleet_changes import EventSink
from kakeya_fleet.node.rpc.connection_guard import ConnectionGuard
from kakeya_fleet.node.rpc.grpc_settings import STOP_SECONDS
from kakeya_fleet.node.rpc.health import Health
from kakeya_fleet.node.trust.tls import client_tls
from kakeya_fleet.node.watch.activity import NodeActivity
from kakeya_fleet.node.watch.background import Work
from kakeya_fleet.node.watch.event_log import EventKind
from kakeya_fleet.node.watch.node_watch import NodeWatch

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Node:
    """All parts of one node, made and closed by `node.app.composition`. Serves once.

    Belongs to one event loop; `on_event` hears of the node's life.
    """

    ground: Ground
    control: ControlPlane
    roles: Roles
    health: Health
    announcements: Announcements
    watch: NodeWatch
    events: AgentEvents
    activity: NodeActivity
    ring_probe: RingProbe
    departure: Departure
    loads: ModelLoads
    pulls: ModelPulls
    unloading: IdleUnloading
    on_event: EventSink
    _loaded: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_loaded(self) -> bool:
        """Whether everything is loaded that it began with, so that there is something to drain."""
        return self._loaded.is_set()

    async def loaded(self) -> None:
        """Waits until everything is loaded that it began with."""
        await self._loaded.wait()

    @property
    def is_leaving(self) -> bool:
        """Whether it was asked to leave."""
        return self.departure.is_asked

    def leave(self, drain_seconds: float = 0.0) -> None:
        """Has it leave; running generations get `drain_seconds`, 0 for the configured."""
        self.departure.ask(drain_seconds)

    async def say_farewell(self) -> None:
        """Tells peers that the node leaves, for a process that ends without draining."""
        await self.control.gossip.leave()

    async def add_role(self, text: str) -> None:
        """Serves `ROLE=MODEL` too from the return on, while everything else goes on.

        When this raises the node serves what it served before. Raises what
        `node.app.roles.Roles.add` says.
        """
        await self.roles.add(parse_role_spec(text))
        await self.announcements.tell_peers()

    async def remove_role(
        self, role: Role, model_id: str = "", *, drain_seconds: float | None = None
    ) -> None:
        """Serves a model no more, or the archive, and has its memory back on return.

        Generations get `drain_seconds` to end, the configured ones if None; their clients go
        on elsewhere. Raises `ModelNotFound`.
        """
        configured = self.ground.config.drain_seconds
        seconds = configured if drain_seconds is None else drain_seconds
        await self.roles.remove(role, model_id, seconds)
        await self.announcements.tell_peers()

    async def serve(self) -> None:
        """Joins the fleet, loads, serves until it is asked to leave, and has left on return.

        Raises `NodeError`, and after it has left what loading raised.
        """
        control, config = self.control, self.ground.config
        await self.ground.server.start()
        self._open_http()
        self._announce()
        works = list(self._begin())
        if self.roles.expected.takes_time:
            self.on_event(self.events.joined(config.serve))
        control.look_for_fleet()
        drain_seconds, failures = await self._stay()
        if not failures:
            self.on_event(self.events.draining(drain_seconds))
        await self._leave(drain_seconds)
        for work in works:
            work.cancel()
        control.gossip.stop()
        for failure in failures:
            raise failure
        self.on_event({"event": "left", "node_id": self.events.node_id})

    def _begin(self) -> Iterator[asyncio.Future[None]]:
        """Begins what runs as long as the node does."""
        yield from self.control.begin()
        tasks = self.control.tasks
        yield tasks.keep("sweep of roles", self.roles.run)
        yield tasks.keep("unloading of idle models", self.unloading.run)
        yield tasks.keep("sampling of codecs", self.roles.sample_codecs)
        yield tasks.keep("announcements", self.announcements.follow)
        yield tasks.keep("samples", self.watch.run)
        yield tasks.keep("connection guard", ConnectionGuard(self.ground.metrics).run)
        ring = partial(self.announcements.offer_ring, self.ring_probe)
        yield tasks.once("trial of a ring", partial(self._after_loading, ring))
        yield tasks.once("advice", partial(self._after_loading, self._advise))

    async def _after_loading(self, begin: Callable[[], Work]) -> None:
        await self.loaded()
        await begin()

    async def _stay(self) -> tuple[float, list[Exception]]:
        """Loads, and waits until the node is to leave: the seconds to drain, and what failed."""
        leaving = asyncio.ensure_future(self.departure.asked())
        try:
            if await self._is_loaded_before(leaving):
                await self._ready()
            return await leaving, []
        except Exception as error:  # noqa: BLE001 raised again once it has left
            return 0.0, [error]
        finally:
            leaving.cancel()

    async def _is_loaded_before(self, leaving: asyncio.Future[float]) -> bool:
        """Loads; False when the node is asked to leave before. Raises what loading does."""
        loading = asyncio.ensure_future(self.roles.load())
        try:
            both: set[asyncio.Future[Any]] = {loading, leaving}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not loading.done():
                return False
            loading.result()
            return True
        finally:
            loading.cancel()

    async def _ready(self) -> None:
        """All is loaded: peers and people hear of it."""
        await self.announcements.tell_peers()
        self._loaded.set()
        mdns = self.control.discovery.fault or "on" if self.ground.config.mdns else "off"
        self.on_event(self.events.ready(self.roles.offers(), mdns, self.ground.state.path))
        self.watch.changed()

    async def _advise(self) -> None:
        """Tells the person at the terminal what the fleet lacks."""
        await self.control.gossip.settle(self.ground.config.period_seconds)
        others = [
            view.card
            for view in self.control.known.nodes()
            if view.liveness is Liveness.ALIVE and view.card.node_id != self.events.node_id
        ]
        own = self.control.card_maker.current.card
        self.on_event(self.events.advice(advise(own, others)))

    async def _leave(self, drain_seconds: float) -> None:
        _log.info("draining", drain_seconds=drain_seconds)
        self.activity.events.add(
            EventKind.DRAINING,
            f"{self.events.name} leaves the fleet; running answers get {drain_seconds:g} s.",
        )
        self.health.drain()
        self.loads.close()
        self.pulls.close()
        await self.roles.drain(drain_seconds)
        await self.control.gossip.leave()
        self.control.watch.close()
        self.roles.close_watches()
        self.watch.close()
        self.health.close()
        await self.ground.server.stop(STOP_SECONDS)
        _log.info("left")

    def _open_http(self) -> None:
        """Opens HTTP, which was bound before the models were loaded, to all that it serves."""
        trust = self.ground.trust
        if self.ground.http is not None:
            self.ground.http.open(
                ServingNode(
                    name=self.events.name,
                    address=self.ground.near_address,
                    roles=self.roles,
                    views=self.control.known.nodes,
                    tls=client_tls(trust) if trust is not None else None,
                )
            )

    def _announce(self) -> None:
        """Leaves the addresses for local tools and for the next start."""
        ground = self.ground
        ground.state.remember_port(ground.port)
        if ground.local_port:
            ground.state.remember_local_port(ground.local_port)
        if ground.applications_port:
            ground.state.remember_key_port("applications", ground.applications_port)
        if ground.http is not None:
            ground.state.remember_http_port(ground.http.port)
            if ground.http.https_port:
                ground.state.remember_key_port("https", ground.http.https_port)
        self._tell_tools()
        self.control.moves.on_move.append(self._moved)

    def _moved(self) -> None:
        """A full disk costs local tools the new address, and nobody else anything."""
        try:
            self._tell_tools()
        except StateUnwritable as error:
            _log.warning("agent_file_not_kept", cause=error.cause, mend=error.mend)

    def _tell_tools(self) -> None:
        """Says in agent.json where this node answers now."""
        ground, events = self.ground, self.events
        ground.state.announce(
            {
                "state": RUNNING,
                "name": events.name,
                "node_id": events.node_id,
                "address": events.address,
                "local_address": events.local_address,
                "applications_address": events.applications_address,
                "https_address": events.https_address,
                "http_address": events.http_address,
                "metrics_address": events.http_address,
                "fleet_name": events.fleet_name,
                "pid": os.getpid(),
                "log_file": str(ground.config.log_path or ""),
            }
        )
