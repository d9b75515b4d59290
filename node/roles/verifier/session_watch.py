"""The activity of a node's sessions, live."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from kakeya.v1 import runtime_pb2 as wire
from kakeya_fleet.engine.speculation.generation_report import DropReason
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.settings import SessionWatchSettings
from kakeya_fleet.node.roles.verifier.observer import Finished, Outcome, SessionObserver
from kakeya_fleet.node.roles.verifier.open_session import OpenSession, planned
from kakeya_fleet.node.roles.verifier.report_wire import (
    activity_to_wire,
    ended_to_wire,
    session_to_wire,
)
from kakeya_fleet.node.roles.verifier.session_activity import SessionActivity
from kakeya_fleet.node.roles.verifier.watched_sessions import WatchedSessions
from kakeya_fleet.node.watch.pacer import Pacer
from kakeya_fleet.node.watch.watchers import Watcher, Watchers

if TYPE_CHECKING:
    from kakeya_fleet.engine.speculation.generation_report import BlockTiming
    from kakeya_fleet.node.roles.verifier.session_events import SessionEvents

SESSION_QUEUE = 1024
SNAPSHOT_BLOCKS = 8192
"""Of all sessions together: a megabyte of the snapshot."""


def session_info(session: OpenSession, now: float, *, rejections: bool = True) -> wire.SessionInfo:
    """The state of a session; `now` in monotonic seconds."""
    plan = planned(session)
    return session_to_wire(
        session.record,
        # Rejections of a large fleet would not fit a message about many sessions.
        plan=plan if rejections or not plan.rejections else replace(plan, rejections=()),
        restorer=session.restorer,
        quality=session.quality,
        drop_reason=session.pairing.drop_reason,
        now=now,
    )


def _ignore() -> None:
    """The default of `on_change`."""


class SessionWatch(SessionObserver):
    """A `SessionObserver` that those who watch listen to. Belongs to the event loop's thread."""

    def __init__(
        self,
        events: SessionEvents,
        metrics: NodeMetrics,
        clock: Callable[[], float],
        settings: SessionWatchSettings,
        on_change: Callable[[], None] = _ignore,
    ) -> None:
        """`clock` gives monotonic seconds, those of the event loop.

        `on_change` hears of sessions that come and go, and of generations that begin and end.
        """
        self._events = events
        self._settings = settings
        self._clock = clock
        self._activities: dict[str, SessionActivity] = {}
        self._dropped_at: dict[str, tuple[DropReason, float]] = {}
        self._watchers: Watchers[wire.WatchSessionsResponse] = Watchers(metrics, SESSION_QUEUE)
        self._pacer: Pacer[str] = Pacer()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = math.inf
        self._on_change = on_change

    def opened(self, session: OpenSession) -> None:
        """See `SessionObserver.opened`."""
        self._activities[session.session_id] = SessionActivity(session)
        self._tell(session.session_id)

    def prefilled(self, session: OpenSession, token_count: int, seconds: float) -> None:
        """See `SessionObserver.prefilled`."""
        activity = self._activities.get(session.session_id)
        if activity is not None:
            activity.prefilled(token_count, seconds)
            self._mark(session.session_id)

    def began(self, session: OpenSession) -> None:
        """See `SessionObserver.began`."""
        activity = self._activities.get(session.session_id)
        if activity is not None:
            activity.began(self._clock())
            self._tell(session.session_id)

    def committed(self, session: OpenSession, token_count: int) -> None:
        """See `SessionObserver.committed`."""
        activity = self._activities.get(session.session_id)
        if activity is not None:
            activity.committed(token_count, self._clock())
            self._mark(session.session_id)

    def block(self, session: OpenSession, block: BlockTiming) -> None:
        """See `SessionObserver.block`."""
        activity = self._activities.get(session.session_id)
        if activity is not None:
            activity.block(block)
            self._note_proposer(activity)

    def finished(self, session: OpenSession, finished: Finished) -> None:
        """See `SessionObserver.finished`."""
        activity = self._activities.get(session.session_id)
        if activity is None:
            return
        done = finished.done
        seconds = done.timings.total_seconds - done.timings.prefill_seconds
        rate = done.generated_token_count / seconds if seconds > 0.0 else 0.0
        activity.over(done.stop_reason, rate, self._clock())
        self._note_proposer(activity)
        self._tell(session.session_id)

    def left(self, session: OpenSession) -> None:
        """See `SessionObserver.left`."""
        activity = self._activities.get(session.session_id)
        if activity is not None:
            activity.over(None, None, self._clock())
            self._tell(session.session_id)

    def idle(self, session: OpenSession) -> None:
        """See `SessionObserver.idle`."""
        activity = self._activities.get(session.session_id)
        # Its end may have been told while its turn was not over.
        if activity is not None and not activity.told_idle:
            self._mark(session.session_id, self._settings.least_seconds)

    def rested(self, session: OpenSession) -> None:
        """See `SessionObserver.rested`."""
        if session.session_id in self._activities:
            self._mark(session.session_id)

    def ended(self, session: OpenSession, outcome: Outcome) -> None:
        """See `SessionObserver.ended`."""
        if self._activities.pop(session.session_id, None) is None:
            return
        self._pacer.forget(session.session_id)
        self._dropped_at.pop(session.session_id, None)
        self._publish_end(session.session_id, outcome, session.record.owner)
        self._on_change()

    def watched(self, block_count: int, owner: str | None = None) -> WatchedSessions:
        """The owner's sessions, or all; of each at most `block_count` of its latest blocks.

        Ask for it within the context of a new watcher: what was not told to the others
        yet comes to all.
        """
        if len(self._watchers) <= 1:
            for activity in self._activities.values():
                activity.new_blocks()
        most = max(1, min(block_count, SNAPSHOT_BLOCKS // max(1, len(self._activities))))
        return WatchedSessions(self._activities, most, self._told, owner)

    def watcher(
        self, owner: str | None = None
    ) -> AbstractContextManager[Watcher[wire.WatchSessionsResponse]]:
        """A watcher of the owner's sessions, or of all, for as long as the context lasts."""
        return self._watchers.watcher(owner)

    def close(self) -> None:
        """Ends every watch: the node leaves, and its sessions with it."""
        for session_id in self._pacer.take(math.inf):
            self._publish(session_id)
        for session_id, activity in self._activities.items():
            self._publish_end(session_id, Outcome.DRAINED, activity.session.record.owner)
        self._watchers.close()
        if self._timer is not None:
            self._timer.cancel()

    def _note_proposer(self, activity: SessionActivity) -> None:
        """Says when the session has lost its proposer, or has one again."""
        reason = activity.session.pairing.drop_reason
        before, activity.drop_reason = activity.drop_reason, reason
        if reason is before:
            return
        session_id, now = activity.session.session_id, self._clock()
        said = self._dropped_at.get(session_id)
        if reason is None:
            if before is not DropReason.SLOWER_THAN_ALONE:
                self._events.proposer_back(activity.session)
        elif said is None or said[0] is not reason or now - said[1] >= self._settings.quiet_seconds:
            self._dropped_at[session_id] = (reason, now)
            self._events.proposer_dropped(activity.session, reason)
        self._tell(session_id)

    def _tell(self, session_id: str) -> None:
        """Something happened that people wait for."""
        self._on_change()
        self._mark(session_id, self._settings.least_seconds)

    def _mark(self, session_id: str, interval: float | None = None) -> None:
        watcher_count = len(self._watchers)
        if not watcher_count:
            return
        if interval is None:
            told = len(self._activities) * watcher_count
            share = told / self._settings.messages_per_second
            interval = max(self._settings.least_seconds, share)
        self._pacer.mark(session_id, self._clock(), interval)
        self._set_timer()

    def _set_timer(self) -> None:
        due = self._pacer.next_due
        if due is None or (self._timer is not None and self._timer_due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        delay = max(0.0, due - self._clock())
        self._timer = asyncio.get_running_loop().call_later(delay, self._timer_rang)

    def _timer_rang(self) -> None:
        self._timer = None
        for session_id in self._pacer.take(self._clock()):
            self._publish(session_id)
        self._set_timer()

    def _publish(self, session_id: str) -> None:
        activity = self._activities.get(session_id)
        if activity is None or activity.session.has_ended or not len(self._watchers):
            return
        changed = self._told(activity, activity.new_blocks())
        message = wire.WatchSessionsResponse(changed=changed)
        self._watchers.publish(message, activity.session.record.owner)

    def _told(
        self, activity: SessionActivity, blocks: Sequence[tuple[int, BlockTiming]]
    ) -> wire.SessionActivity:
        """What is told of a session, with (generation, block) that come along."""
        now = self._clock()
        info = session_info(activity.session, now, rejections=False)
        activity.told_idle = info.state in (wire.SESSION_STATE_IDLE, wire.SESSION_STATE_RESTING)
        return activity_to_wire(activity, info, blocks, now)

    def _publish_end(self, session_id: str, outcome: Outcome, owner: str) -> None:
        if len(self._watchers):
            ended = ended_to_wire(session_id, outcome)
            self._watchers.publish(wire.WatchSessionsResponse(ended=ended), owner)
