"""Follows generations, and hands each over when it is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kakeya_fleet.node.roles.verifier.observer import Finished, Outcome, SessionObserver
from kakeya_fleet.node.tracing.caller import traceparent
from kakeya_fleet.node.tracing.traced import TracedGeneration, TracedPrefill, TracedSession

if TYPE_CHECKING:
    from kakeya_fleet.engine.speculation.generation_report import BlockTiming
    from kakeya_fleet.node.roles.verifier.open_session import OpenSession


class SessionTraces(SessionObserver):
    """A `SessionObserver`; what it does on the event loop is to note numbers."""

    def __init__(
        self,
        hand_over: Callable[[TracedGeneration], None],
        clock_ns: Callable[[], int],
        caller: Callable[[], str] = traceparent.get,
    ) -> None:
        """`hand_over` must return at once; `clock_ns` gives nanoseconds since 1970.

        `caller` is the `traceparent` of what asks for a generation that begins.
        """
        self._caller = caller
        self._hand_over = hand_over
        self._clock_ns = clock_ns
        self._prefills: dict[str, TracedPrefill] = {}
        self._running: dict[str, TracedGeneration] = {}

    def prefilled(self, session: OpenSession, token_count: int, seconds: float) -> None:
        """Adds to the prefill that goes on."""
        now = self._clock_ns()
        running = self._running.get(session.session_id)
        if running is not None:
            prefill = running.prefills[-1] if running.prefills else None
            if prefill is None or prefill.end_ns < running.start_ns:
                prefill = _begun(now, seconds)
                running.prefills.append(prefill)
        else:
            prefill = self._prefills.get(session.session_id)
            if prefill is None:
                prefill = self._prefills[session.session_id] = _begun(now, seconds)
        prefill.end_ns = now
        prefill.token_count += token_count
        prefill.seconds += seconds

    def began(self, session: OpenSession) -> None:
        """A generation begins, with the prefill that came before it."""
        before = self._prefills.pop(session.session_id, None)
        self._running[session.session_id] = TracedGeneration(
            _traced(session),
            self._caller(),
            self._clock_ns(),
            [before] if before is not None else [],
        )

    def committed(self, session: OpenSession, token_count: int) -> None:
        """Counts tokens; the first ones have a time."""
        running = self._running.get(session.session_id)
        if running is not None:
            running.first_token_ns = running.first_token_ns or self._clock_ns()
            running.token_count += token_count

    def block(self, session: OpenSession, block: BlockTiming) -> None:
        """Keeps a block, in the place of the oldest one when there are too many."""
        running = self._running.get(session.session_id)
        if running is not None:
            running.blocks.append(block)
            running.block_count += 1

    def finished(self, session: OpenSession, finished: Finished) -> None:
        """Hands the generation over, with what it says of itself."""
        self._over(session.session_id, finished)

    def left(self, session: OpenSession) -> None:
        """Hands the generation over as far as it came."""
        self._over(session.session_id, None)

    def ended(self, session: OpenSession, _outcome: Outcome) -> None:
        """Forgets the session."""
        self._prefills.pop(session.session_id, None)

    def _over(self, session_id: str, finished: Finished | None) -> None:
        running = self._running.pop(session_id, None)
        if running is not None:
            running.end_ns = self._clock_ns()
            running.finished = finished
            self._hand_over(running)


def _traced(session: OpenSession) -> TracedSession:
    """What all generations of the session share."""
    spec = session.spec
    return TracedSession(
        session.session_id,
        spec.model_id,
        spec.kv_strategy.value,
        spec.restorer.kind.value if spec.restorer is not None else "",
    )


def _begun(now: int, seconds: float) -> TracedPrefill:
    return TracedPrefill(now - int(seconds * 1e9), now, 0, 0.0)
