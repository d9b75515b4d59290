"""All roles of this node: what it serves now, and how that changes while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import grpc.aio
import structlog

from kakeya.v1 import (
    placement_pb2,
    placement_pb2_grpc,
    proposer_pb2,
    proposer_pb2_grpc,
    runtime_pb2,
    runtime_pb2_grpc,
    tensor_pb2,
    tensor_pb2_grpc,
)
from kakeya_fleet.engine.proposers.names import WITHOUT_FILES, split_target
from kakeya_fleet.fleet.cards.card import ArchiveOffer, ModelOffer, Role
from kakeya_fleet.fleet.errors import ModelNotFound
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.app.role_ground import RoleGround
from kakeya_fleet.node.app.role_load import RoleLoad
from kakeya_fleet.node.config.role_spec import RoleSpec
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.roles.contract import ModelUse
from kakeya_fleet.node.roles.cycles import free_ended, set_loaded_aside
from kakeya_fleet.node.roles.expected_roles import ExpectedRoles
from kakeya_fleet.node.roles.settings import RoleSettings
from kakeya_fleet.node.rpc.late_service import LateService
from kakeya_fleet.node.rpc.refusals import Draining, TooManyLinks, TooManySessions, TooManyStreams
from kakeya_fleet.node.watch.activity import NodeActivity
from kakeya_fleet.node.watch.event_log import EventKind
from kakeya_fleet.node.watch.node_sample import Totals

if TYPE_CHECKING:
    from kakeya.v1.capability_pb2 import MeasuredCodec, TensorLinkStatus
    from kakeya_fleet.engine.contracts.draft import ProposerKey
    from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
    from kakeya_fleet.fleet.placement.placement import MeasuredAcceptance
    from kakeya_fleet.node.app.serving_roles import ServingRoles
    from kakeya_fleet.node.links.roads.contract import RoadBuilder
    from kakeya_fleet.node.links.transport.open_links import OpenLinks
    from kakeya_fleet.node.roles.proposer.proposer_role import ProposerRole
    from kakeya_fleet.node.roles.verifier.observer import SessionObserver
    from kakeya_fleet.node.roles.verifier.open_session import OpenSession
    from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
    from kakeya_fleet.node.roles.verifier.verifier_role import VerifierRole

_log = structlog.get_logger(__name__)


_SERVICES = (
    (tensor_pb2.DESCRIPTOR, tensor_pb2_grpc.add_TensorServiceServicer_to_server),
    (proposer_pb2.DESCRIPTOR, proposer_pb2_grpc.add_ProposerServiceServicer_to_server),
    (runtime_pb2.DESCRIPTOR, runtime_pb2_grpc.add_RuntimeServiceServicer_to_server),
    (placement_pb2.DESCRIPTOR, placement_pb2_grpc.add_PlacementServiceServicer_to_server),
)
"""Each the one service of its file, and what generated code adds it with."""
_BOUNDS = {
    "links.at_once": TooManyLinks,
    "links.memory_bytes": TooManyLinks,
    "drafts.streams": TooManyStreams,
    "drafts.history_bytes": TooManyStreams,
    "drafts.waiting_bytes": TooManyStreams,
    "sessions.at_once": TooManySessions,
}
"""What callers share of the services above, by the names of its knobs: none of it is held yet."""


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

    What serves (`ServingRoles`) is imported and made at once where something is expected, else by
    the first role or the first call that it answers: most agents of a large fleet have none.
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
        self.expected = expected
        self.changed = asyncio.Event()
        self.has_served = asyncio.Event()
        self._ground = RoleGround(
            expected,
            settings,
            fleet,
            metrics,
            roads,
            observers,
            activity,
            allowances,
            self.changed,
        )
        self._made: ServingRoles | None = None
        self._is_made = asyncio.Event()
        self._making = asyncio.Lock()
        self._services = [
            LateService(each, add, self._needed)
            for file, add in _SERVICES
            for each in file.services_by_name.values()
        ]
        self._sweep_seconds = min(settings.sweep_seconds, settings.session_ttl_seconds / 10)
        self._events = activity.events
        self._weights = settings.weights
        self._served: dict[tuple[Role, str], RoleSpec] = {}
        self._one_at_a_time = asyncio.Lock()
        self._opening: set[asyncio.Task[str]] = set()
        self._removing: set[asyncio.Task[None]] = set()
        self._draining = False
        self._begun = not expected.specs
        metrics.kv_budget_bytes.set(settings.kv_budget_bytes)
        for name, refuse in _BOUNDS.items():
            allowances.share(name, refuse)
        if expected.specs:
            self._now_made()

    def register(self, server: grpc.aio.Server) -> tuple[str, ...]:
        """Adds the services of all roles to the server, and returns their full names.

        The server needs `node.rpc.error_interceptor.ErrorInterceptor`.
        """
        server.add_generic_rpc_handlers(self._services)
        return tuple(service.name for service in self._services)

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
            if self._made is not None:
                self._made.sweep()
            else:
                free_ended()

    async def sample_codecs(self) -> None:
        """Measures codecs when all sessions are idle, until cancelled. Owned as `run`."""
        await self._is_made.wait()
        await self.verifier.sampling.run()

    async def drain(self, seconds: float) -> None:
        """Refuses new work; ends draft streams and links; generations end with DRAINING.

        Returns when none runs any more, after `seconds` at the latest.
        """
        self._draining = True
        for opening in self._opening:
            opening.cancel()
        if self._made is not None:
            await self._made.drain(seconds)

    async def close(self) -> None:
        """Closes sessions and their draft sources, then the models' threads."""
        under_way = self._opening | self._removing
        if under_way:
            # A load that has begun in a thread cannot be taken back.
            await asyncio.wait(under_way)
        if self._made is not None:
            await self._made.close()

    def close_watches(self) -> None:
        """Ends every watch of sessions: the node leaves."""
        if self._made is not None:
            self._made.verifier.session_watch.close()

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
    def verifier(self) -> VerifierRole:
        """That of what serves, which is there once anything was needed of it."""
        return self._there.verifier

    @property
    def proposer(self) -> ProposerRole:
        """As `verifier`."""
        return self._there.proposer

    @property
    def links(self) -> OpenLinks:
        """To other nodes and from them, as `verifier`."""
        return self._there.links

    @property
    def sessions(self) -> SessionRegistry[OpenSession]:
        """Those of all verifiers, as `verifier`."""
        return self._there.verifier.sessions

    @property
    def verifiers(self) -> Mapping[str, ServedVerifier]:
        """Those that are served now, by model."""
        return self._made.verifier.by_model if self._made is not None else {}

    @property
    def verifier_count(self) -> int:
        """Those that are served now, or are to be."""
        return self.expected.verifier_count

    def awaited(self) -> frozenset[Role]:
        """The roles of which something is not loaded yet."""
        return self.expected.awaited

    def offers(self) -> tuple[ModelOffer, ...]:
        """What the card says of this node's models, verifiers first."""
        return self._made.offers() if self._made is not None else ()

    def archive_offer(self) -> ArchiveOffer | None:
        """What the card says of this node's archive."""
        return self._made.archive.offer if self._made is not None else None

    def served(self) -> frozenset[Role]:
        """The roles that are served now."""
        roles = frozenset(offer.role for offer in self.offers())
        return roles if self.archive_offer() is None else roles | {Role.ARCHIVE}

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
        return self._made.uses() if self._made is not None else {}

    def weights_of(self, spec: RoleSpec) -> str:
        """What its products take weights as."""
        return spec.weights or self._weights

    def offer_of(self, role: Role, model_id: str) -> ModelOffer | None:
        """What the card says of a model in a role; None while it says nothing."""
        found = (each for each in self.offers() if (each.role, each.model_id) == (role, model_id))
        return next(found, None)

    def load_numbers(self) -> RoleLoad:
        """For GetNode."""
        return self._made.load_numbers() if self._made is not None else RoleLoad()

    def totals(self) -> Totals:
        """What the roles did since the node's start."""
        return self._made.totals() if self._made is not None else Totals()

    def tensor_links(self) -> list[TensorLinkStatus]:
        """Those that are open, for GetNode."""
        return self._made.links.statuses() if self._made is not None else []

    def look_for_roads(self) -> None:
        """Has open links look for better roads again."""
        if self._made is not None:
            self._made.links.look_again()

    def acceptances(self) -> Mapping[tuple[str, str], MeasuredAcceptance]:
        """What was measured here, by verifier model and proposer model."""
        return self._made.verifier.acceptances() if self._made is not None else {}

    def open_breakers(self) -> frozenset[ProposerKey]:
        """The proposers that are shut out here."""
        return self._made.verifier.open_breakers() if self._made is not None else frozenset()

    def archive_waits(self) -> Mapping[str, float]:
        """What the sessions' layers wait for an archive's answer, by its node, in seconds."""
        return self._made.verifier.archive_waits() if self._made is not None else {}

    def measured_codecs(self) -> list[MeasuredCodec]:
        """What was measured of codecs, by model, then from most bits to fewest."""
        return self._made.measured_codecs() if self._made is not None else []

    async def reset_codecs(self, weights_digest: str) -> int:
        """Forgets what was measured of a model's codecs, of all without a digest; how many."""
        return await (await self._needed()).verifier.reset_codecs(weights_digest)

    @property
    def _there(self) -> ServingRoles:
        assert self._made is not None, "nothing was served here, nor asked for"
        return self._made

    async def _needed(self) -> ServingRoles:
        """What serves. The first time it is imported, in a thread: the event loop goes on."""
        async with self._making:
            if self._made is None:
                await asyncio.to_thread(_serving_roles)
                made = self._now_made()
                if self._draining:
                    await made.drain(0.0)
        return self._there

    def _now_made(self) -> ServingRoles:
        self._made = made = _serving_roles()(self._ground)
        by_name = {service.name: service for service in made.services}
        for late in self._services:
            late.answer_with(by_name[late.name].add)
        self._is_made.set()
        set_loaded_aside()
        return made

    async def _open(self, spec: RoleSpec, on_turn: Callable[[], None] = _ignore) -> str:
        async with self._one_at_a_time:
            on_turn()
            serving = await self._needed()
            model_id = await serving.by_role[spec.role].open(spec)
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
            await self._there.by_role[role].remove(model_id, seconds)
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
    elif spec.model not in WITHOUT_FILES:
        yield from filter(None, split_target(spec.model))


def _leaving() -> Draining:
    return Draining("this node is leaving the fleet; serve it on another")


def _serving_roles() -> type[ServingRoles]:
    from kakeya_fleet.node.app.serving_roles import ServingRoles  # noqa: PLC0415 by design

    return ServingRoles
