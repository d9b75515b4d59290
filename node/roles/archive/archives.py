"""The archives of one node: admitted by bytes, leased, each the secret of one session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from kakeya_fleet.engine.contracts.evicted_store import Evicted
from kakeya_fleet.engine.contracts.positions import contiguous_placement
from kakeya_fleet.engine.errors import OutOfKvMemory
from kakeya_fleet.engine.restoration.ranges import RangeStore
from kakeya_fleet.fleet.placement.archive_choice import LEAST_POSITIONS
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.caller import NOBODY, Caller
from kakeya_fleet.node.roles.archive.opening import Opening
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

    def make(self, opening: Opening) -> RangeStore:
        """An empty store. Raises `OutOfKvMemory`, `RestorerMismatch`, `ModelUnusable`."""
        ...


@dataclass(slots=True)
class Archive:
    """One session's archive. `store` belongs to the thread of its stream once attached.

    `lease_seconds` without use end it, `attach_seconds` if nobody has come for it.
    """

    archive_id: str
    opening: Opening
    store: RangeStore
    caller: Caller
    lease_seconds: float
    attach_seconds: float
    used_at: float
    attached: bool = False
    expired: bool = False
    on_expiry: list[Callable[[], object]] = field(default_factory=list)

    def is_idle(self, now: float) -> bool:
        """Whether nobody used it for as long as its lease, or came for it at all."""
        most = self.lease_seconds if self.attached else self.attach_seconds
        return now - self.used_at >= most


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
        self._places = allowances.share("archives.at_once", ArchiveFull)
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
        """Bytes that the archives take."""
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
        with self._lock:
            archives = list(self._archives.values())
        return sum(_kept(archive) for archive in archives)

    def open(self, opening: Opening, caller: Caller = NOBODY) -> Archive:
        """Admits a session of `caller`; its archive waits to be attached.

        Raises `Draining`, `ArchiveFull`, `RestorerMismatch`, `ModelUnusable`.
        """
        self._refuse_when_draining()
        self._maker.check(opening)
        # As much as a store takes, which grows by whole segments.
        first = opening.first_position
        positions = max(opening.expected_positions, LEAST_POSITIONS)
        expected = contiguous_placement(first + positions, first)
        self._places.take(caller)
        with ExitStack() as undo:
            undo.callback(self._places.give_back, caller)
            self._check_bytes(expected.slots * opening.shape.bytes_per_position)
            try:
                store = self._maker.make(opening)
            except OutOfKvMemory as error:
                raise self._full(int(error.metadata.get("needed_bytes", "0"))) from error
            undo.pop_all()
        return self._entered(opening, store, caller)

    def attach(self, archive_id: str) -> Archive:
        """The archive, from now on the caller's alone. Raises `ArchiveNotFound`."""
        with self._lock:
            archive = self._archives.get(archive_id)
            if archive is None or archive.attached:
                raise _not_found(archive_id)
            archive.attached = True
            archive.used_at = self._clock()
            return archive

    def used(self, archive: Archive) -> None:
        """Renews the lease of an attached archive. Raises `ArchiveNotFound`, `Draining`."""
        if archive.expired:
            self._refuse_when_draining()
            raise _not_found(archive.archive_id)
        archive.used_at = self._clock()

    def deposit(self, archive: Archive, first: int, evicted: Evicted) -> None:
        """Keeps positions `first` onwards. Raises `RestorerRefused`, `ArchiveFull`."""
        try:
            archive.store.deposit(first, evicted)
        except OutOfKvMemory as error:
            raise self._full(int(error.metadata.get("needed_bytes", "0"))) from error

    def reserve(self, archive: Archive, end: int) -> None:
        """Keeps memory for the positions below `end`. Raises `RestorerRefused`, `ArchiveFull`."""
        try:
            archive.store.reserve(end)
        except OutOfKvMemory as error:
            raise self._full(int(error.metadata.get("needed_bytes", "0"))) from error

    def fork(self, archive: Archive, length: int) -> Archive:
        """An archive of an attached one's positions below `length`. Raises `ArchiveFull`."""
        self._places.take(archive.caller)
        with ExitStack() as undo:
            undo.callback(self._places.give_back, archive.caller)
            try:
                store = archive.store.fork(length)
            except OutOfKvMemory as error:
                raise self._full(int(error.metadata.get("needed_bytes", "0"))) from error
            undo.pop_all()
        return self._entered(archive.opening, store, archive.caller)

    def release(self, archive: Archive) -> None:
        """Ends an attached archive and gives its memory back; by the thread that has it."""
        with self._lock:
            self._forget(archive)
        archive.store.release()

    def close(self, archive_id: str) -> None:
        """Ends an archive that was never attached. Raises `ArchiveNotFound`."""
        with self._lock:
            archive = self._archives.get(archive_id)
            if archive is None or archive.attached:
                raise _not_found(archive_id)
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

    def _refuse_when_draining(self) -> None:
        if self._draining:
            raise Draining("this archive's node is leaving the fleet; take another archive")

    def _forget(self, archive: Archive) -> None:
        """Its place is another's; the store is released by whoever uses it."""
        if self._archives.pop(archive.archive_id, None) is not None:
            self._places.give_back(archive.caller)

    def _entered(self, opening: Opening, store: RangeStore, caller: Caller) -> Archive:
        settings = self.settings
        asked = opening.lease_seconds or settings.default_lease_seconds
        lease = min(asked, settings.longest_lease_seconds)
        archive = Archive(
            archive_id=self._ids(),
            opening=opening,
            store=store,
            caller=caller,
            lease_seconds=lease,
            attach_seconds=min(lease, settings.attach_seconds),
            used_at=self._clock(),
        )
        with self._lock:
            self._archives[archive.archive_id] = archive
        return archive

    def _check_bytes(self, needed: int) -> None:
        if needed > self._maker.budget_bytes - self._maker.used_bytes:
            raise self._full(needed)

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


def _expire(archive: Archive) -> None:
    archive.expired = True
    for tell in archive.on_expiry:
        tell()


def _not_found(archive_id: str) -> ArchiveNotFound:
    return ArchiveNotFound(
        "no archive of that id is free to be used here: it has expired, was released, or never was",
        archive_id=archive_id[:8],
    )
