"""How long an answer of an archive is waited for, learned from its answers.

Whoever waits holds the verifier's thread, and with it the other sessions of the
verifier. An archive that is frozen is found out the sooner, the quicker it was.
"""

from __future__ import annotations

LEAST_SECONDS = 1.0
"""What a busy machine may keep a process from running: never lost for less."""
TYPICAL_FACTOR = 20.0
LEAST_ANSWERS = 32
"""Fewer say too little: the first of a session are its opening."""
_RISE = 1 / 8
_FALL = 1 / 64


class AdaptiveTimeout:
    """Of one session with one archive.

    seconds = min(most, max(1, 20 x typical)), and `most` until it is measured. The
    typical answer follows slower ones within some answers, faster ones within some tens.
    """

    def __init__(self, most_seconds: float) -> None:
        self._most = most_seconds
        self._typical = 0.0
        self._count = 0

    @property
    def seconds(self) -> float:
        """The longest wait for the next answer."""
        if self._count < LEAST_ANSWERS:
            return self._most
        return min(self._most, max(LEAST_SECONDS, TYPICAL_FACTOR * self._typical))

    def observe(self, seconds: float) -> None:
        """Notes an answer that came so long after its question."""
        self._count += 1
        change = seconds - self._typical
        self._typical += change * (_RISE if change > 0.0 else _FALL)
