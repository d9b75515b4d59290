"""How much longer a verify forward takes while a draft is made beside it.

On two machines it takes no longer. Where proposer and verifier share processors, a device or the
way to memory, the draft that is made meanwhile is paid for by the forward: measured with two
processes of one model on two cores, a forward takes up to twice its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from kakeya_fleet.engine.contracts.draft import ProposerKey

LEAST_WEIGHT = 0.1
"""Of a block in the mean, about the last ten of its kind; the first ones count alike."""
KEPT_SECONDS = 900.0
"""After so long without a draft of it, what runs beside whom may be another matter."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Forwards with a draft beside them and without one. A value: events return the next one.

    Scales are how many times as long a forward took as when its model was loaded; `since_beside`
    and `since_apart` count the blocks since the last of either kind.
    """

    beside_scale: float = 0.0
    beside_count: int = 0
    apart_scale: float = 0.0
    apart_count: int = 0
    since_beside: int = 0
    since_apart: int = 0

    @property
    def slowed_scale(self) -> float:
        """By how much the scale rises beside a draft; 0 until both kinds were measured."""
        if not self.beside_count or not self.apart_count:
            return 0.0
        return max(0.0, self.beside_scale - self.apart_scale)

    def after_block(self, scale: float, *, beside: bool) -> Overlap:
        """A block was verified, `beside` a draft or not."""
        if beside:
            count = self.beside_count + 1
            return replace(
                self,
                beside_scale=_mean(self.beside_scale, scale, count),
                beside_count=count,
                since_beside=0,
                since_apart=self.since_apart + 1,
            )
        count = self.apart_count + 1
        return replace(
            self,
            apart_scale=_mean(self.apart_scale, scale, count),
            apart_count=count,
            since_apart=0,
            since_beside=self.since_beside + 1,
        )


def _mean(old: float, new: float, count: int) -> float:
    return old + max(LEAST_WEIGHT, 1.0 / count) * (new - old)


NOTHING_MEASURED = Overlap()


class OverlapBook:
    """What a verifier's latest session found of each proposer: the next one need not try."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives monotonic seconds."""
        self._clock = clock
        self._found: dict[tuple[str, ProposerKey], tuple[Overlap, float]] = {}

    def get(self, verifier: str, proposer: ProposerKey) -> Overlap:
        """Nothing measured, where nothing was of late."""
        found, at = self._found.get((verifier, proposer), (NOTHING_MEASURED, -KEPT_SECONDS))
        return found if self._clock() - at < KEPT_SECONDS else NOTHING_MEASURED

    def put(self, verifier: str, proposer: ProposerKey, found: Overlap) -> None:
        """A session rests or ends, and has found this."""
        self._found[verifier, proposer] = (found, self._clock())
