"""When each model of this node last committed tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kakeya_fleet.node.roles.verifier.observer import SessionObserver

if TYPE_CHECKING:
    from kakeya_fleet.node.roles.verifier.open_session import OpenSession


class RecentTokens(SessionObserver):
    """Hears of all sessions. Belongs to the event loop's thread; `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last: dict[str, float] = {}

    def seconds_since(self, model_id: str) -> float | None:
        """Seconds since the model's sessions committed tokens; None when they never did."""
        last = self._last.get(model_id)
        return None if last is None else max(0.0, self._clock() - last)

    def committed(self, session: OpenSession, token_count: int) -> None:  # noqa: ARG002
        """The model generates."""
        self._last[session.spec.model_id] = self._clock()
