"""All sessions of one verifier: byte budget, time to live, eviction, retries."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import BadParameters, SessionNotFound
from kakeya_fleet.engine.memory.eviction import chosen_to_free, freed_together
from kakeya_fleet.engine.memory.refusals import Shortage
from kakeya_fleet.engine.sessions.creation_requests import CreationRequests, check_request_id
from kakeya_fleet.engine.sessions.ended import LOST_WITH_GROUP, ended_error
from kakeya_fleet.engine.sessions.session import Session

DEFAULT_TTL_SECONDS = 1800.0
# A client between two calls of one conversation is not idle yet.
DEFAULT_MIN_IDLE_SECONDS = 60.0
# Ids of ended sessions that are remembered, to say how they ended.
REMEMBERED_ENDS = 4096
MAX_LABEL_CHARACTERS = 128


class EndReason(StrEnum):
    """How a session ended."""

    CLOSED = "closed"
    IDLE = "evicted after its time to live"
    MEMORY = "evicted to make room"
    INVARIANT = "ended by a broken promise"
    GROUP = LOST_WITH_GROUP
    DRAINED = "ended as its node left"


class Activity(StrEnum):
    """What a session does."""

    IDLE = "idle"
    APPENDING = "appending"
    GENERATING = "generating"


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What the client said when it opened the session."""

    client_label: str = ""
    stop_token_ids: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if len(self.client_label) > MAX_LABEL_CHARACTERS:
            raise BadParameters(
                f"the client label has more than {MAX_LABEL_CHARACTERS} characters",
                field="client_label",
            )


@dataclass(slots=True)
class SessionRecord:
    """A session in the store. Seconds are those of the store's clock."""

    session_id: str
    ordinal: int
    session: Session
    options: SessionOptions
    created_at: float
    last_used_at: float
    activities: list[Activity] = field(default_factory=list)

    @property
    def held(self) -> bool:
        """Whether an operation runs or waits."""
        return bool(self.activities)

    @property
    def activity(self) -> Activity:
        """What the latest holder does. Any thread may ask."""
        latest = self.activities[-1:]
        return latest[0] if latest else Activity.IDLE

    def idle_seconds(self, now: float) -> float:
        """Seconds since its last operation ended; 0 while one runs."""
        return 0.0 if self.held else max(0.0, now - self.last_used_at)


@dataclass(slots=True)
class _Ends:
    """How sessions ended: counts of all, reasons of the latest."""

    counts: dict[EndReason, int] = field(default_factory=lambda: dict.fromkeys(EndReason, 0))
    reasons: OrderedDict[str, str] = field(default_factory=OrderedDict)

    def add(self, session_id: str, reason: EndReason, words: str) -> None:
        self.counts[reason] += 1
        self.reasons[session_id] = words
        if len(self.reasons) > REMEMBERED_ENDS:
            self.reasons.popitem(last=False)


def _ignore(_session_id: str, _reason: EndReason) -> None:
    """The default of `on_end`."""


class SessionStore:
    """Sessions by id, oldest first.

    The verifier's pool is given `budget_bytes`, and counts what the sessions
    hold, shared memory once. A session that no one holds is evicted by `sweep`
    once it is idle for `ttl_seconds`, and before that, least recently used
    first, when a new one does not fit, or another finds no room to grow, and it is
    idle for `min_idle_seconds`. One that is held is never evicted.

    A session is admitted by what its cache takes at once: all that it will ever take,
    unless the cache grows. What such a one needs later is not promised: without room,
    and nothing to evict for it, the operation that needs it raises `OutOfKvMemory`,
    and the session stays as it is.

    Any thread may call. `create` and `fork` call the verifier, so they belong
    in its thread. `on_end(session_id, reason)` is called in the caller's thread
    and must not call back.
    """

    def __init__(
        self,
        verifier: Verifier,
        budget_bytes: int,
        *,
        clock: Callable[[], float],
        ids: Callable[[], str],
        ttl_seconds: float = DEFAULT_TTL_SECONDS,
        min_idle_seconds: float = DEFAULT_MIN_IDLE_SECONDS,
        on_end: Callable[[str, EndReason], None] = _ignore,
    ) -> None:
        verifier.pool.budget_bytes = budget_bytes
        verifier.pool.on_full = self._make_growth_room
        self._verifier = verifier
        self._pool = verifier.pool
        self._budget_bytes = budget_bytes
        self._clock = clock
        self._ids = ids
        self._ttl_seconds = ttl_seconds
        self._min_idle_seconds = min(min_idle_seconds, ttl_seconds)
        self._on_end = on_end
        self._lock = threading.RLock()
        self._records: OrderedDict[str, SessionRecord] = OrderedDict()
        self._requests = CreationRequests()
        self._ends = _Ends()
        self._next_ordinal = 1
        self._group_lost = False

    @property
    def budget_bytes(self) -> int:
        """K/V bytes that the sessions may take together."""
        return self._budget_bytes

    @property
    def ttl_seconds(self) -> float:
        """Idle seconds after which a session is evicted."""
        return self._ttl_seconds

    @property
    def kv_bytes(self) -> int:
        """K/V bytes of all sessions: held, and reserved for what they share and will write."""
        return self._pool.used_bytes

    @property
    def available_bytes(self) -> int:
        """K/V bytes that a new session may take now, idle ones evicted."""
        with self._lock:
            idle = self._evictable(self._clock())
            evicted = freed_together(record.session.slabs for record in idle)
            return max(0, self._budget_bytes - self.kv_bytes + evicted)

    @property
    def ends(self) -> Mapping[EndReason, int]:
        """How many sessions ended, by reason."""
        return MappingProxyType(self._ends.counts)

    def __len__(self) -> int:
        return len(self._records)

    def create(
        self,
        spec: CacheSpec,
        options: SessionOptions | None = None,
        request_id: str = "",
        *,
        evicted: EvictedStore | None = None,
    ) -> SessionRecord:
        """A new session with an empty history.

        One with a `restored` cache takes over `evicted`, which is released when
        there is none to take it. The same `request_id` within ten minutes
        returns the session that it opened, if it still lives. Raises
        `OutOfKvMemory`, `BadParameters` (also for a `request_id` that asked for
        something else), and what the verifier raises for the spec.
        """
        options = options if options is not None else SessionOptions()
        with ExitStack() as undo:
            if evicted is not None:
                undo.callback(evicted.release)
            check_request_id(request_id)
            needed = self._verifier.bytes_needed(spec)
            with self._lock:
                earlier = self._created_by(request_id, spec, options)
                if earlier is not None:
                    return earlier
                self._make_room(needed)
            session = Session.allocate(self._verifier, spec, evicted)
            undo.pop_all()
        record = self._insert(session, options)
        with self._lock:
            self._requests.remember(
                request_id, record.session_id, (spec, options), record.created_at
            )
        return record

    def created(self, request_id: str) -> SessionRecord | None:
        """The living session that `request_id` opened within ten minutes; None without one."""
        with self._lock:
            session_id = self._requests.found(request_id, self._clock())
            record = self._records.get(session_id or "")
            return record if record is not None and not record.session.end_reason else None

    def renew(self, session_id: str, evicted: EvictedStore | None = None) -> None:
        """Begins a session's cache anew over `evicted`: see `Session.renew`.

        Belongs in the verifier's thread. When this raises, `evicted` is released.
        """
        with ExitStack() as undo:
            if evicted is not None:
                undo.callback(evicted.release)
            with self.hold(session_id, self.get(session_id).activity) as record:
                record.session.renew(evicted)
            undo.pop_all()

    def get(self, session_id: str) -> SessionRecord:
        """The live session; raises `SessionNotFound` or `GroupLost`, saying how it ended."""
        with self._lock:
            record = self._records.get(session_id)
            if record is not None and record.session.end_reason:
                self._remove(record, EndReason.INVARIANT)
                record = None
            if record is not None:
                return record
            ended = self._ends.reasons.get(session_id)
        if ended is None:
            raise SessionNotFound(
                f"session {session_id[:64]!r} is not known to this node; open a new one and append"
                " the history",
                session_id=session_id[:64],
            )
        raise ended_error(f"session {session_id[:64]!r}", ended, session_id=session_id[:64])

    @contextmanager
    def hold(self, session_id: str, activity: Activity) -> Iterator[SessionRecord]:
        """Keeps the session from being evicted, and shows what it does.

        Holds may nest; the session is idle when the last one ends. Raises
        `SessionNotFound`.
        """
        with self._lock:
            record = self.get(session_id)
            record.activities.append(activity)
        try:
            yield record
        finally:
            with self._lock:
                record.activities.remove(activity)
                record.last_used_at = self._clock()
                if record.session.end_reason and session_id in self._records:
                    self._remove(record, EndReason.INVARIANT)

    def fork(self, session_id: str, history_length: int | None = None) -> SessionRecord:
        """A new session with the first `history_length` tokens of another, all by default.

        Raises `SessionNotFound`, `OutOfKvMemory`, `HistoryLengthMismatch`.
        """
        with self.hold(session_id, self.get(session_id).activity) as origin:
            # Checked before another session is evicted for it.
            origin.session.check_prefix(history_length)
            needed = origin.session.fork_bytes(history_length)
            with self._lock:
                self._make_room(needed, beside=origin.session.memory_bytes)
            return self._insert(origin.session.fork(history_length), origin.options)

    def close(self, session_id: str) -> int:
        """Ends the session, frees its memory, returns its history's length.

        A step that runs in the verifier's thread ends first; the next one
        raises `SessionNotFound`. Raises `SessionNotFound`.
        """
        with self._lock:
            record = self.get(session_id)
            self._remove(record, EndReason.CLOSED)
            return len(record.session.history)

    def close_all(self, reason: EndReason = EndReason.CLOSED) -> None:
        """Ends every session, for this reason; for `GROUP` also those that are being made."""
        with self._lock:
            self._group_lost = self._group_lost or reason is EndReason.GROUP
            for record in list(self._records.values()):
                self._remove(record, reason)

    def page(self, after: int = 0, size: int = 100) -> tuple[list[SessionRecord], int | None]:
        """Sessions with an ordinal above `after`, oldest first, at most `size`.

        The second value is the `after` of the next page, None at the end.
        """
        with self._lock:
            later = [record for record in self._records.values() if record.ordinal > after]
        page = later[:size]
        return page, page[-1].ordinal if len(later) > len(page) and page else None

    def sweep(self, now: float) -> int:
        """Evicts what is idle beyond its time to live; how many sessions ended."""
        with self._lock:
            self._requests.forget(now)
            ended = 0
            for record in list(self._records.values()):
                if record.session.end_reason:
                    self._remove(record, EndReason.INVARIANT)
                elif not record.held and record.idle_seconds(now) >= self._ttl_seconds:
                    self._remove(record, EndReason.IDLE)
                else:
                    continue
                ended += 1
            return ended

    def _insert(self, session: Session, options: SessionOptions) -> SessionRecord:
        now = self._clock()
        with self._lock:
            if self._group_lost:
                session.end(EndReason.GROUP.value)
                raise ended_error("the session that was being made", EndReason.GROUP.value)
            record = SessionRecord(self._ids(), self._next_ordinal, session, options, now, now)
            if record.session_id in self._records:
                raise ValueError(f"session id {record.session_id} was given twice")
            self._next_ordinal += 1
            self._records[record.session_id] = record
        return record

    def _remove(self, record: SessionRecord, reason: EndReason) -> None:
        del self._records[record.session_id]
        record.session.end(reason.value)
        self._ends.add(record.session_id, reason, record.session.end_reason)
        self._on_end(record.session_id, reason)

    def _created_by(
        self, request_id: str, spec: CacheSpec, options: SessionOptions
    ) -> SessionRecord | None:
        self._requests.check(request_id, (spec, options), self._clock())
        return self.created(request_id)

    def _evictable(self, now: float) -> list[SessionRecord]:
        """Sessions that may be evicted for another, the least recently used first."""
        idle = [
            record
            for record in self._records.values()
            if not record.held and record.idle_seconds(now) >= self._min_idle_seconds
        ]
        return sorted(idle, key=lambda record: record.last_used_at)

    def _make_room(self, needed: int, beside: int = 0) -> None:
        """Evicts until `needed` bytes are free; nothing in vain. A fork's origin keeps `beside`."""
        now = self._clock()
        if not self._evicted_for(needed, now):
            raise self._shortage(needed, now).of_a_new_session(beside)

    def _make_growth_room(self, needed: int) -> None:
        """The same for a session that lives, in the thread of its operation, which holds it."""
        with self._lock:
            now = self._clock()
            if not self._evicted_for(needed, now):
                raise self._shortage(needed, now).of_growth()

    def _evicted_for(self, needed: int, now: float) -> bool:
        """Whether `needed` bytes are free, idle sessions evicted; none if all would not do."""
        missing = needed - (self._budget_bytes - self.kv_bytes)
        if missing <= 0:
            return True
        idle = self._evictable(now)
        victims = chosen_to_free([record.session.slabs for record in idle], missing)
        for index in victims or ():
            self._remove(idle[index], EndReason.MEMORY)
        return victims is not None

    def _shortage(self, needed: int, now: float) -> Shortage:
        waits = [
            self._min_idle_seconds - record.idle_seconds(now)
            for record in self._records.values()
            if not record.held
        ]
        wait = min((wait for wait in waits if wait > 0.0), default=self._min_idle_seconds)
        free = max(0, self._budget_bytes - self.kv_bytes)
        return Shortage(needed, free, self._budget_bytes, max(1.0, wait))
