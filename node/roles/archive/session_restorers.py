"""The restorers of this node's sessions: chosen, opened, lost, made anew."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import structlog

from kakeya_fleet.engine.backends import load_map_encoder
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.contracts.verifier import VerifierInfo
from kakeya_fleet.engine.errors import ModelUnusable, OutOfKvMemory, RestorerLost, TrainedForAnother
from kakeya_fleet.engine.restoration.learned_map import find_map
from kakeya_fleet.engine.restoration.ranges import RangeStore
from kakeya_fleet.fleet.placement.archive_choice import LEAST_POSITIONS
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.roles.archive.archive_opening import ArchiveOpening, RangeRequest
from kakeya_fleet.node.roles.archive.archive_ways import ArchiveWays
from kakeya_fleet.node.roles.archive.next_range import NextRange, RangePart
from kakeya_fleet.node.roles.archive.session_restorer import RestorerChoice, SessionRestorer
from kakeya_fleet.node.roles.archive.shared_store import SharedEvictedStore, Sharing
from kakeya_fleet.node.roles.settings import RestorerSettings
from kakeya_fleet.node.rpc.refusals import ArchiveFull, NoArchive, RestorerMismatch

__all__ = [
    "LocalStores",
    "RestorerChoice",
    "RestorerSettings",
    "Restorers",
    "SessionRestorer",
]

KEPT_HERE = (
    "No archive is left that can take the session: what it evicts is kept here, in the verifier's"
    f" own memory, which grows. From the next multiple of {CHUNK_KEYS:,} positions on it goes to an"
    " archive again, if there is one by then."
)

_log = structlog.get_logger(__name__)


class LocalStores(Protocol):
    """Keeps what a session evicts in the verifier's own process."""

    @property
    def arithmetic(self) -> str:
        """Names what computes; see `engine.restoration.stores.EvictedStores.arithmetic`."""
        ...

    async def make(
        self, shape: EvictedShape, spec: RestorerSpec, map_folder: Path | None, end: int
    ) -> RangeStore:
        """An empty store with the memory for all positions below `end`.

        Raises `OutOfKvMemory` with nothing taken, `ModelUnusable`.
        """
        ...


@dataclass(slots=True)
class Restorers:
    """Opens archives for the sessions of one node. Belongs to the event loop's thread.

    `drafters` are folders whose learned maps may be named, besides the shipped
    ones, by model id. `clock` gives monotonic seconds.
    """

    fleet: FleetView
    ways: ArchiveWays
    metrics: NodeMetrics
    settings: RestorerSettings
    drafters: Mapping[str, Path]
    clock: Callable[[], float]
    _encoders: dict[tuple[str, str], FeatureEncoder] = field(default_factory=dict)
    _opening: set[asyncio.Task[None]] = field(default_factory=set)

    async def resolve(
        self, choice: RestorerChoice, info: VerifierInfo
    ) -> tuple[RestorerSpec, FeatureEncoder | None]:
        """The restorer that a choice names for a verifier, and its encoder.

        Raises `ModelNotFound`, `TrainedForAnother`, and a `ModelUnusable` when
        the drafter cannot be read.
        """
        if choice.kind is not RestorerKind.PROJECTION:
            codec = choice.packing.codec if choice.packing is not None else ""
            return RestorerSpec(choice.kind, codec=codec), None
        # It hashes the weights: no matter for the event loop.
        found = await asyncio.to_thread(
            find_map, choice.model_id, info.weights_digest, dict(self.drafters)
        )
        found.check_verifier(info.model_id, info.weights_digest)
        # What it makes decides tokens: it computes as the verifier does.
        key = found.spec.digest, info.backend
        encoder = self._encoders.get(key)
        if encoder is None:
            encoder = await asyncio.to_thread(load_map_encoder, found, backend=info.backend)
            self._encoders[key] = encoder
        if encoder.spec.digest != found.encoder_digest:
            raise TrainedForAnother(
                f"the learned map of {found.model_id} was made for another encoder"
                f" ({found.encoder_digest[:12]}) than its drafter has ({encoder.spec.digest[:12]})",
                restorer_model=found.model_id,
            )
        return found.spec, encoder

    async def open(self, restorer: SessionRestorer) -> EvictedStore | None:
        """An empty store for a new session, noted in `restorer`; None in its own process.

        Raises `NoArchive`, `ArchiveFull` when every archive is, `RestorerMismatch`.
        """
        if restorer.spec.kind is RestorerKind.IDENTITY:
            restorer.reasons = (
                "What is evicted stays in the verifier's own process: a check of the plumbing, "
                "it saves no memory.",
            )
            return None
        return await self._opened(restorer, LEAST_POSITIONS)

    async def rebuild(
        self, restorer: SessionRestorer, history_length: int, here: LocalStores | None = None
    ) -> EvictedStore | None:
        """An empty store in place of a lost one, with room for a history.

        On one archive, or on several that share it, or else `here`. Waits until one
        can be had, `settings.rebuild` seconds at most. Raises `RestorerLost`: the
        session lives, and may try again.
        """
        restorer.lost = True
        restorer.note_failure(history_length)
        began = self.clock()
        deadline = began + self.settings.rebuild
        while True:
            try:
                if restorer.spec.kind is RestorerKind.IDENTITY:
                    store = None
                else:
                    store = await self._opened(restorer, max(LEAST_POSITIONS, history_length))
            except (NoArchive, ArchiveFull, RestorerMismatch) as error:
                grace = self.settings.full_grace if isinstance(error, ArchiveFull) else 0.0
                if self.clock() >= began + min(grace, self.settings.rebuild):
                    kept = await self._kept_here(restorer, history_length, here, str(error))
                    if kept is not None:
                        return self._rebuilt(restorer, history_length, kept)
                if self.clock() + self.settings.retry >= deadline:
                    self.metrics.restorer_rebuilds.labels(outcome="lost").inc()
                    raise RestorerLost(
                        f"what the session has evicted was lost, and no archive was found within"
                        f" {self.settings.rebuild:g} s to make it anew: {error}",
                        why=error.reason,
                    ) from error
                await asyncio.sleep(self.settings.retry)
                continue
            return self._rebuilt(restorer, history_length, store)

    def forked(self, restorer: SessionRestorer, evicted: EvictedStore | None) -> SessionRestorer:
        """The restorer of a fork, whose store is `evicted`."""
        forked = replace(restorer, rebuild_count=0)
        forked.use(evicted)
        if forked.shared is not None:
            forked.shared.ask_by(self._asking(forked))
        return forked

    async def close(self) -> None:
        """Ends the ways to the archives."""
        for task in self._opening:
            task.cancel()
        if self._opening:
            await asyncio.wait(self._opening)
        await self.ways.close()

    def _rebuilt(
        self, restorer: SessionRestorer, history_length: int, store: EvictedStore | None
    ) -> EvictedStore | None:
        restorer.lost = False
        restorer.opened_length = history_length
        restorer.rebuild_count += 1
        self.metrics.restorer_rebuilds.labels(outcome="rebuilt").inc()
        _log.warning(
            "restorer_rebuilt",
            node=restorer.where.node_name if restorer.where is not None else "",
            history_length=history_length,
        )
        return store

    async def _opened(self, restorer: SessionRestorer, positions: int) -> EvictedStore:
        """An archive with room for all positions, or for the first chunk of them.

        The others follow as they are needed. Raises `NoArchive`, `ArchiveFull`,
        `RestorerMismatch`.
        """
        opening = self._archives
        request = RangeRequest(positions, ask_last=restorer.failed)
        try:
            found = await opening.open(restorer, request)
        except (NoArchive, ArchiveFull):
            needed = positions * restorer.shape.bytes_per_position
            several = opening.candidates(restorer, CHUNK_KEYS)
            if positions <= CHUNK_KEYS or opening.capacity_bytes(several) < needed:
                raise
            found = await opening.open(restorer, replace(request, count=CHUNK_KEYS))
        restorer.where = found.where
        restorer.arithmetic = found.arithmetic
        restorer.reasons = (found.where.reason, *found.objections)
        store = self._shared(restorer, RangePart(found.store, found.where))
        restorer.use(store)
        return store

    @property
    def _archives(self) -> ArchiveOpening:
        return ArchiveOpening(self.fleet, self.ways, self.settings.lease)

    def _shared(self, restorer: SessionRestorer, first: RangePart) -> SharedEvictedStore:
        sharing = Sharing(
            restorer.shape,
            restorer.spec,
            restorer.encoder,
            self._asking(restorer),
            self.settings.deadline,
        )
        return SharedEvictedStore(sharing, (first,))

    def _asking(self, restorer: SessionRestorer) -> Callable[[NextRange], None]:
        """Has stores opened for a session's next ranges."""
        loop = asyncio.get_running_loop()
        # The restorer has the store: with each other they would wait for the collector of cycles.
        of_store = weakref.ref(restorer)

        def ask(wanted: NextRange) -> None:
            # In the verifier's thread. A loop that was closed opens nothing any more.
            asking = of_store()
            if asking is not None:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._begin_opening, asking, wanted)

        return ask

    def _begin_opening(self, restorer: SessionRestorer, wanted: NextRange) -> None:
        task = asyncio.create_task(self._open_next(restorer, wanted), name="archive-open-next")
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open_next(self, restorer: SessionRestorer, wanted: NextRange) -> None:
        """Opens an archive for a range, trying until one takes it or nobody wants it."""
        used = frozenset(held.where.node_id for held in restorer.ranges if held.where is not None)
        request = RangeRequest(
            wanted.end - wanted.first, wanted.first, ask_last=used | restorer.failed
        )
        refusals = 0
        while wanted.is_wanted:
            try:
                found = await self._archives.open(restorer, request)
            except (NoArchive, ArchiveFull, RestorerMismatch) as error:
                wanted.refuse(str(error))
                refusals += 1
                await asyncio.sleep(self.settings.next_range.pause(refusals))
                continue
            _log.info("archive_range_opened", node=found.where.node_name, first=wanted.first)
            wanted.offer(RangePart(found.store, found.where))

    async def _kept_here(
        self,
        restorer: SessionRestorer,
        history_length: int,
        here: LocalStores | None,
        objections: str,
    ) -> EvictedStore | None:
        """A store in the verifier's own process; None when it cannot be, or was not asked for.

        A session that names its archive's node stays there. One whose bits are of
        another arithmetic's making does, too.
        """
        if here is None or restorer.choice.node_id:
            return None
        if restorer.arithmetic not in ("", here.arithmetic):
            return None
        end = min(max(LEAST_POSITIONS, history_length), restorer.shape.context_length)
        try:
            folder = await self._map_folder(restorer)
            kept = await here.make(restorer.shape, restorer.spec, folder, end)
        except (OutOfKvMemory, ModelUnusable) as error:
            _log.warning("restorer_not_kept_here", detail=str(error))
            return None
        store = self._shared(restorer, RangePart(kept, None))
        restorer.where = None
        restorer.reasons = (KEPT_HERE, objections)
        restorer.use(store)
        return store

    async def _map_folder(self, restorer: SessionRestorer) -> Path | None:
        if restorer.spec.kind is not RestorerKind.PROJECTION:
            return None
        found = await asyncio.to_thread(
            find_map, restorer.spec.model_id, restorer.verifier_digest, dict(self.drafters)
        )
        return found.path
