"""Where a verifier's evicted keys and values are, as the archive's benchmark compares it."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum

import psutil

from kakeya_fleet.engine.contracts.cache import KvCache
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind
from kakeya_fleet.engine.contracts.verifier import Verifier
from scripts.bench.archive_process import ArchiveProcess
from scripts.bench.counted_store import CountedStore
from scripts.bench.kv_strategies import FULL, STRATEGIES, Caches, Restorer
from scripts.bench.network_namespaces import FAR, Road, TwoNamespaces, device_bytes
from scripts.bench.process_memory import trim
from scripts.bench.slow_wire import DEVICE, Line
from scripts.eval.restorers import LOCAL, Restoring

ARCHIVE = STRATEGIES["restored archive"]
LOOPBACK_DEVICE = "lo"


class Place(StrEnum):
    """Where the evicted positions are attended to."""

    NOWHERE = "full"
    HERE = "restored, archive in this process"
    LOOPBACK = "restored, archive over loopback"
    NETWORK = "restored, archive over a network"

    @property
    def is_remote(self) -> bool:
        """Whether another process keeps the evicted positions."""
        return self in (Place.LOOPBACK, Place.NETWORK)


@dataclass(frozen=True, slots=True)
class Side:
    """One way; `road` is that of a network."""

    place: Place
    road: Road | None = None

    @property
    def name(self) -> str:
        """As reports call it."""
        if self.road is None:
            return self.place.value
        return f"restored, archive over {self.road.network.name}"


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes by host; resident ones are what opening and filling added, the archive's all of it."""

    verifier_kv_bytes: int
    archive_kv_bytes: int
    verifier_resident_bytes: int
    archive_resident_bytes: int | None


@dataclass(slots=True)
class Opened:
    """A filled cache, and what is behind it."""

    cache: KvCache
    store: CountedStore | None
    archive: ArchiveProcess | None
    device: str | None
    """What its bytes cross, where nothing else does."""
    resident_added: int = 0

    @property
    def payload_bytes(self) -> int:
        """Tensor bytes that crossed to the store and back so far; 0 without one."""
        return 0 if self.store is None else self.store.bytes_crossed

    def crossed_bytes(self) -> int | None:
        """Bytes on the wire so far, both ways, IP headers included; None when nobody counts."""
        if self.device is None:
            return None
        sent, received = device_bytes(self.device)
        return sent if self.device == LOOPBACK_DEVICE else sent + received

    def memory(self) -> Memory:
        """As it is now; the archive's own bytes are those of its latest answer."""
        return Memory(
            verifier_kv_bytes=self.cache.memory_bytes,
            archive_kv_bytes=0 if self.store is None else self.store.stored_bytes,
            verifier_resident_bytes=self.resident_added,
            archive_resident_bytes=(
                None if self.archive is None else psutil.Process(self.archive.pid).memory_info().rss
            ),
        )


@dataclass(frozen=True, slots=True)
class Bench:
    """What all sides have in common. `namespaces` None: neither networks nor bytes on the wire."""

    verifier: Verifier
    sink: int
    window: int
    budget_bytes: int
    archive_amount: str
    threads: int
    namespaces: TwoNamespaces | None

    @contextmanager
    def opened(self, place: Place, context: int, room: int) -> Iterator[Opened]:
        """A cache of `context` random positions with room for `room` more.

        All networks share one. Raises `OutOfKvMemory` beyond the verifier's budget.
        """
        if self.namespaces is not None:
            # Filling is not measured.
            self.namespaces.become(Line())
        pool = self.verifier.pool
        # Each side alone has the budget; what was given back is not kept beside it.
        pool.budget_bytes = pool.used_bytes
        pool.budget_bytes = pool.used_bytes + self.budget_bytes
        # Stores of the place before lie in reference cycles.
        gc.collect()
        trim()
        before = psutil.Process().memory_info().rss
        with ExitStack() as stack:
            archive = stack.enter_context(self._archive(place)) if place.is_remote else None
            stores: list[CountedStore] = []
            restorers: Mapping[RestorerKind, Restorer] = {}
            if place is not Place.NOWHERE:
                address = LOCAL if archive is None else archive.address
                restoring = stack.enter_context(
                    closing(Restoring(self.verifier, "", address, threads=self.threads))
                )
                restorers = {ARCHIVE.restorer or RestorerKind.ARCHIVE: _counted(restoring, stores)}
            caches = Caches(self.verifier, self.sink, self.window, restorers)
            strategy = FULL if place is Place.NOWHERE else ARCHIVE
            cache = stack.enter_context(caches.opened(strategy, context + room))
            pool.budget_bytes = None
            for store in stores:
                store.prefill(context - self.window, seed=1)
            cache.fill(context, seed=0)
            trim()
            opened = Opened(cache, stores[0] if stores else None, archive, self._device(place))
            opened.resident_added = psutil.Process().memory_info().rss - before
            yield opened

    def enter(self, side: Side) -> None:
        """Makes the wire the side's own, before its turn."""
        if side.road is not None and self.namespaces is not None:
            self.namespaces.become(side.road.line)

    def _archive(self, place: Place) -> ArchiveProcess:
        if place is Place.LOOPBACK or self.namespaces is None:
            return ArchiveProcess(self.archive_amount, {}, self.threads)
        return ArchiveProcess(
            self.archive_amount, {}, self.threads, host=FAR, behind=self.namespaces.behind
        )

    def _device(self, place: Place) -> str | None:
        if self.namespaces is None or not place.is_remote:
            return None
        return LOOPBACK_DEVICE if place is Place.LOOPBACK else DEVICE


def _counted(restoring: Restoring, stores: list[CountedStore]) -> Restorer:
    """The archive's restorer, whose stores are counted and told to `stores`."""
    plain = restoring.restorers[RestorerKind.ARCHIVE]

    def make(shape: EvictedShape) -> EvictedStore:
        stores.append(CountedStore(plain.make(shape), shape))
        return stores[-1]

    return Restorer(plain.spec, make)
