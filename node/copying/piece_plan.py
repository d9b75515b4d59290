"""Which piece of a model is asked of which node: decided without clocks, tasks and sockets."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kakeya_fleet.engine.models.model_manifest import Piece

LATE_SECONDS = 5.0
"""A piece that was asked for so long ago is asked of a second source too, once none waits."""


class PiecePlan:
    """The pieces that are missing, and who was asked for them. `now` is in monotonic seconds.

    A piece is asked of one source, of a second one when nothing else is left to ask for and it is
    late, and of others when one gives it up. Whoever brings it first has brought it.
    """

    def __init__(self, missing: Iterable[Piece]) -> None:
        """They are asked for in their order."""
        self._waiting = deque(missing)
        self._asked: dict[int, tuple[Piece, dict[str, float]]] = {}

    @property
    def is_done(self) -> bool:
        """Whether every piece has arrived."""
        return not self._waiting and not self._asked

    def next_for(self, source: str, now: float) -> Piece | None:
        """What to ask `source` for now; None while there is nothing for it."""
        if self._waiting:
            piece = self._waiting.popleft()
            self._asked[piece.number] = (piece, {source: now})
            return piece
        late = [
            (min(since.values()), piece)
            for piece, since in self._asked.values()
            if len(since) == 1 and source not in since
        ]
        if not late:
            return None
        began, piece = min(late, key=lambda each: (each[0], each[1].number))
        if now - began < LATE_SECONDS:
            return None
        self._asked[piece.number][1][source] = now
        return piece

    def arrived(self, piece: Piece) -> bool:
        """It is there; False if it was before."""
        return self._asked.pop(piece.number, None) is not None

    def given_up(self, source: str, piece: Piece) -> None:
        """It does not come from `source`; no news of a piece that is there."""
        asked = self._asked.get(piece.number)
        if asked is None:
            return
        asked[1].pop(source, None)
        if not asked[1]:
            del self._asked[piece.number]
            self._waiting.appendleft(piece)
