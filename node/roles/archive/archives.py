"""The archives of one node: admitted by bytes, leased, each the secret of one session."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from kakeya_fleet.engine.contracts.evicted_store import Evicted
from kakeya_fleet.engine.contracts.positions import contiguous_placement
from kakeya_fleet.engine.errors import OutOfKvMemory
from kakeya_fleet.engine.restoration.ranges import KeepingStore
from kakeya_fleet.fleet.placement.archive_choice import LEAST_POSITIONS
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.caller import NOBODY, Caller
from kakeya_fleet.node.admission.reclaiming import to_reclaim
from kakeya_fleet.node.roles.archive.opening import Opening
from kakeya_fleet.node.roles.archive.position_tags import KeptTags, Tags
from kakeya_fleet.node.rpc.refusals import ArchiveFull, ArchiveNotFound, Draining


class StoreMaker(Protocol):
    """Makes the stores, and counts their bytes. Any thread may call."""

    @property
    def budget_bytes(self) -> int:
        """Bytes that the stores may take together."""
        ...

    @property
    def used_bytes(self) -> int:
        """Bytes that they take now."""
        ...

    @property
    def arithmetic(self) -> str:
        """Names what computes; see `Archives.arithmetic`."""
        ...

    def check(self, opening: Opening) -> None:
        """Raises what `make` would, but for memory."""
        ...

    def make(self, opening: Opening) -> KeepingStore:
        """An empty store. Raises `OutOfKvMemory`, `RestorerMismatch`, `ModelUnusable`."""
        ...


@dataclass(slots=True)
class Archive:
    """One session's archive. `store` belongs to the thread of its stream once attached.

    `owner` is the node that opened it, empty in a fleet without an authority. `lease_seconds`
    without use end it, `attach_seconds` if nobody has come for it.
    """

    archive_id: str
    opening: Opening
    store: KeepingStore
    tags: KeptTags
    caller: Caller
    lease_seconds: float
    attach_seconds: float
    used_at: float
    owner: str = ""
    attached: bool = False
    expired: bool = False
    on_expiry: list[Callable[[], object]] = field(default_factory=list)

    def is_idle(self, now: float) -> bool:
        """Whether nobody used it for as long as its lease, or came for it at all."""
        most = self.lease_seconds if self.attached else self.attach_seconds
        return now - self.used_at >= most


@dataclass(frozen=True, slots=True)
class _Unused:
    """An archive whose place may be taken back."""

    archive: Archive
    caller: Caller
    silent_ms: float


class Archives:
    """All archives of this node. Any thread may call.

    An archive is released by the thread that uses it; one that expires, or is
    cut off by a drain, is told so through `on_expiry`, which ends its stream.
    """

    def __init__(
        self,
        maker: StoreMaker,
        allowances: Allowances,
        *,
        clock: Callable[[], float],
        ids: Callable[[], str],
    ) -> None:
        """`clock` gives monotonic seconds, `ids` names that nobody guesses.

        `greetings` are the places of connections that have not attached yet.
        """
        self._maker = maker
        self.settings = allowances.limits.archives
        self._places = allowances.share(
            "archives.at_once",
            partial(ArchiveFull, retry_after_seconds=str(self.settings.retry_seconds)),
        )
        self.greetings = allowances.share("archives.greetings", ArchiveFull)
        self._clock = clock
        self._ids = ids
        self._lock = threading.Lock()
        self._archives: dict[str, Archive] = {}
        self._draining = False

    def __len__(self) -> int:
        return len(self._archives)

    @property
    def used_bytes(self) -> int:
        """Bytes that the archives take, but for their tags: see `KeptTags`."""
        return self._maker.used_bytes

    @property
    def budget_bytes(self) -> int:
        """Bytes that they may take together."""
        return self._maker.budget_bytes

    @property
    def arithmetic(self) -> str:
        """Names what computes: bits of archives are equal only when these are."""
        return self._maker.arithmetic

    @property
    def positions(self) -> int:
        """Positions that they keep, of all sessions."""
        return sum(_kept(archive) for archive in self._all)

    @property
    def saved_bytes(self) -> int:
        """Bytes that these positions would take besides if they were not packed."""
        return sum(
            _kept(archive) * archive.opening.shape.saved_bytes_per_position for archive in self._all
        )

    @property
    def _all(self) -> list[Archive]:
        with self._lock:
            return list(self._archives.values())

    def open(self, opening: Opening, caller: Caller = NOBODY, owner: str = "") -> Archive:
        """Admits a session of `caller`; its archive waits to be attached by `owner`.

        Raises `Draining`, `ArchiveFull`, `RestorerMismatch`, `ModelUnusable`.
        """
        self._refuse_when_draining()
        self._maker.check(opening)
        # As much as a store takes, which grows by whole segments.
        first = opening.first_position
        positions = max(opening.expected_positions, LEAST_POSITIONS)
        expected = contiguous_placement(first + positions, first)
        if self._places.would_refuse(caller):
            self._reclaim()
        self._places.take(caller)
        with ExitStack() as undo:
            undo.callback(self._places.give_back, caller)
            self._check_bytes(expected.slots * opening.shape.bytes_per_position)
            with self._shortage_told():
                store = self._maker.make(opening)
            undo.pop_all()
        return self._entered(opening, store, KeptTags(*_tagged(opening)), caller, owner)

    def attach(self, archive_id: str, owner: str = "") -> Archive:
        """The archive, from now on the caller's alone. Raises `ArchiveNotFound`.

        Another node's archive does not exist.
        """
        with self._lock:
            archive = self._waiting(archive_id, owner)
            archive.attached = True
            archive.used_at = self._clock()
            return archive

    def used(self, archive: Archive) -> None:
        """Renews the lease of an attached archive. Raises `ArchiveNotFound`, `Draining`."""
        if archive.expired:
            self._refuse_when_draining()
            raise _not_found(archive.archive_id)
        archive.used_at = self._clock()

    def deposit(self, archive: Archive, first: int, evicted: Evicted, tags: Tags) -> None:
        """Keeps positions `first` onwards. Raises `RestorerRefused`, `ArchiveFull`."""
        with self._shortage_told():
            archive.store.deposit(first, evicted)
        archive.tags.add(tags)

    def reserve(self, archive: Archive, end: int) -> None:
        """Keeps memory for the positions below `end`. Raises `RestorerRefused`, `ArchiveFull`."""
        with self._shortage_told():
            archive.store.reserve(end)

    def fork(self, archive: Archive, length: int) -> Archive:
        """An archive of an attached one's positions below `length`. Raises `ArchiveFull`."""
        self._places.take(archive.caller)
        with ExitStack() as undo:
            undo.callback(self._places.give_back, archive.caller)
            with self._shortage_told():
                store = archive.store.fork(length)
            undo.pop_all()
        tags = archive.tags.fork(length)
        return self._entered(archive.opening, store, tags, archive.caller, archive.owner)

    def release(self, archive: Archive) -> None:
        """Ends an attached archive and gives its memory back; by the thread that has it."""
        with self._lock:
            self._forget(archive)
        archive.store.release()

    def close(self, archive_id: str, owner: str = "") -> None:
        """Ends an archive that was never attached. Raises `ArchiveNotFound`."""
        with self._lock:
            archive = self._waiting(archive_id, owner)
            self._forget(archive)
        archive.store.release()

    def sweep(self, now: float) -> int:
        """Ends those that nobody used for as long as their leases; how many they are."""
        with self._lock:
            idle = [archive for archive in self._archives.values() if archive.is_idle(now)]
            waiting = [archive for archive in idle if not archive.attached]
            for archive in waiting:
                self._forget(archive)
        for archive in waiting:
            archive.store.release()
        for archive in idle:
            _expire(archive)
        return len(idle)

    def drain(self) -> None:
        """Opens none from now on; those that are used go on until `cut_off`."""
        self._draining = True

    def cut_off(self) -> None:
        """Ends all of them, with DRAINING."""
        self._draining = True
        with self._lock:
            archives = list(self._archives.values())
        for archive in archives:
            if archive.attached:
                _expire(archive)
            else:
                self.release(archive)

    def _waiting(self, archive_id: str, owner: str) -> Archive:
        """One that its owner has not attached yet. Raises `ArchiveNotFound`."""
        archive = self._archives.get(archive_id)
        if archive is None or archive.attached or archive.owner != owner:
            raise _not_found(archive_id)
        return archive

    def _refuse_when_draining(self) -> None:
        if self._draining:
            raise Draining("this archive's node is leaving the fleet; take another archive")

    def _reclaim(self) -> None:
        """Ends the archive that is unused for longest, of whoever has the most such."""
        now, least = self._clock(), self.settings.reclaimed_after_seconds
        with self._lock:
            unused = [
                _Unused(archive, archive.caller, 1000.0 * (now - archive.used_at))
                for archive in self._archives.values()
                if now - archive.used_at >= least
            ]
            ended = [each.archive for each in to_reclaim(unused, 1)]
            for archive in ended:
                del self._archives[archive.archive_id]
                self._places.take_back(archive.caller)
        self._end(ended)

    def _free_unused(self, needed: int) -> None:
        """Ends archives that are unused until `needed` bytes are free; none if all would not do.

        Those of whoever keeps the most bytes go first, the longest unused before others. What is
        attached gives its bytes back in its own thread: soon, but not yet.
        """
        latest_use = self._clock() - self.settings.reclaimed_after_seconds
        with self._lock:
            archives = list(self._archives.values())
            missing = needed - (self._maker.budget_bytes - self._maker.used_bytes)
            missing -= sum(archive.store.stored_bytes for archive in archives if archive.expired)
            kept: Counter[Caller] = Counter()
            for archive in archives:
                kept[archive.caller] += archive.store.stored_bytes
            unused = [
                archive
                for archive in archives
                if archive.used_at <= latest_use and not archive.expired
            ]
            unused.sort(key=lambda archive: (-kept[archive.caller], archive.used_at))
            ended = []
            while unused and missing > 0:
                ended.append(unused.pop(0))
                missing -= ended[-1].store.stored_bytes
            if missing > 0:
                return
            for archive in ended:
                if not archive.attached:
                    self._forget(archive)
        self._end(ended)

    def _end(self, archives: Sequence[Archive]) -> None:
        """Those that are attached are released by their streams."""
        for archive in archives:
            if archive.attached:
                _expire(archive)
            else:
                archive.store.release()

    def _forget(self, archive: Archive) -> None:
        """Its place is another's; the store is released by whoever uses it."""
        if self._archives.pop(archive.archive_id, None) is not None:
            self._places.give_back(archive.caller)

    def _entered(
        self, opening: Opening, store: KeepingStore, tags: KeptTags, caller: Caller, owner: str
    ) -> Archive:
        settings = self.settings
        asked = opening.lease_seconds or settings.default_lease_seconds
        lease = min(asked, settings.longest_lease_seconds)
        archive = Archive(
            archive_id=self._ids(),
            opening=opening,
            store=store,
            tags=tags,
            caller=caller,
            lease_seconds=lease,
            attach_seconds=min(lease, settings.attach_seconds),
            used_at=self._clock(),
            owner=owner,
        )
        with self._lock:
            self._archives[archive.archive_id] = archive
        return archive

    def _check_bytes(self, needed: int) -> None:
        if needed > self._maker.budget_bytes - self._maker.used_bytes:
            self._free_unused(needed)
        if needed > self._maker.budget_bytes - self._maker.used_bytes:
            raise self._full(needed)

    @contextmanager
    def _shortage_told(self) -> Iterator[None]:
        """Raises `ArchiveFull` where memory is short, and has unused archives make way."""
        try:
            yield
        except OutOfKvMemory as error:
            needed = int(error.metadata.get("needed_bytes", "0"))
            self._free_unused(needed)
            raise self._full(needed) from error

    def _full(self, needed: int) -> ArchiveFull:
        budget = self._maker.budget_bytes
        free = max(0, budget - self._maker.used_bytes)
        figures = {"needed_bytes": str(needed), "free_bytes": str(free)}
        if needed > budget:
            return ArchiveFull(
                f"an archive of {needed} bytes never fits the {budget} that this node gives",
                **figures,
            )
        return ArchiveFull(
            f"an archive needs {needed} bytes and {free} are free here",
            retry_after_seconds=str(self.settings.retry_seconds),
            **figures,
        )


def _kept(archive: Archive) -> int:
    opening = archive.opening
    return max(0, archive.store.length - max(opening.shape.sink, opening.first_position))


def _tagged(opening: Opening) -> tuple[tuple[int, ...], int, int]:
    """Which layers have tags, from which position on, at which; context vectors have none."""
    shape = opening.shape
    layers = () if shape.width else shape.layers
    return layers, max(opening.first_position, shape.sink), shape.tile


def _expire(archive: Archive) -> None:
    archive.expired = True
    for tell in archive.on_expiry:
        tell()


def _not_found(archive_id: str) -> ArchiveNotFound:
    return ArchiveNotFound(
        "no archive of that id is free to be used here: it has expired, was released, or never was",
        archive_id=archive_id[:8],
    )
