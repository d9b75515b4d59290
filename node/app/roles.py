"""The roles of this node: what it serves, and what serving costs.

Composition, in this order:
    roles = Roles(settings, metrics)
    await roles.load(["verifier=tiny", "proposer=ngram"])
    offers = roles.offers()                    # for the card
    server = grpc.aio.server(interceptors=[ErrorInterceptor(metrics)], ...)
    names = roles.register(server, fleet)      # before server.start()
    group.create_task(roles.run())             # evicts idle sessions, until cancelled
    await roles.drain(5.0)                     # before the server stops
    await roles.close()                        # after the server stopped
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import grpc.aio

from kakeya.v1 import (
    capability_pb2,
    placement_pb2_grpc,
    proposer_pb2_grpc,
    runtime_pb2_grpc,
    tensor_pb2_grpc,
)
from kakeya_fleet.engine.errors import EngineError
from kakeya_fleet.engine.models.model_folder import model_id_of
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from kakeya_fleet.fleet.cards.card import ArchiveOffer, ModelOffer, Role
from kakeya_fleet.fleet.errors import FleetError
from kakeya_fleet.fleet.placement.placement import MeasuredAcceptance
from kakeya_fleet.node.app.expected_roles import ExpectedRoles
from kakeya_fleet.node.app.role_settings import RoleLoad, RoleSettings
from kakeya_fleet.node.app.served_proposers import ServedProposers
from kakeya_fleet.node.config.role_spec import RoleSpec, archive_bytes
from kakeya_fleet.node.errors import NodeError
from kakeya_fleet.node.links.features.encoder_fetch import EncoderShelf
from kakeya_fleet.node.links.features.feature_links import FeatureLinks
from kakeya_fleet.node.links.protocol.contract import LinkMode, LinkPurpose
from kakeya_fleet.node.links.roads.contract import RoadBuilder
from kakeya_fleet.node.links.transport.link_table import LinkTable, ServingSettings
from kakeya_fleet.node.links.transport.open_links import OpenLinks
from kakeya_fleet.node.links.transport.tensor_service import TensorServicer
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.planning.acceptance_ledger import AcceptanceLedger
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.planning.placement_service import PlacementServicer
from kakeya_fleet.node.planning.planner import OwnMeasurements, Planner
from kakeya_fleet.node.roles.archive.archive_role import ArchiveRole
from kakeya_fleet.node.roles.archive.archive_ways import ArchiveWays
from kakeya_fleet.node.roles.archive.session_restorers import Restorers
from kakeya_fleet.node.roles.proposer.proposer_service import ProposerServicer
from kakeya_fleet.node.roles.verifier.all_observers import AllObservers
from kakeya_fleet.node.roles.verifier.breaker_book import BreakerBook
from kakeya_fleet.node.roles.verifier.draft_connections import PairingContext
from kakeya_fleet.node.roles.verifier.generations import Generations
from kakeya_fleet.node.roles.verifier.observer import SessionObserver
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.runtime_service import RuntimeServicer
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.roles.verifier.served_verifiers import ServedVerifiers
from kakeya_fleet.node.roles.verifier.session_announcer import SessionAnnouncer
from kakeya_fleet.node.roles.verifier.session_events import SessionEvents
from kakeya_fleet.node.roles.verifier.session_lifecycle import SessionLifecycle, new_session_id
from kakeya_fleet.node.roles.verifier.session_metrics import SessionMetrics
from kakeya_fleet.node.roles.verifier.session_totals import SessionTotals
from kakeya_fleet.node.roles.verifier.session_watch import SessionWatch
from kakeya_fleet.node.roles.verifier.truncation_watch import TruncationWatch
from kakeya_fleet.node.roles.verifier.verifier_routing import VerifierRouting
from kakeya_fleet.node.watch.doings import Doings
from kakeya_fleet.node.watch.model_transfer import ModelTransfer
from kakeya_fleet.node.watch.node_sample import Totals

__all__ = ["RoleLoad", "RoleSettings", "Roles"]

SERVICE_NAMES = (
    "kakeya.v1.RuntimeService",
    "kakeya.v1.ProposerService",
    "kakeya.v1.PlacementService",
    "kakeya.v1.TensorService",
)
# Idle sessions are looked for this often, or ten times in their time to live.
SWEEP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Services:
    """What `register` made: all that needs the fleet."""

    lifecycle: SessionLifecycle
    generations: Generations
    proposer: ProposerServicer
    tensors: TensorServicer


class Roles:
    """All roles of one node. Belongs to one event loop."""

    def __init__(
        self,
        settings: RoleSettings,
        metrics: NodeMetrics,
        observers: Sequence[SessionObserver] = (),
        doings: Doings | None = None,
    ) -> None:
        """`observers` hear of every session; events and transfers are noted in `doings`."""
        self._settings = settings
        self._metrics = metrics
        self._clock = time.monotonic
        self._doings = doings if doings is not None else Doings()
        self._events = SessionEvents(self._doings.events, self._name_of)
        self._totals = SessionTotals()
        self.session_watch = SessionWatch(self._events, metrics, self._clock)
        own = (
            self._totals,
            self.session_watch,
            SessionMetrics(metrics, self._clock),
            TruncationWatch(self._events, metrics),
        )
        self._announcer = SessionAnnouncer(AllObservers((*own, *observers)), self._events, metrics)
        self.sessions: SessionRegistry[OpenSession] = SessionRegistry(
            clock=self._clock,
            ids=new_session_id,
            ttl_seconds=settings.session_ttl_seconds,
            on_end=self._announcer.on_end,
        )
        self._proposer_role = ServedProposers(settings, self._clock)
        self._proposers = self._proposer_role.by_model
        self._ledger = AcceptanceLedger()
        self._links = OpenLinks(
            metrics=metrics,
            mode=LinkMode(settings.links),
            settings=settings.link_settings,
            clock=self._clock,
            on_change=self._events.link_changed,
        )
        self._encoders = EncoderShelf(self._links)
        self._fleet: FleetView | None = None
        self._breakers = BreakerBook(self._clock, self._boot_of, self._events.breaker_changed)
        self._services: _Services | None = None
        self._archive: ArchiveRole | None = None
        self.expected = ExpectedRoles(backend=settings.backend, is_group=settings.group is not None)
        self._verifier_role = ServedVerifiers(settings, self.sessions, self._clock, self._events)
        self._verifiers = self._verifier_role.by_model
        self._restorers: Restorers | None = None
        metrics.kv_budget_bytes.set(settings.kv_budget_bytes)
        metrics.kv_bytes.set_function(lambda: self._verifier_role.kv_bytes)

    def expect(self, specs: Sequence[str]) -> None:
        """Says what `load` will load, so that the node can serve before it is there.

        Raises `BadRoleSpec`.
        """
        self.expected.say(specs)
        self._verifier_role.check_count(self.expected.verifier_count)

    async def load(self, specs: Sequence[str]) -> None:
        """Loads and measures what the specs name, one after the other.

        Raises `BadRoleSpec`, `engine.errors.ModelUnusable`, `BadParameters`.
        """
        self.expect(specs)
        count = self.expected.verifier_count
        for spec in self.expected.specs:
            if spec.role is Role.ARCHIVE:
                await self._start_archive(archive_bytes(spec.model))
                self._arrived(spec)
                continue
            transfer = ModelTransfer(model_id_of(spec.model), self._doings)
            try:
                if spec.role is Role.VERIFIER:
                    await self._verifier_role.load(spec, count, transfer)
                else:
                    await self._proposer_role.load(spec, transfer)
            except (EngineError, FleetError, NodeError) as error:
                transfer.failed(str(error))
                raise
            transfer.loaded()
            self._arrived(spec)

    async def _start_archive(self, budget_bytes: int) -> None:
        self._archive = await ArchiveRole.start(
            budget_bytes,
            self._proposer_role.folders,
            self._metrics,
            self._clock,
            host=self._settings.host,
        )

    def _arrived(self, spec: RoleSpec) -> None:
        self.expected.arrived(spec)
        self.offers_changed.set()

    def awaited(self) -> frozenset[Role]:
        """The roles of which something is not loaded yet."""
        return self.expected.awaited

    @property
    def verifiers(self) -> Mapping[str, ServedVerifier]:
        """Those that are served now, by model; always the same mapping."""
        return self._verifiers

    @property
    def offers_changed(self) -> asyncio.Event:
        """Set when `offers` differs from what it was; whoever takes notice clears it."""
        return self._verifier_role.changed

    def offers(self) -> tuple[ModelOffer, ...]:
        """What the card says of this node's models, verifiers first."""
        return (
            *self._verifier_role.offers,
            *self._proposer_role.offers,
        )

    def served(self) -> frozenset[Role]:
        """The roles that are served now."""
        roles = frozenset(offer.role for offer in self.offers())
        return roles if self._archive is None else roles | {Role.ARCHIVE}

    def archive_offer(self) -> ArchiveOffer | None:
        """What the card says of this node's archive."""
        return self._archive.offer if self._archive is not None else None

    def load_numbers(self) -> RoleLoad:
        """For GetNode."""
        services = self._services
        return RoleLoad(
            session_count=len(self.sessions),
            generating_count=services.generations.running_count if services else 0,
            draft_stream_count=services.proposer.stream_count if services else 0,
            kv_bytes=self._verifier_role.kv_bytes,
            kv_budget_bytes=self._verifier_role.kv_budget_bytes,
            archive_count=self._archive.open_count if self._archive else 0,
            archive_bytes=self._archive.used_bytes if self._archive else 0,
            archive_budget_bytes=self._archive.budget_bytes if self._archive else 0,
        )

    def totals(self) -> Totals:
        """What the roles did since the node's start."""
        totals, services = self._totals, self._services
        drafts = services.proposer.draft_count if services else 0
        return Totals(
            generated_token_count=totals.generated_token_count,
            prefilled_token_count=totals.prefilled_token_count,
            drafted_count=totals.drafted_count,
            accepted_count=totals.accepted_count,
            verify_forward_count=totals.verify_forward_count,
            draft_count=drafts + totals.drafted_here_count,
            link_bytes=self._links.byte_count,
        )

    def acceptances(self) -> tuple[tuple[tuple[str, str], MeasuredAcceptance], ...]:
        """((verifier model, proposer model), what was measured here), for GetNode."""
        return tuple(self._ledger.rates(self._clock()).items())

    def tensor_links(self) -> list[capability_pb2.TensorLinkStatus]:
        """The tensor links that are open here, either way, for GetNode."""
        return self._links.statuses()

    def look_for_roads(self) -> None:
        """Asks for roads again, which this host may have now: for the links that are open."""
        self._links.look_again()

    def open_breakers(self) -> frozenset[str]:
        """Ids of the nodes whose proposers are shut out here."""
        return self._breakers.shut_out()

    @property
    def draining(self) -> bool:
        """Whether new sessions, generations and drafts are refused."""
        return self._services is not None and self._services.lifecycle.draining

    def register(
        self, server: grpc.aio.Server, fleet: FleetView, roads: Sequence[RoadBuilder] = ()
    ) -> tuple[str, ...]:
        """Adds the four services to the server, and returns their full names.

        The server needs `node.rpc.error_interceptor.ErrorInterceptor`. `roads` are
        what tensor links may have beside gRPC, best first.
        """
        self._fleet = fleet
        self._links.add_roads(roads)
        planner = Planner(fleet, self._own_measurements)
        context = PairingContext(
            fleet=fleet,
            planner=planner,
            proposers=self._proposers,
            breakers=self._breakers,
            observe_round_trip=self._metrics.draft_round_trip_seconds.observe,
            encoders=self._encoders,
            links=self._links,
        )
        self._restorers = Restorers(
            fleet=fleet,
            ways=ArchiveWays(self._metrics, deadline_seconds=self._settings.restorers.deadline),
            metrics=self._metrics,
            settings=self._settings.restorers,
            drafters=self._proposer_role.folders,
            clock=self._clock,
        )
        lifecycle = SessionLifecycle(
            self.sessions,
            VerifierRouting(self._verifiers, fleet, self.expected.is_loading),
            context,
            self._restorers,
            self._announcer,
            self._clock,
        )
        generations = Generations(
            lifecycle,
            self._ledger,
            self._clock,
            draft_deadline_seconds=self._settings.draft_deadline_seconds,
        )
        table = LinkTable(
            self._clock, ServingSettings(most_links=self._settings.draft_stream_limit)
        )
        features = FeatureLinks(self._proposer_role.conditioned, table)
        proposer = ProposerServicer(
            self._proposers,
            self._metrics,
            self._settings.draft_stream_limit,
            features.inbox,
        )
        handlers = {LinkPurpose.FEATURES: features}
        tensors = TensorServicer(table, self._metrics, self._links, handlers)
        runtime = RuntimeServicer(lifecycle, generations, self.session_watch, self._clock)
        runtime_pb2_grpc.add_RuntimeServiceServicer_to_server(runtime, server)
        proposer_pb2_grpc.add_ProposerServiceServicer_to_server(proposer, server)
        placement_pb2_grpc.add_PlacementServiceServicer_to_server(
            PlacementServicer(planner), server
        )
        tensor_pb2_grpc.add_TensorServiceServicer_to_server(tensors, server)
        self._services = _Services(lifecycle, generations, proposer, tensors)
        return SERVICE_NAMES

    async def run(self) -> None:
        """Evicts idle sessions until cancelled. Owned by the agent's TaskGroup."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sweep())
            tasks.create_task(self._verifier_role.run())

    async def _sweep(self) -> None:
        period = min(SWEEP_SECONDS, self._settings.session_ttl_seconds / 10)
        while True:
            await asyncio.sleep(period)
            if self._services is not None:
                self._services.lifecycle.sweep()
                self._services.tensors.sweep()
            if self._archive is not None:
                self._archive.sweep()

    async def drain(self, seconds: float) -> None:
        """Refuses new work; ends draft streams; generations end with DRAINING.

        Returns when none runs any more, after `seconds` at the latest.
        """
        services = self._services
        if self._archive is not None:
            self._archive.drain()
        if services is None:
            return
        services.lifecycle.drain()
        services.proposer.drain()
        services.tensors.drain()
        ended = asyncio.create_task(services.generations.all_ended())
        await asyncio.wait((ended,), timeout=seconds)
        ended.cancel()

    async def close(self) -> None:
        """Closes sessions and their draft sources, then the models' threads."""
        if self._services is not None:
            await self._services.lifecycle.close()
        await self._encoders.close()
        await self._links.close()
        await self._proposer_role.close()
        await self._verifier_role.close()
        if self._restorers is not None:
            await self._restorers.close()
        if self._archive is not None:
            await self._archive.close()

    def _name_of(self, node_id: str) -> str:
        """A node's name for people."""
        if self._fleet is not None:
            for view in self._fleet.nodes():
                if view.card.node_id == node_id:
                    return view.card.name
        return node_id[:12]

    def _boot_of(self, node_id: str) -> str:
        return self._fleet.boot_id(node_id) if self._fleet is not None else ""

    def archive_waits(self) -> dict[str, float]:
        """What the sessions' layers wait for an archive's answer, by its node, in seconds."""
        restorers = self._restorers
        return restorers.ways.waits.by_node(restorers.fleet) if restorers is not None else {}

    def _own_measurements(self) -> OwnMeasurements:
        archive = self.archive_offer()
        return OwnMeasurements(
            acceptances=self._ledger.rates(self._clock()),
            open_breakers=self.open_breakers(),
            free_kv_bytes=self._verifier_role.free_kv_bytes,
            free_archive_bytes=archive.free_bytes if archive is not None else None,
            archive_waits=self.archive_waits(),
        )
