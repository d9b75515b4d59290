"""The verifier role: models that decide every token of the sessions on this node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from kakeya.v1 import placement_pb2_grpc, runtime_pb2_grpc
from kakeya_fleet.engine.contracts.device import AUTO, CPU
from kakeya_fleet.engine.contracts.draft import ProposerKey
from kakeya_fleet.engine.errors import DeviceUnavailable
from kakeya_fleet.engine.models.model_folder import model_id_of
from kakeya_fleet.engine.models.weight_choice import require_auto
from kakeya_fleet.engine.sessions.ended import EndReason
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from kakeya_fleet.engine.speculation.latest_book import LatestBook
from kakeya_fleet.engine.speculation.trial_book import TrialBooks
from kakeya_fleet.fleet.cards.card import ModelOffer
from kakeya_fleet.fleet.placement.codec_ladder import PackedQuality
from kakeya_fleet.fleet.placement.packing import Packing
from kakeya_fleet.fleet.placement.placement import MeasuredAcceptance
from kakeya_fleet.node.config.role_spec import RoleSpec, named_twice
from kakeya_fleet.node.links.features.encoder_fetch import EncoderShelf
from kakeya_fleet.node.planning.codec_ledger import CodecLedger, model_key
from kakeya_fleet.node.planning.codec_store import CodecStore
from kakeya_fleet.node.planning.draft_ledgers import DraftLedgers
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.planning.placement_service import PlacementServicer
from kakeya_fleet.node.planning.plan_wire import published
from kakeya_fleet.node.planning.planner import OwnMeasurements, Planner
from kakeya_fleet.node.roles.archive.archive_role import ArchiveRole
from kakeya_fleet.node.roles.archive.archive_ways import ArchiveWays
from kakeya_fleet.node.roles.archive.session_restorers import Restorers
from kakeya_fleet.node.roles.context import RoleContext
from kakeya_fleet.node.roles.contract import ModelUse, RoleService
from kakeya_fleet.node.roles.cycles import free_removed
from kakeya_fleet.node.roles.groups.group_settings import GroupSource
from kakeya_fleet.node.roles.proposer.proposer_role import ProposerRole
from kakeya_fleet.node.roles.settings import CodecSettings
from kakeya_fleet.node.roles.verifier.all_observers import AllObservers
from kakeya_fleet.node.roles.verifier.breaker_book import BreakerBook
from kakeya_fleet.node.roles.verifier.codec_sampling import CodecSampling
from kakeya_fleet.node.roles.verifier.draft_connections import PairingContext
from kakeya_fleet.node.roles.verifier.generations import Generations
from kakeya_fleet.node.roles.verifier.key_spending import KeySpending
from kakeya_fleet.node.roles.verifier.observer import SessionObserver
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.runtime_service import RuntimeServicer
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.roles.verifier.served_verifiers import ServedVerifiers
from kakeya_fleet.node.roles.verifier.session_announcer import SessionAnnouncer
from kakeya_fleet.node.roles.verifier.session_events import SessionEvents
from kakeya_fleet.node.roles.verifier.session_lifecycle import SessionLifecycle, new_session_id
from kakeya_fleet.node.roles.verifier.session_metrics import SessionMetrics
from kakeya_fleet.node.roles.verifier.session_places import SessionPlaces
from kakeya_fleet.node.roles.verifier.session_totals import SessionTotals
from kakeya_fleet.node.roles.verifier.session_watch import SessionWatch
from kakeya_fleet.node.roles.verifier.truncation_watch import TruncationWatch
from kakeya_fleet.node.roles.verifier.verifier_loading import Admission, load_served_verifier
from kakeya_fleet.node.roles.verifier.verifier_routing import VerifierRouting
from kakeya_fleet.node.watch.model_transfer import ModelTransfer, model_transfer


class Computing(Protocol):
    """What computes one verifier: a thread of this process, or a group of ranks."""

    async def close(self) -> None:
        """Ends it."""
        ...


class VerifierRole:
    """A `NodeRole`, whose verifiers are of this process or of a group. Belongs to one event loop.

    `sessions` are those of all verifiers, `session_watch` is what watchers of them listen to,
    `totals` what all did.
    """

    def __init__(
        self,
        context: RoleContext,
        proposers: ProposerRole,
        archive: ArchiveRole,
        events: SessionEvents,
        observers: Sequence[SessionObserver],
    ) -> None:
        """Sessions are served by this node's `proposers` as well, and told to `observers`."""
        settings, metrics, clock = context.settings, context.metrics, context.clock
        self._context = context
        self._archive = archive
        self._events = events
        self.totals = SessionTotals()
        self._spending = KeySpending(clock)
        self.session_watch = SessionWatch(
            events, metrics, clock, settings.watch, context.activity.changed
        )
        told = (self.totals, self.session_watch, SessionMetrics(metrics, clock))
        self.codecs = _codec_ledger(settings.codecs, events)
        self.sampling = CodecSampling(
            self.codecs, settings.codecs, metrics, events, self._idle_seconds, clock
        )
        observer = AllObservers(
            (*told, TruncationWatch(events, metrics), self.sampling, *observers)
        )
        announcer = SessionAnnouncer(observer, events, metrics)
        self.sessions: SessionRegistry[OpenSession] = SessionRegistry(
            clock=clock,
            ids=new_session_id,
            ttl_seconds=settings.session_ttl_seconds,
            on_end=announcer.on_end,
            on_rest=announcer.on_rest,
            places=SessionPlaces(context.allowances, self._spending.most_sessions),
        )
        self._verifiers = ServedVerifiers(
            self.sessions, settings.kv_budget_bytes, lambda: context.expected.verifier_count
        )
        self._clock = clock
        self._spare_seconds = settings.spare_seconds
        self._trims_at = clock() + settings.spare_seconds
        self._computing: dict[str, Computing] = {}
        self._ledgers = DraftLedgers(clock)
        self._breakers = BreakerBook(
            clock, partial(_incarnation, context.fleet, proposers), events.breaker_changed
        )
        self._encoders = EncoderShelf(context.links)
        self._ways = ArchiveWays(
            metrics, settings.restorers, clock, settings.channels, settings.trust
        )
        self._restorers = Restorers(
            fleet=context.fleet,
            ways=self._ways,
            metrics=metrics,
            settings=settings.restorers,
            drafters=proposers.folders,
            clock=clock,
        )
        self._planner = Planner(
            context.fleet, self._own_measurements, lambda: self._verifiers.free_kv_bytes
        )
        self._lifecycle = SessionLifecycle(
            self.sessions,
            VerifierRouting(self._verifiers.by_model, context.fleet, context.expected.is_loading),
            self._pairing_context(proposers),
            self._restorers,
            announcer,
            self.codecs,
            clock,
            rest_seconds=settings.rest_seconds,
        )
        self._generations = Generations(
            self._lifecycle,
            self._ledgers,
            clock,
            draft_deadline_seconds=settings.draft_deadline_seconds,
        )
        metrics.kv_budget_bytes.set(settings.kv_budget_bytes)
        metrics.kv_bytes.set_function(lambda: self._verifiers.kv_bytes)

    def _pairing_context(self, proposers: ProposerRole) -> PairingContext:
        context = self._context
        return PairingContext(
            fleet=context.fleet,
            planner=self._planner,
            proposers=proposers.by_model,
            breakers=self._breakers,
            trial_books=TrialBooks(context.clock),
            overlaps=LatestBook(context.clock),
            rates=LatestBook(context.clock),
            observe_round_trip=context.metrics.draft_round_trip_seconds.observe,
            encoders=self._encoders,
            links=context.links,
            opening_seconds=context.settings.draft_opening_seconds,
        )

    @property
    def services(self) -> tuple[RoleService, ...]:
        """RuntimeService, and PlacementService, which says where a session would be."""
        runtime = RuntimeServicer(
            self._lifecycle,
            self._generations,
            self.session_watch,
            self._spending,
            self._context.clock,
        )
        placement = PlacementServicer(self._planner, self._packing)
        return (
            RoleService(
                "kakeya.v1.RuntimeService",
                partial(runtime_pb2_grpc.add_RuntimeServiceServicer_to_server, runtime),
            ),
            RoleService(
                "kakeya.v1.PlacementService",
                partial(placement_pb2_grpc.add_PlacementServiceServicer_to_server, placement),
            ),
        )

    @property
    def by_model(self) -> Mapping[str, ServedVerifier]:
        """Those that are served now, always the same mapping."""
        return self._verifiers.by_model

    @property
    def offers(self) -> tuple[ModelOffer, ...]:
        """What the card says of them."""
        return self._verifiers.offers

    @property
    def kv(self) -> ServedVerifiers:
        """The sessions' keys and values, counted."""
        return self._verifiers

    @property
    def generating_count(self) -> int:
        """Generations that run now."""
        return self._generations.running_count

    @property
    def draining(self) -> bool:
        """Whether new sessions and generations are refused."""
        return self._lifecycle.draining

    def acceptances(self) -> Mapping[tuple[str, str], MeasuredAcceptance]:
        """What was measured here, by verifier model and proposer model."""
        # Pairs of which only text at a temperature is known are told of by that.
        ledgers = self._ledgers
        return {**ledgers.acceptances(sampled=True), **ledgers.acceptances(sampled=False)}

    def open_breakers(self) -> frozenset[ProposerKey]:
        """The proposers that are shut out here."""
        return self._breakers.shut_out()

    def archive_waits(self) -> dict[str, float]:
        """What the sessions' layers wait for an archive's answer, by its node, in seconds."""
        return self._ways.waits.by_node(self._context.fleet)

    @property
    def uses(self) -> Mapping[str, ModelUse]:
        """See `NodeRole.uses`: by their sessions."""
        return {
            model_id: ModelUse(
                self.sessions.count_of(served.budget) > 0, self.totals.opened_counts[model_id]
            )
            for model_id, served in self.by_model.items()
        }

    async def open(self, spec: RoleSpec) -> str:
        """See `NodeRole.open`.

        For a group also raises `BadGroup`, `GroupNotStarted` and `HostfileError`.
        """
        with model_transfer(model_id_of(spec.model), self._context.activity) as transfer:
            group = self._context.settings.group
            if group is None:
                model_id = await self._open_here(spec, transfer)
            else:
                model_id = await self._open_group(group, spec, transfer)
        self._verifiers.share()
        return model_id

    async def remove(self, model_id: str, seconds: float) -> None:
        """See `NodeRole.remove`: its generations end with DRAINING, then its sessions."""
        await self._withdrawn(model_id, seconds)
        self._verifiers.share()
        # A model's modules refer to each other, and so do a pool and its sessions.
        await free_removed()

    async def reset_codecs(self, weights_digest: str) -> int:
        """Forgets what was measured of a model's codecs, of all without a digest; how many."""
        count = await self.codecs.reset(weights_digest)
        self.sampling.forget()
        for served in self.by_model.values():
            self.sampling.show(served)
        return count

    def sweep(self) -> None:
        """Evicts idle sessions, and gives back what ended ones had."""
        self._lifecycle.sweep()
        if self._clock() >= self._trims_at:
            self._trims_at = self._clock() + self._spare_seconds
            self._verifiers.trim()

    async def drain(self, seconds: float) -> None:
        """Refuses new work; generations end with DRAINING."""
        self._lifecycle.drain()
        self.sampling.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._generations.all_ended()

    async def close(self) -> None:
        """Closes sessions and their draft sources, then what computes them."""
        await self._lifecycle.close()
        await self._encoders.close()
        for computing in self._computing.values():
            await computing.close()
        await self._restorers.close()

    async def _open_here(self, spec: RoleSpec, transfer: ModelTransfer) -> str:
        settings = self._context.settings
        served = await load_served_verifier(
            spec.model,
            self._admission(),
            dtype=settings.dtype,
            weights=spec.weights or settings.weights,
            backend=settings.backend,
            device=settings.device,
            progress=transfer.downloading,
            reading=transfer.reading,
        )
        model_id = served.offer.model_id
        if model_id in self._computing:
            await served.worker.close()
            raise named_twice(spec, model_id)
        self._verifiers.by_model[model_id] = served
        self._computing[model_id] = served.worker
        self.sampling.show(served)
        return model_id

    async def _open_group(
        self, source: GroupSource, spec: RoleSpec, transfer: ModelTransfer
    ) -> str:
        # Most nodes never are of a group.
        from kakeya_fleet.node.roles.verifier.group_serving import ServedGroup  # noqa: PLC0415

        settings = self._context.settings
        require_auto(spec.weights or settings.weights, "a group's ranks compute this one")
        if settings.device not in (AUTO, CPU):
            raise DeviceUnavailable(
                "the ranks of a group choose what they compute with by themselves, and not"
                f" {settings.device}: leave --device at {AUTO}",
                device=settings.device,
            )
        group = ServedGroup(
            source.settings(
                spec.model,
                dtype=settings.dtype,
                backend=settings.backend,
                within_host=settings.keeps_tensors_here,
            ),
            self._admission(),
            verifiers=self._verifiers.by_model,
            on_change=self._context.changed.set,
            events=self._events,
        )
        transfer.load_begins()
        model_id = await group.open()
        self._computing[model_id] = group
        return model_id

    async def _withdrawn(self, model_id: str, seconds: float) -> None:
        computing = self._computing.pop(model_id)
        # That of a group that is lost is not served.
        served = self._verifiers.by_model.pop(model_id, None)
        if served is not None:
            served.withdrawn.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._generations.all_ended(served)
            self.sessions.end_verifier(served.budget, EndReason.REMOVED)
        await computing.close()

    def _admission(self) -> Admission:
        context = self._context
        return Admission(
            self.sessions, self._verifiers.share_bytes, context.clock, context.faults.of_worker
        )

    def _idle_seconds(self) -> float:
        """Since a session of this node was used."""
        return self.sessions.idle_seconds()

    def _packing(self, model_id: str, quality: PackedQuality, pinned: str) -> Packing:
        """How sessions of a model pack, by what was measured of it where it is served here."""
        served = self.by_model.get(model_id)
        if served is None:
            return published(model_id, quality, pinned)
        return self.codecs.packing(model_key(served.verifier.info), quality, pinned)

    def _own_measurements(self) -> OwnMeasurements:
        offer, ledgers = self._archive.offer, self._ledgers
        return OwnMeasurements(
            acceptances=ledgers.acceptances(sampled=False),
            sampled_acceptances=ledgers.acceptances(sampled=True),
            gains=ledgers.gains(sampled=False),
            sampled_gains=ledgers.gains(sampled=True),
            open_breakers=self.open_breakers(),
            free_archive_bytes=offer.free_bytes if offer is not None else None,
            archive_waits=self.archive_waits(),
            distrusted_archives=self._ways.distrusted_by_node(self._context.fleet),
            draft_times=ledgers.times(),
        )


def _codec_ledger(settings: CodecSettings, events: SessionEvents) -> CodecLedger:
    """What is known of codecs, from the file that keeps it if there is one."""
    if settings.file is None:
        return CodecLedger(None, time.time)
    loop = asyncio.get_running_loop()

    def told(message: str) -> None:
        # From the thread that writes, too; a loop that is closed has nobody left to be told.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(events.codecs_lost, message)

    return CodecLedger(CodecStore(settings.file, told), time.time)


def _incarnation(fleet: FleetView, own: ProposerRole, key: ProposerKey) -> Hashable | None:
    """What a proposer's faults are of: its node's process, or here what was opened last.

    None for one of this node that is served no more.
    """
    node_id, model_id = key
    if node_id != fleet.self_id:
        return fleet.boot_id(node_id)
    served = own.by_model.get(model_id)
    return served.withdrawn if served is not None else None
