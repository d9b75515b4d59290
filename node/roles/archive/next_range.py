"""A range that will be needed: the verifier's thread asks, the event loop's opens a store."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from kakeya_fleet.engine.restoration.ranges import RangeStore
from kakeya_fleet.fleet.placement.archive_choice import ArchiveCandidate
from kakeya_fleet.node.roles.archive.remote_store import RemoteEvictedStore
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault


@dataclass(frozen=True, slots=True)
class RangePart:
    """A store of a range, and whose archive it is; None in the verifier's own process."""

    store: RangeStore
    where: ArchiveCandidate | None

    @property
    def is_lost(self) -> bool:
        """Whether its archive is, as far as is known."""
        return isinstance(self.store, RemoteEvictedStore) and self.store.lost

    @property
    def fault(self) -> RestorerFault | None:
        """Why its archive was lost, as far as is known."""
        return self.store.fault if isinstance(self.store, RemoteEvictedStore) else None

    @property
    def audit_count(self) -> int:
        """Its archive's answers that were computed again, and were right."""
        return self.store.audit_count if isinstance(self.store, RemoteEvictedStore) else 0


class NextRange:
    """Positions `first` to `end`, exclusive. Any thread may call.

    Who opens goes on while it `is_wanted`; a store that comes too late is released.
    """

    def __init__(self, first: int, end: int) -> None:
        self.first = first
        self.end = end
        self._changed = threading.Condition()
        self._part: RangePart | None = None
        self._refusal = ""
        self._is_left = False

    @property
    def is_wanted(self) -> bool:
        """Whether a store would still be taken."""
        return not self._is_left and self._part is None

    @property
    def refusal(self) -> str:
        """Why there is none yet."""
        return self._refusal or "none was opened in time"

    def offer(self, part: RangePart) -> None:
        """Hands over an open store with the memory for the range."""
        with self._changed:
            if self.is_wanted:
                self._part = part
                self._changed.notify_all()
                return
        part.store.release()

    def refuse(self, words: str) -> None:
        """Says why there is none now. Who waits is told; a later offer is taken all the same."""
        with self._changed:
            self._refusal = words
            self._changed.notify_all()

    def wait(self, seconds: float) -> RangePart | None:
        """The store, the caller's from now on; None when none is there in time, or can be had."""
        with self._changed:
            self._changed.wait_for(lambda: self._part is not None or self._refusal, seconds)
            part, self._part = self._part, None
            self._is_left = part is not None
            return part

    def leave(self) -> None:
        """Wants none any more, and releases what has come."""
        with self._changed:
            self._is_left = True
            part, self._part = self._part, None
        if part is not None:
            part.store.release()
