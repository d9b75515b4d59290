"""The context vectors of one session: its verifier's thread adds, anybody reads."""

from __future__ import annotations

import threading

import numpy as np

from kakeya_fleet.engine.contracts.features import (
    ContextVectors,
    FeatureEncoder,
    Features,
    FeatureSpec,
)
from kakeya_fleet.engine.sessions.feature_window import DEFAULT_POSITIONS, FeatureWindow

# Hidden states that wait for a reader at most: together they are encoded at a fraction
# of what each costs alone, and a session that decodes alone for now has no reader.
MOST_WAITING = 32


class SessionFeatures:
    """Vectors of the latest committed positions whose keys and values are final.

    One thread at a time calls `add`, any thread everything else, behind one lock;
    what a reader got never changes. While somebody reads after every `add`, the
    thread that adds makes the vectors; what nobody has read waits, and is made
    `MOST_WAITING` positions at a time, or by the next reader.
    """

    def __init__(self, encoder: FeatureEncoder, positions: int = DEFAULT_POSITIONS) -> None:
        """Keeps `positions` vectors at most."""
        self._encoder = encoder
        self._lock = threading.Lock()
        self._window = FeatureWindow(encoder.spec.width, positions)
        self._waiting: list[Features] = []
        self._waiting_first = 0
        self._end = 0
        self._was_read = True

    @property
    def encoder(self) -> FeatureEncoder:
        """What makes the vectors."""
        return self._encoder

    @property
    def spec(self) -> FeatureSpec:
        """What they are made of."""
        return self._encoder.spec

    @property
    def end(self) -> int:
        """The position behind the newest that is there."""
        with self._lock:
            return self._end

    def add(self, first: int, hidden_states: Features) -> None:
        """Takes hidden states [n, taps, hidden_size] of final positions `first` onwards.

        Positions that are there already stay as they are: a history whose keys and
        values are computed anew has the same vectors.
        """
        with self._lock:
            new = hidden_states[max(0, self._end - first) :]
            if not len(new):
                return
            begin = first + len(hidden_states) - len(new)
            if begin > self._end:
                self._encode()
            if not self._waiting:
                self._waiting_first = begin
            self._waiting.append(new)
            self._end = begin + len(new)
            if self._was_read or self._end - self._waiting_first >= MOST_WAITING:
                self._encode()
            self._was_read = False

    def since(self, position: int) -> tuple[int, ContextVectors]:
        """The vectors from `position` on that are there, and the position of the first."""
        with self._lock:
            self._encode()
            self._was_read = True
            return self._window.since(position)

    def until(self, length: int) -> SessionFeatures:
        """Those of positions below `length`, for a fork; the encoder is shared."""
        shorter = SessionFeatures(self._encoder)
        with self._lock:
            self._encode()
            shorter._window = self._window.until(length)
            shorter._end = shorter._window.end
        return shorter

    def _encode(self) -> None:
        """Makes the vectors of what waits."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            hidden_states = waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
            self._window.extend(self._waiting_first, self._encoder.encode(hidden_states))
