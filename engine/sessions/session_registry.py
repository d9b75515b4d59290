"""All sessions of a process: admitted by bytes, held, evicted, listed, and how they ended."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Generic

from kakeya_fleet.engine.contracts.cache import CacheSpec
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.sessions import making_way
from kakeya_fleet.engine.sessions.closings import Closings
from kakeya_fleet.engine.sessions.creation_requests import CreationRequests, check_request_id
from kakeya_fleet.engine.sessions.ended import EndedSessions, EndReason, ended_error
from kakeya_fleet.engine.sessions.memory_admission import MemoryAdmission, fitting
from kakeya_fleet.engine.sessions.places import Places, Unbounded
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_record import (
    Activity,
    KvBudget,
    Opened,
    SessionOptions,
    SessionRecord,
)
from kakeya_fleet.engine.sessions.waking import Room

DEFAULT_TTL_SECONDS = 1800.0
# A client between two calls of one conversation is not idle yet.
DEFAULT_MIN_IDLE_SECONDS = 60.0


def _ignore(_record: SessionRecord[Opened], _reason: EndReason) -> None:
    """The default of `on_end`."""


def _ignore_rest(_record: SessionRecord[Opened], _nbytes: int) -> None:
    """The default of `on_rest`."""


class SessionRegistry(Generic[Opened]):
    """Sessions of all verifiers by id, and how those that are no more ended.

    One lock guards all that it knows, and any thread may call. `create`, `fork` and
    `renew` call the verifier, so they belong in its thread. `on_end(record, reason)` and
    `on_rest(record, nbytes)` are called under the lock, in the thread that ended the session or
    gave back so many bytes of it: they must return at once and not call back.

    A verifier's pool is given the bytes of its `KvBudget`, and counts what its sessions
    hold, shared memory once. Idle sessions give way where a new one of their verifier does not
    fit, or another finds no room to grow or to wake: those that can rest do, and stay, others
    end (see `making_way`). So does one whose place another needs, and `sweep` ends what is idle
    for `ttl_seconds`. Nothing of one that is held is taken.

    A session is admitted by what its cache takes at once: all that it will ever take,
    unless the cache grows. What such a one needs later is not promised: without room,
    and nothing to evict for it, the operation that needs it raises `OutOfKvMemory`,
    and the session stays as it is.

    A session that was created is known to its creator alone. `open` gives it its place
    among those that its owner finds and lists, with what whoever serves it keeps with it.

    Where an `owner` is given, sessions of others are not there: whoever asks for one is told
    what one who asks for a session that never was is told. None stands for the node itself.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        ids: Callable[[], str],
        ttl_seconds: float = DEFAULT_TTL_SECONDS,
        min_idle_seconds: float = DEFAULT_MIN_IDLE_SECONDS,
        on_end: Callable[[SessionRecord[Opened], EndReason], None] = _ignore,
        on_rest: Callable[[SessionRecord[Opened], int], None] = _ignore_rest,
        places: Places | None = None,
    ) -> None:
        """`clock` gives monotonic seconds, `ids` an id for each session.

        Each session has one of `places`; without them memory alone bounds their number.
        """
        self._clock = clock
        self._ids = ids
        self._ttl_seconds = ttl_seconds
        self._min_idle_seconds = min(min_idle_seconds, ttl_seconds)
        self._on_end = on_end
        self._places: Places = places if places is not None else Unbounded()
        self._lock = threading.RLock()
        self._records: dict[str, SessionRecord[Opened]] = {}
        self._requests = CreationRequests()
        self._closings = Closings()
        self._ended = EndedSessions()
        self._last_ordinal = 0
        self._memory = MemoryAdmission(
            of=self._of,
            evict=lambda record: self._remove(record, EndReason.MEMORY),
            on_rest=on_rest,
            clock=clock,
            min_idle_seconds=self._min_idle_seconds,
        )

    def __len__(self) -> int:
        return len(self._records)

    def add_verifier(self, verifier: Verifier, budget_bytes: int) -> KvBudget:
        """Gives the sessions of a verifier `budget_bytes` together."""
        budget = KvBudget(verifier, budget_bytes)

        def make_room(needed: int) -> None:
            """For a session that lives, in the thread of its operation, which holds it."""
            with self._lock:
                self._memory.to_grow(budget, needed)

        verifier.pool.budget_bytes = budget_bytes
        verifier.pool.on_full = make_room
        return budget

    def share(self, budget: KvBudget, budget_bytes: int) -> None:
        """Gives them another amount; sessions that hold more keep it, and do not grow."""
        with self._lock:
            budget.nbytes = budget.verifier.pool.budget_bytes = budget_bytes

    def available_bytes(self, budget: KvBudget) -> int:
        """K/V bytes that a new session may take now, idle ones evicted."""
        with self._lock:
            return self._memory.available_bytes(budget)

    def idle_seconds(self) -> float:
        """Seconds since a session was last used: 0 while one is, infinite without any."""
        with self._lock:
            now = self._clock()
            idle = (record.idle_seconds(now) for record in self._records.values())
            return min(idle, default=math.inf)

    def create(
        self,
        budget: KvBudget,
        spec: CacheSpec,
        options: SessionOptions | None = None,
        request_id: str = "",
        *,
        evicted: EvictedStore | None = None,
        smaller: CacheSpec | None = None,
        first: CacheSpec | None = None,
        owner: str = "",
    ) -> SessionRecord[Opened]:
        """A new session with an empty history, of the verifier of `budget`.

        There is room for all of `first`, where that is given: what a cache that grows takes with
        its first tokens. One with a `restored` cache takes over `evicted`, which is released when
        there is none to take it. One that may be `smaller` is, from the start, where its memory
        is not free, and else once it is short of memory: see `engine.sessions.waking`.

        The same `request_id` of the same owner within ten
        minutes returns the session that it opened, if it still lives. Raises
        `OutOfKvMemory`, `BadParameters` (also for a `request_id` that asked for
        something else), `GroupLost`, and what the places raise, and the verifier
        for the spec.
        """
        options = options if options is not None else SessionOptions()
        with ExitStack() as undo:
            if evicted is not None:
                undo.callback(evicted.release)
            check_request_id(request_id)
            asked_for = (spec, options)
            with self._lock:
                self._requests.check(budget, owner, request_id, asked_for, self._clock())
                earlier = self.created(budget, request_id, owner=owner)
                if earlier is not None:
                    return earlier
                self._take_place(owner)
                undo.callback(self._places.give_back, owner)
                fits = fitting(budget, spec, smaller)
                first = first if first is not None and fits is spec else fits
                self._memory.for_new(budget, budget.verifier.bytes_needed(first), owner)
                spec = fits
            session = Session.allocate(budget.verifier, spec, evicted)
            session.waking.smaller = smaller
            undo.pop_all()
        with self._lock:
            record = self._insert(session, options, budget, owner)
            self._requests.remember(
                budget, owner, request_id, record.session_id, asked_for, record.created_at
            )
        return record

    def created(
        self, budget: KvBudget, request_id: str, *, owner: str = ""
    ) -> SessionRecord[Opened] | None:
        """The living session that the owner's `request_id` opened within ten minutes, if any."""
        with self._lock:
            session_id = self._requests.found(budget, owner, request_id, self._clock())
            record = self._records.get(session_id or "")
            return record if record is not None and not record.session.end_reason else None

    def open(self, record: SessionRecord[Opened], opened: Opened) -> None:
        """Lists a session from now on, behind all others. Raises as `get` when it has ended."""
        with self._lock:
            self.get(record.session_id)
            self._last_ordinal += 1
            record.ordinal, record.opened = self._last_ordinal, opened

    def renew(self, session_id: str, evicted: EvictedStore | None = None) -> None:
        """Begins a session's cache anew over `evicted`: see `Session.renew`.

        When this raises, `evicted` is released.
        """
        with ExitStack() as undo:
            if evicted is not None:
                undo.callback(evicted.release)
            with self.hold(session_id, self.get(session_id).activity) as record:
                record.session.renew(evicted)
            undo.pop_all()

    def get(self, session_id: str, owner: str | None = None) -> SessionRecord[Opened]:
        """The live session; raises `SessionNotFound` or `GroupLost`, saying how it ended."""
        with self._lock:
            record = self._records.get(session_id)
            if record is not None and owner not in (None, record.owner):
                raise self._ended.error(session_id, owner)
            if record is not None and record.session.end_reason:
                self._remove(record, EndReason.INVARIANT)
                record = None
            if record is None:
                raise self._ended.error(session_id, owner)
            return record

    def opened(self, session_id: str, owner: str | None = None) -> Opened:
        """What was given to `open` of a live session; raises as `get`, also before that."""
        with self._lock:
            opened = self.get(session_id, owner).opened
            if opened is None:
                raise self._ended.error(session_id, owner)
            return opened

    @contextmanager
    def hold(self, session_id: str, activity: Activity) -> Iterator[SessionRecord[Opened]]:
        """Keeps the session from being evicted, and shows what it does.

        Holds may nest; the session is idle when the last one ends. Raises as `get`.
        """
        with self._lock:
            record = self.get(session_id)
            record.activities.append(activity)
            self._memory.refused.changed()
            if activity in (Activity.APPENDING, Activity.GENERATING):
                record.gives_way = False
        try:
            yield record
        finally:
            with self._lock:
                record.activities.remove(activity)
                record.last_used_at = self._clock()
                self._memory.refused.changed()
                if record.session.end_reason and session_id in self._records:
                    self._remove(record, EndReason.INVARIANT)

    def fork(
        self,
        session_id: str,
        history_length: int | None = None,
        *,
        owner: str = "",
        request_id: str = "",
    ) -> SessionRecord[Opened]:
        """A new session with the first `history_length` tokens of another, all by default.

        The same `request_id` within ten minutes returns the session that it opened, if it still
        lives. Raises as `get`, and `OutOfKvMemory`, `HistoryLengthMismatch`, `BadParameters` for
        a `request_id` that asked for something else, and what the places raise.
        """
        check_request_id(request_id)
        asked_for = (session_id, history_length)
        with (
            self.hold(session_id, self.get(session_id).activity) as origin,
            ExitStack() as undo,
        ):
            # Checked before another session is evicted for it.
            origin.session.check_prefix(history_length)
            needed = origin.session.fork_bytes(history_length)
            with self._lock:
                self._requests.check(origin.budget, owner, request_id, asked_for, self._clock())
                earlier = self.created(origin.budget, request_id, owner=owner)
                if earlier is not None:
                    return earlier
                self._take_place(owner)
                undo.callback(self._places.give_back, owner)
                self._memory.for_new(origin.budget, needed, owner, origin)
            forked = origin.session.fork(history_length)
            undo.pop_all()
            record = self._insert(forked, origin.options, origin.budget, owner)
        with self._lock:
            self._requests.remember(
                record.budget, owner, request_id, record.session_id, asked_for, record.created_at
            )
        return record

    def close(self, session_id: str, owner: str | None = None, request_id: str = "") -> int:
        """Ends the session, frees its memory, returns its history's length.

        So does the same `request_id` within ten minutes, which ended it before. A step that runs
        in the verifier's thread ends first; the next one raises `SessionNotFound`. Raises as
        `get`, and `BadParameters`.
        """
        check_request_id(request_id)
        with self._lock:
            now = self._clock()
            answered = self._closings.answer(session_id, owner, request_id, now)
            if answered is not None:
                return answered
            record = self.get(session_id, owner)
            self._remove(record, EndReason.CLOSED)
            length = len(record.session.history)
            self._closings.remember(session_id, record.owner, request_id, length, now)
            return length

    def check_room(
        self,
        budget: KvBudget,
        spec: CacheSpec,
        owner: str = "",
        *,
        smaller: CacheSpec | None = None,
    ) -> None:
        """Refuses now what `create` would: for those who do other work before it.

        Nothing is evicted, and nothing kept for the caller. Raises `OutOfKvMemory`, and what the
        places raise.
        """
        needed = budget.verifier.bytes_needed(fitting(budget, spec, smaller))
        with self._lock:
            self._memory.check(budget, needed, owner)
            if self._places.would_refuse(owner) and not self._may_make_way(owner):
                # Says why, and counts it.
                self._places.take(owner)
                self._places.give_back(owner)

    def close_all(self, reason: EndReason = EndReason.CLOSED) -> None:
        """Ends every session, for this reason."""
        with self._lock:
            for record in list(self._records.values()):
                self._remove(record, reason)

    def count_of(self, budget: KvBudget) -> int:
        """How many sessions of a verifier live."""
        with self._lock:
            return len(self._of(budget))

    def end_verifier(self, budget: KvBudget, reason: EndReason) -> int:
        """Ends the sessions of a verifier that is gone, also one being made; how many ended."""
        with self._lock:
            budget.end_reason = reason
            self._requests.forget_verifier(budget)
            lost = self._of(budget)
            for record in lost:
                self._remove(record, reason)
            return len(lost)

    def page(
        self, after: int = 0, size: int | None = None, *, owner: str | None = None
    ) -> tuple[list[Opened], int | None]:
        """What `owner` opened, or everybody, with an ordinal above `after`, oldest first.

        At most `size` >= 1 of them, all by default. The second value is the `after` of the
        next page, None at the end.
        """
        with self._lock:
            later = [
                record
                for record in self._records.values()
                if record.ordinal > after and owner in (None, record.owner)
            ]
        later.sort(key=lambda record: record.ordinal)
        page = later[:size]
        opened = [record.opened for record in page if record.opened is not None]
        return opened, page[-1].ordinal if len(later) > len(page) else None

    def sweep(self, now: float) -> int:
        """Evicts what is idle beyond its time to live; how many sessions ended."""
        with self._lock:
            self._requests.forget(now)
            ended = 0
            for record in list(self._records.values()):
                if record.session.end_reason:
                    self._remove(record, EndReason.INVARIANT)
                elif not record.held and record.idle_seconds(now) >= record.ttl_seconds:
                    self._remove(record, EndReason.IDLE)
                else:
                    continue
                ended += 1
            return ended

    def _insert(
        self, session: Session, options: SessionOptions, budget: KvBudget, owner: str
    ) -> SessionRecord[Opened]:
        """Enters one that has its place."""
        now = self._clock()
        with self._lock:
            if budget.end_reason is not None:
                session.end(budget.end_reason.value)
                self._places.give_back(owner)
                raise ended_error("the session that was being made", budget.end_reason.value)
            record: SessionRecord[Opened] = SessionRecord(
                self._ids(), session, options, budget, self._ttl_seconds, now, now, owner
            )
            if record.session_id in self._records:
                raise ValueError(f"session id {record.session_id} was given twice")
            self._records[record.session_id] = record
            self._memory.refused.changed()
            # Of the record it knows nothing: a session that has ended leaves no cycle behind.
            session.waking.room = Room(budget.has_free, partial(self._room_to_wake, budget, owner))
        return record

    def _remove(self, record: SessionRecord[Opened], reason: EndReason) -> None:
        del self._records[record.session_id]
        self._memory.refused.changed()
        self._places.give_back(record.owner)
        record.session.end(reason.value)
        self._ended.add(record.session_id, record.session.end_reason, record.owner)
        self._on_end(record, reason)

    def _take_place(self, owner: str) -> None:
        """One of the places; where there is none, one that an idle session had."""
        if self._places.would_refuse(owner):
            idle = self._may_make_way(owner)
            if idle is not None:
                self._remove(idle, EndReason.MEMORY)
        self._places.take(owner)

    def _may_make_way(self, owner: str) -> SessionRecord[Opened] | None:
        """An idle session whose end would give `owner` a place; None without one."""
        idle = making_way.for_a_place(
            self._records.values(),
            owner,
            now=self._clock(),
            min_idle_seconds=self._min_idle_seconds,
        )
        return next(
            (each for each in idle if not self._places.would_refuse(owner, after=each.owner)), None
        )

    def _of(self, budget: KvBudget) -> list[SessionRecord[Opened]]:
        return [record for record in self._records.values() if record.budget is budget]

    def _room_to_wake(self, budget: KvBudget, owner: str, needed: int) -> None:
        """For one of `owner`, in the thread of its operation, which holds it."""
        with self._lock:
            self._memory.to_wake(budget, needed, owner)
