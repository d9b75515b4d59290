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
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import grpc.aio

from engine.feature_encoder import ContextEncoder
from engine.model_folder import Progress
from engine.session_store import EndReason
from fleet.card import ArchiveOffer, ModelOffer, Role
from fleet.placement import MeasuredAcceptance
from kakeya.v1 import (
    capability_pb2,
    placement_pb2_grpc,
    proposer_pb2_grpc,
    runtime_pb2_grpc,
    tensor_pb2,
    tensor_pb2_grpc,
)
from node.archive.archive_role import ArchiveRole
from node.archive.archive_ways import ArchiveWays
from node.archive.drafter_folders import drafter_folder
from node.archive.kv_fetch_links import KvFetchLinks
from node.archive.session_restorers import Restorers, RestorerSettings
from node.drafting.proposer_service import ProposerServicer
from node.drafting.served_proposer import ServedProposer
from node.groups.group_settings import GroupSource
from node.links.encoder_fetch import EncoderShelf
from node.links.feature_inbox import FeatureInbox
from node.links.link_handler import LinkHandler
from node.links.link_table import LinkTable
from node.links.open_links import OpenLinks
from node.links.promotion import LinkMode
from node.links.roads.contract import RoadBuilder
from node.links.tensor_service import ConditionedProposer, TensorServicer
from node.metrics import NodeMetrics
from node.planning.acceptance_ledger import AcceptanceLedger
from node.planning.fleet_view import FleetView
from node.planning.placement_service import PlacementServicer
from node.planning.planner import OwnMeasurements, Planner
from node.proposer_role import load_served_proposer
from node.role_spec import (
    RoleSpec,
    archive_bytes,
    check_memory,
    parse_role_specs,
)
from node.sessions.breaker_book import BreakerBook
from node.sessions.generations import Generations
from node.sessions.pairing import Surroundings
from node.sessions.runtime_service import RuntimeServicer
from node.sessions.served_verifiers import ServedVerifiers, named_twice
from node.sessions.session_desk import SessionDesk

__all__ = ["Progress", "RoleLoad", "RoleSettings", "Roles"]

SERVICE_NAMES = (
    "kakeya.v1.RuntimeService",
    "kakeya.v1.ProposerService",
    "kakeya.v1.PlacementService",
    "kakeya.v1.TensorService",
)
# Idle sessions are looked for this often, or ten times in their time to live.
SWEEP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RoleSettings:
    """Limits of the roles."""

    kv_budget_bytes: int = 1 << 30
    """K/V bytes of all sessions; divided evenly among the node's verifiers."""
    session_ttl_seconds: float = 1800.0
    """Idle seconds after which a session is evicted."""
    draft_stream_limit: int = 256
    """Draft streams served at once."""
    draft_deadline_seconds: float = 0.25
    """Longest wait of a verifier for one draft."""
    dtype: str = "float32"
    """Number format of the computation of verifiers and proposers."""
    backend: str = "auto"
    """What computes: torch, mlx or auto."""
    links: str = "auto"
    """What carries tensors between nodes: grpc, local, ring or auto."""
    host: str = "127.0.0.1"
    """Where an archive listens, at a port of its own."""
    group: GroupSource | None = None
    """The hostfile of the ranks that serve the verifier; None for this process."""
    restorers: RestorerSettings = field(default_factory=RestorerSettings)
    """Limits of what restores the sessions' evicted positions."""


@dataclass(frozen=True, slots=True)
class RoleLoad:
    """The numbers of NodeLoad that the roles know; free memory is not theirs."""

    session_count: int
    generating_count: int
    draft_stream_count: int
    kv_bytes: int
    kv_budget_bytes: int
    archive_count: int = 0
    archive_bytes: int = 0
    archive_budget_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Services:
    """What `register` made: all that needs the fleet."""

    desk: SessionDesk
    generations: Generations
    proposer: ProposerServicer
    tensors: TensorServicer


class Roles:
    """All roles of one node. Belongs to one event loop."""

    def __init__(self, settings: RoleSettings, metrics: NodeMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._clock = time.monotonic
        self._proposers: dict[str, ServedProposer] = {}
        self._ledger = AcceptanceLedger()
        self._links = OpenLinks(metrics=metrics, mode=LinkMode(settings.links), clock=self._clock)
        self._encoders = EncoderShelf(self._links)
        self._fleet: FleetView | None = None
        self._breakers = BreakerBook(self._clock, self._boot_of)
        self._services: _Services | None = None
        self._archive: ArchiveRole | None = None
        self._drafters: dict[str, Path] = {}
        self._verifier_role = ServedVerifiers(settings, self._clock, self._session_ended)
        self._verifiers = self._verifier_role.by_model
        self._restorers: Restorers | None = None
        metrics.kv_budget_bytes.set(settings.kv_budget_bytes)

    async def load(self, specs: Sequence[str], *, progress: Progress | None = None) -> None:
        """Loads and measures what the specs name, one after the other.

        `progress` hears of (done bytes, total bytes) of a download. Raises
        `BadRoleSpec`, `engine.errors.ModelUnusable`, `BadParameters`.
        """
        parsed = parse_role_specs(specs)
        verifier_count = sum(spec.role is Role.VERIFIER for spec in parsed)
        self._verifier_role.check_count(verifier_count)
        for spec in parsed:
            if spec.role is Role.VERIFIER:
                await self._verifier_role.load(spec, verifier_count, progress)
            elif spec.role is Role.PROPOSER:
                await self._load_proposer(spec, progress)
            else:
                budget_bytes = archive_bytes(spec.model)
                check_memory(budget_bytes)
                self._archive = await ArchiveRole.start(
                    budget_bytes,
                    self._drafters,
                    self._metrics,
                    self._clock,
                    host=self._settings.host,
                )

    @property
    def offers_changed(self) -> asyncio.Event:
        """Set when `offers` differs from what it was; whoever takes notice clears it."""
        return self._verifier_role.changed

    def offers(self) -> tuple[ModelOffer, ...]:
        """What the card says of this node's models, verifiers first."""
        return (
            *self._verifier_role.offers,
            *(served.offer for served in self._proposers.values()),
        )

    def served(self) -> frozenset[Role]:
        """The roles that are served."""
        roles = frozenset(offer.role for offer in self.offers())
        return roles if self._archive is None else roles | {Role.ARCHIVE}

    def archive_offer(self) -> ArchiveOffer | None:
        """What the card says of this node's archive."""
        return self._archive.offer if self._archive is not None else None

    def load_numbers(self) -> RoleLoad:
        """For GetNode."""
        services = self._services
        return RoleLoad(
            session_count=self._verifier_role.session_count,
            generating_count=services.generations.running_count if services else 0,
            draft_stream_count=services.proposer.stream_count if services else 0,
            kv_bytes=self._verifier_role.kv_bytes,
            kv_budget_bytes=self._verifier_role.kv_budget_bytes,
            archive_count=self._archive.open_count if self._archive else 0,
            archive_bytes=self._archive.used_bytes if self._archive else 0,
            archive_budget_bytes=self._archive.budget_bytes if self._archive else 0,
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
        return self._services is not None and self._services.desk.draining

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
        around = Surroundings(
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
            reads=KvFetchLinks(
                self._links, fleet, self._metrics, self._settings.restorers.deadline
            ),
            metrics=self._metrics,
            settings=self._settings.restorers,
            drafters=self._drafters,
            clock=self._clock,
        )
        desk = SessionDesk(self._verifiers, around, self._restorers, self._metrics, self._clock)
        generations = Generations(
            desk,
            self._ledger,
            self._metrics,
            self._clock,
            draft_deadline_seconds=self._settings.draft_deadline_seconds,
        )
        links = LinkTable(self._clock, most_links=self._settings.draft_stream_limit)
        proposer = ProposerServicer(
            self._proposers,
            self._metrics,
            self._settings.draft_stream_limit,
            partial(_find_inbox, links),
        )
        tensors = TensorServicer(
            self._conditioned(), links, self._metrics, self._links, self._link_handlers()
        )
        runtime = RuntimeServicer(desk, generations, self._metrics, self._clock)
        runtime_pb2_grpc.add_RuntimeServiceServicer_to_server(runtime, server)
        proposer_pb2_grpc.add_ProposerServiceServicer_to_server(proposer, server)
        placement_pb2_grpc.add_PlacementServiceServicer_to_server(
            PlacementServicer(planner), server
        )
        tensor_pb2_grpc.add_TensorServiceServicer_to_server(tensors, server)
        self._services = _Services(desk, generations, proposer, tensors)
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
                self._services.desk.sweep()
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
        services.desk.drain()
        services.proposer.drain()
        services.tensors.drain()
        ended = asyncio.create_task(services.generations.all_ended())
        await asyncio.wait((ended,), timeout=seconds)
        ended.cancel()

    async def close(self) -> None:
        """Closes sessions and their draft sources, then the models' threads."""
        if self._services is not None:
            await self._services.desk.close()
        await self._encoders.close()
        await self._links.close()
        for proposer in self._proposers.values():
            await proposer.close()
        await self._verifier_role.close()
        if self._restorers is not None:
            await self._restorers.close()
        if self._archive is not None:
            await self._archive.close()

    async def _load_proposer(self, spec: RoleSpec, progress: Progress | None) -> None:
        served = await load_served_proposer(
            spec.model,
            self._clock,
            dtype=self._settings.dtype,
            backend=self._settings.backend,
            progress=progress,
        )
        model_id = served.offer.model_id
        if model_id in self._proposers:
            await served.close()
            raise named_twice(spec, model_id)
        self._proposers[model_id] = served
        self._drafters.update(await asyncio.to_thread(drafter_folder, spec.model))

    def _link_handlers(self) -> dict[tensor_pb2.LinkPurpose.ValueType, LinkHandler]:
        """What serves the links that are not for features, by purpose."""
        if self._archive is None:
            return {}
        return {tensor_pb2.LINK_PURPOSE_KEYS_VALUES: self._archive.reads}

    def _conditioned(self) -> dict[str, ConditionedProposer]:
        """The proposers that take context vectors, as links need them."""
        return {
            model_id: ConditionedProposer(
                encoder.weights, encoder.spec.hidden_size, served.offer.target_weights_digest
            )
            for model_id, served in self._proposers.items()
            if isinstance(encoder := served.proposer.encoder, ContextEncoder)
        }

    def _session_ended(self, session_id: str, reason: EndReason) -> None:
        if self._services is not None:
            self._services.desk.ended(session_id, reason)

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


def _find_inbox(links: LinkTable, link_id: str) -> FeatureInbox | None:
    link = links.find(link_id)
    return link.inbox if link is not None else None
