"""Counts what sessions do, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.verifier.observer import Finished, Outcome, SessionObserver

if TYPE_CHECKING:
    from kakeya_fleet.engine.speculation.generation_report import BlockTiming
    from kakeya_fleet.node.roles.verifier.open_session import OpenSession

LEFT = "left"
"""The `end` of a generation that was cancelled by its client, or failed."""


class SessionMetrics(SessionObserver):
    """A `SessionObserver`; `clock` gives monotonic seconds."""

    def __init__(self, metrics: NodeMetrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._token_times: dict[str, float | None] = {}
        self._prefills: dict[str, tuple[int, float]] = {}
        self._recomputed: dict[str, int] = {}
        metrics.sessions_active.set_function(lambda: len(self._sessions))
        metrics.sessions_generating.set_function(lambda: len(self._token_times))
        metrics.history_tokens.set_function(self._history_tokens)
        metrics.kv_packed_bytes.set_function(lambda: self._packed()[0])
        metrics.kv_saved_bytes.set_function(lambda: self._packed()[1])

    def opened(self, session: OpenSession) -> None:
        """Counts a session, and follows its history and memory."""
        self._metrics.sessions_opened.inc()
        self._sessions[session.session_id] = session.record.session

    def prefilled(self, session: OpenSession, token_count: int, seconds: float) -> None:
        """Counts the tokens and the time."""
        self._metrics.tokens_prefilled.inc(token_count)
        self._metrics.prefill_seconds.inc(seconds)
        tokens, before = self._prefills.get(session.session_id, (0, 0.0))
        self._prefills[session.session_id] = (tokens + token_count, before + seconds)

    def began(self, session: OpenSession) -> None:
        """Counts a generation that runs; no token of it has a time yet."""
        self._token_times[session.session_id] = None
        history = session.record.session.history
        self._metrics.generation_history_tokens.observe(len(history))

    def committed(self, session: OpenSession, token_count: int) -> None:
        """Counts tokens, and their time since the ones before."""
        self._metrics.tokens_generated.inc(token_count)
        now = self._clock()
        before = self._token_times.get(session.session_id)
        self._token_times[session.session_id] = now
        if before is None:
            return
        self._metrics.inter_token_seconds.observe((now - before) / token_count, token_count)

    def block(self, _session: OpenSession, block: BlockTiming) -> None:
        """Counts a block's tokens, and where its seconds went."""
        metrics = self._metrics
        metrics.verify_seconds.observe(block.verify_seconds)
        if not block.drafted_count:
            return
        metrics.drafts.inc()
        metrics.draft_tokens.inc(block.drafted_count)
        metrics.tried_tokens.inc(block.tried_count)
        metrics.accepted_tokens.inc(block.accepted_count)
        metrics.draft_seconds.observe(block.draft_seconds)
        metrics.draft_wire_seconds.observe(block.wire_seconds)
        metrics.draft_wait_seconds.observe(block.wait_seconds)

    def finished(self, session: OpenSession, finished: Finished) -> None:
        """Counts what a generation says of the whole of it."""
        self._token_times.pop(session.session_id, None)
        metrics, done = self._metrics, finished.done
        metrics.generations.labels(end=done.stop_reason.value).inc()
        metrics.queue_seconds.observe(finished.queue_seconds)
        if done.generated_token_count:
            first = finished.queue_seconds + done.timings.first_token_seconds
            metrics.time_to_first_token_seconds.observe(first)
            metrics.acceptance_length.observe(done.speculation.acceptance_length)
        for fault, count in done.speculation.faults.items():
            metrics.draft_faults.labels(kind=fault.value).inc(count)
        hedges, won = done.speculation.hedge_count, done.speculation.hedge_won_count
        metrics.draft_hedges.labels(outcome="won").inc(won)
        metrics.draft_hedges.labels(outcome="lost").inc(hedges - won)
        if finished.drop_reason is not None:
            metrics.proposer_drops.labels(reason=finished.drop_reason.value).inc()

    def left(self, session: OpenSession) -> None:
        """Counts a generation that nobody heard the end of."""
        self._token_times.pop(session.session_id, None)
        self._metrics.generations.labels(end=LEFT).inc()

    def idle(self, session: OpenSession) -> None:
        """Counts what the append or generation computed of its tokens, as one prefill."""
        prefill = self._prefills.pop(session.session_id, None)
        if prefill is not None:
            self._metrics.prefill_tokens.observe(prefill[0])
            self._metrics.prefill_duration_seconds.observe(prefill[1])
        recomputed = session.record.session.recomputed_count
        told = self._recomputed.get(session.session_id, 0)
        if recomputed > told:
            self._recomputed[session.session_id] = recomputed
            self._metrics.tokens_recomputed.inc(recomputed - told)

    def rested(self, _session: OpenSession) -> None:
        """Counts it."""
        self._metrics.rests.inc()

    def ended(self, session: OpenSession, outcome: Outcome) -> None:
        """Counts a session's end and the length of its history."""
        self._sessions.pop(session.session_id, None)
        history = session.record.session.history
        self._recomputed.pop(session.session_id, None)
        self._metrics.sessions.labels(outcome=outcome.value).inc()
        self._metrics.session_history_tokens.observe(len(history))

    def _history_tokens(self) -> int:
        # Read from another thread too, where /metrics has one: dict.values() may change.
        return sum(len(session.history) for session in tuple(self._sessions.values()))

    def _packed(self) -> tuple[int, int]:
        """Bytes of packed positions in the sessions' own memory, and what packing saves."""
        found = [packed_bytes(session) for session in tuple(self._sessions.values())]
        return sum(packed for packed, _ in found), sum(saved for _, saved in found)


def packed_bytes(session: Session) -> tuple[int, int]:
    """Bytes that a session keeps packed in its own memory, and those that this saves."""
    evicted, spec = session.evicted, session.spec
    if evicted is None or not spec.codec:
        return 0, 0
    packed = evicted.stored_bytes
    plain = max(0, evicted.length - spec.sink) * session.verifier.info.kv_bytes_per_token
    return packed, max(0, plain - packed)
