"""All roles of this node: what it serves now, and how that changes while it runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import grpc.aio
import structlog

from kakeya.v1 import tensor_pb2_grpc
from kakeya_fleet.engine.proposers.loading import LOADERS, split_target
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from kakeya_fleet.fleet.cards.card import ArchiveOffer, ModelOffer, Role
from kakeya_fleet.fleet.errors import ModelNotFound
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.config.role_spec import RoleSpec
from kakeya_fleet.node.links.protocol.contract import LinkMode, LinkPurpose
from kakeya_fleet.node.links.roads.contract import RoadBuilder
from kakeya_fleet.node.links.transport.link_table import LinkTable
from kakeya_fleet.node.links.transport.open_links import OpenLinks
from kakeya_fleet.node.links.transport.tensor_service import TensorServicer
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.roles.archive.archive_role import ArchiveRole
from kakeya_fleet.node.roles.context import RoleContext
from kakeya_fleet.node.roles.contract import ModelUse, NodeRole
from kakeya_fleet.node.roles.cycles import free_ended, set_loaded_aside
from kakeya_fleet.node.roles.expected_roles import ExpectedRoles
from kakeya_fleet.node.roles.proposer.proposer_role import ProposerRole
from kakeya_fleet.node.roles.settings import RoleSettings
from kakeya_fleet.node.roles.verifier.observer import SessionObserver
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.roles.verifier.session_events import SessionEvents
from kakeya_fleet.node.roles.verifier.verifier_role import VerifierRole
from kakeya_fleet.node.rpc.refusals import Draining
from kakeya_fleet.node.watch.activity import NodeActivity
from kakeya_fleet.node.watch.background import FaultBook
from kakeya_fleet.node.watch.event_log import EventKind
from kakeya_fleet.node.watch.node_sample import Totals

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RoleLoad:
    """The numbers of NodeLoad that the roles know; free memory is not theirs."""

    session_count: int
    generating_count: int
    draft_stream_count: int
    kv_bytes: int
    kv_budget_bytes: int
    archive_count: int
    archive_bytes: int
    archive_budget_bytes: int


@dataclass(frozen=True, slots=True)
class Served:
    """A model that is served, and what it was told by."""

    model_id: str
    spec: RoleSpec


def _ignore() -> None:
    """Nobody waits for a turn."""


class Roles:
    """Belongs to one event loop. `changed` is set when what is served differs from before.

    Whoever takes notice clears it. `has_served` is set from the first role on. Models are opened
    and removed one after the other: what loads would disturb what is measured.
    """

    def __init__(
        self,
        expected: ExpectedRoles,
        settings: RoleSettings,
        fleet: FleetView,
        metrics: NodeMetrics,
        *,
        roads: Sequence[RoadBuilder] = (),
        observers: Sequence[SessionObserver] = (),
        activity: NodeActivity | None = None,
        allowances: Allowances | None = None,
    ) -> None:
        """`expected` are to be loaded; tensor links may have `roads` beside gRPC, best first.

        `observers` hear of every session; events and transfers are noted in `activity`; callers
        share what `allowances` has, by default what the defaults of the limits allow.
        """
        activity = activity if activity is not None else NodeActivity()
        allowances = allowances or Allowances(Limits(), metrics)
        clock = time.monotonic
        events = SessionEvents(activity.events, partial(_name_of, fleet))
        self.expected = expected
        self.changed = asyncio.Event()
        self.has_served = asyncio.Event()
        self.links = OpenLinks(
            roads,
            metrics,
            mode=LinkMode(settings.links),
            settings=settings.link_settings,
            clock=clock,
            on_change=events.link_changed,
        )
        table = LinkTable(clock, allowances)
        context = RoleContext(
            settings,
            allowances,
            expected,
            fleet,
            self.links,
            metrics,
            activity,
            self.changed,
            clock,
            FaultBook(activity.events, metrics),
        )
        self.proposer = ProposerRole(context, table)
        self.archive = ArchiveRole(context, self.proposer.folders)
        self.verifier = VerifierRole(context, self.proposer, self.archive, events, observers)
        # In the order in which they are drained: generations are waited for last.
        self._roles: Mapping[Role, NodeRole] = {
            Role.ARCHIVE: self.archive,
            Role.PROPOSER: self.proposer,
            Role.VERIFIER: self.verifier,
        }
        self._tensors = TensorServicer(
            table, metrics, self.links, {LinkPurpose.FEATURES: self.proposer.features}
        )
        self._sweep_seconds = min(settings.sweep_seconds, settings.session_ttl_seconds / 10)
        self._events = activity.events
        self._weights = settings.weights
        self._served: dict[tuple[Role, str], RoleSpec] = {}
        self._one_at_a_time = asyncio.Lock()
        self._opening: set[asyncio.Task[str]] = set()
        self._removing: set[asyncio.Task[None]] = set()
        self._draining = False
        self._begun = not expected.specs

    def register(self, server: grpc.aio.Server) -> tuple[str, ...]:
        """Adds the services of all roles to the server, and returns their full names.

        The server needs `node.rpc.error_interceptor.ErrorInterceptor`.
        """
        tensor_pb2_grpc.add_TensorServiceServicer_to_server(self._tensors, server)
        services = [service for role in self._roles.values() for service in role.services]
        for service in services:
            service.add(server)
        return ("kakeya.v1.TensorService", *(service.name for service in services))

    async def load(self) -> None:
        """Opens what the node begins with, in its order. Raises as `add`."""
        for spec in self.expected.specs:
            await self._open(spec)
        self._begun = True
        self.changed.set()

    async def add(self, spec: RoleSpec, on_turn: Callable[[], None] = _ignore) -> str:
        """Serves one more, while everything else goes on; its model id, empty for memory.

        `on_turn` is called when nothing else is opened or removed any more, and this begins.
        When this raises, or is cancelled, the node serves what it served before. Raises
        `BadRoleSpec`, `Draining`, a `ModelUnusable`, `BadParameters`, `PortInUse`; for a
        group also `BadGroup`, `GroupNotStarted` and `fleet.hostfiles.hostfile.HostfileError`.
        """
        if self._draining:
            raise _leaving()
        self.expected.add(spec)
        self.changed.set()
        opening = asyncio.create_task(self._open(spec, on_turn), name="role-open")
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        try:
            return await opening
        except BaseException:
            self.expected.forget(spec)
            self.changed.set()
            caller = asyncio.current_task()
            if opening.cancelled() and caller is not None and not caller.cancelling():
                raise _leaving() from None
            raise

    async def remove(self, role: Role, model_id: str, seconds: float, because: str = "") -> None:
        """Serves a model, or with an empty id the archive, no more, and frees its memory.

        `because` is why, in words for people, where nobody asked for it. Nothing new begins with
        it from now on, and its generations get `seconds` to end; what is lost with it its clients
        have elsewhere, from their tokens. Goes on when the caller is cancelled. Raises
        `ModelNotFound`.
        """
        removing = asyncio.create_task(
            self._remove(role, model_id, seconds, because), name="role-remove"
        )
        self._removing.add(removing)
        removing.add_done_callback(self._removing.discard)
        await asyncio.shield(removing)

    async def run(self) -> None:
        """Ends what is idle for too long, until cancelled. Owned by the node's TaskGroup."""
        while True:
            await asyncio.sleep(self._sweep_seconds)
            self._tensors.sweep()
            for role in self._roles.values():
                role.sweep()
            if not self.sessions and not self.proposer.stream_count:
                free_ended()

    async def sample_codecs(self) -> None:
        """Measures codecs when all sessions are idle, until cancelled. Owned as `run`."""
        await self.verifier.sampling.run()

    async def drain(self, seconds: float) -> None:
        """Refuses new work; ends draft streams and links; generations end with DRAINING.

        Returns when none runs any more, after `seconds` at the latest.
        """
        self._draining = True
        for opening in self._opening:
            opening.cancel()
        self._tensors.drain()
        for role in self._roles.values():
            await role.drain(seconds)

    async def close(self) -> None:
        """Closes sessions and their draft sources, then the models' threads."""
        under_way = self._opening | self._removing
        if under_way:
            # A load that has begun in a thread cannot be taken back.
            await asyncio.wait(under_way)
        await self.verifier.close()
        await self.links.close()
        await self.proposer.close()
        await self.archive.close()

    @property
    def draining(self) -> bool:
        """Whether new sessions, generations and drafts are refused."""
        return self._draining

    @property
    def is_changing(self) -> bool:
        """Whether something is being opened or removed."""
        return self._one_at_a_time.locked()

    @property
    def begun(self) -> bool:
        """Whether all is loaded that the node began with."""
        return self._begun

    @property
    def verifiers(self) -> Mapping[str, ServedVerifier]:
        """Those that are served now, by model; always the same mapping."""
        return self.verifier.by_model

    @property
    def sessions(self) -> SessionRegistry[OpenSession]:
        """Those of all verifiers."""
        return self.verifier.sessions

    @property
    def verifier_count(self) -> int:
        """Those that are served now, or are to be."""
        return self.expected.verifier_count

    def awaited(self) -> frozenset[Role]:
        """The roles of which something is not loaded yet."""
        return self.expected.awaited

    def offers(self) -> tuple[ModelOffer, ...]:
        """What the card says of this node's models, verifiers first."""
        return (*self.verifier.offers, *self.proposer.offers)

    def archive_offer(self) -> ArchiveOffer | None:
        """What the card says of this node's archive."""
        return self.archive.offer

    def served(self) -> frozenset[Role]:
        """The roles that are served now."""
        roles = frozenset(offer.role for offer in self.offers())
        return roles if self.archive.offer is None else roles | {Role.ARCHIVE}

    def health(self) -> dict[str, bool]:
        """Of each role that is served or to be served whether it does what it is there for."""
        served, awaited = self.served(), self.awaited()
        roles = {spec.role for spec in self.expected.specs} | served
        # What a running node adds leaves what it serves already as it is.
        return {
            role.value: role in served and (self._begun or role not in awaited) for role in roles
        }

    def served_as(self, role: Role, name: str) -> Served | None:
        """What is served in a role by a name: its model id, or what it was told by."""
        for (at, model_id), spec in self._served.items():
            if at is role and name in (model_id, spec.model):
                return Served(model_id, spec)
        return None

    def model_specs(self) -> tuple[RoleSpec, ...]:
        """Models with files that are served or loaded, `MODEL@TARGET` as MODEL and as TARGET."""
        return tuple(
            replace(spec, model=name)
            for spec in self.expected.specs
            if spec.role is not Role.ARCHIVE
            for name in _names_of(spec)
        )

    def loaded_from(self, model_id: str) -> str | None:
        """What a served model was told by, without a target; None for one that is not served."""
        for (role, served), spec in self._served.items():
            if served == model_id and role is not Role.ARCHIVE:
                return next(_names_of(spec), None)
        return None

    def uses(self) -> dict[tuple[Role, str], ModelUse]:
        """How the models that are served now are used."""
        return {
            (role, model_id): use
            for role, served in self._roles.items()
            for model_id, use in served.uses.items()
        }

    def weights_of(self, spec: RoleSpec) -> str:
        """What its products take weights as."""
        return spec.weights or self._weights

    def offer_of(self, role: Role, model_id: str) -> ModelOffer | None:
        """What the card says of a model in a role; None while it says nothing."""
        found = (each for each in self.offers() if (each.role, each.model_id) == (role, model_id))
        return next(found, None)

    def load_numbers(self) -> RoleLoad:
        """For GetNode."""
        kv = self.verifier.kv
        return RoleLoad(
            session_count=len(self.sessions),
            generating_count=self.verifier.generating_count,
            draft_stream_count=self.proposer.stream_count,
            kv_bytes=kv.kv_bytes,
            kv_budget_bytes=kv.kv_budget_bytes,
            archive_count=self.archive.open_count,
            archive_bytes=self.archive.used_bytes,
            archive_budget_bytes=self.archive.budget_bytes,
        )

    def totals(self) -> Totals:
        """What the roles did since the node's start."""
        totals = self.verifier.totals
        return Totals(
            generated_token_count=totals.generated_token_count,
            prefilled_token_count=totals.prefilled_token_count,
            drafted_count=totals.drafted_count,
            accepted_count=totals.accepted_count,
            verify_forward_count=totals.verify_forward_count,
            draft_count=self.proposer.draft_count + totals.drafted_here_count,
            link_bytes=self.links.byte_count,
        )

    async def _open(self, spec: RoleSpec, on_turn: Callable[[], None] = _ignore) -> str:
        async with self._one_at_a_time:
            on_turn()
            model_id = await self._roles[spec.role].open(spec)
        self._served[spec.role, model_id] = spec
        self.has_served.set()
        set_loaded_aside()
        self.expected.arrived(spec)
        self.changed.set()
        return model_id

    async def _remove(self, role: Role, model_id: str, seconds: float, because: str) -> None:
        async with self._one_at_a_time:
            spec = self._served.pop((role, model_id), None)
            if spec is None:
                known = ", ".join(sorted(name for at, name in self._served if at is role)) or "none"
                raise ModelNotFound(
                    f"no {role.value} {model_id[:64]!r} is served here; served: {known}",
                    model_id=model_id[:64],
                    served=known,
                )
            self.expected.forget(spec)
            # Whoever waits for it looks once the role has withdrawn the offer.
            self.changed.set()
            await self._roles[role].remove(model_id, seconds)
        _log.info("role_removed", role=role.value, model=model_id, because=because)
        if model_id:
            why = f": {because}" if because else ""
            self._events.add(
                EventKind.MODEL_UNLOADED, f"{model_id} is served as a {role.value} no more{why}."
            )


def _names_of(spec: RoleSpec) -> Iterator[str]:
    """The models of a role, none for a drafter without files."""
    if spec.role is Role.VERIFIER:
        yield spec.model
    elif spec.model not in LOADERS:
        yield from filter(None, split_target(spec.model))


def _leaving() -> Draining:
    return Draining("this node is leaving the fleet; serve it on another")


def _name_of(fleet: FleetView, node_id: str) -> str:
    """A node's name for people."""
    for view in fleet.nodes():
        if view.card.node_id == node_id:
            return view.card.name
    return node_id[:12]
