"""The codecs that pack sessions' keys and values, and how far each may move what is chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class PackedQuality(StrEnum):
    """How exactly a session asked to have packed what is behind its window."""

    HIGH = "high"
    ECONOMY = "economy"


LADDER = ("int8", "kvarn4", "kvarn4v3", "kvarn3", "kvarn3v2", "kvarn2")
"""From most bits a number to fewest: 8.5, and from 4.75 in steps of a half to 2.75."""

FIRST: Mapping[PackedQuality, str] = MappingProxyType(
    {PackedQuality.HIGH: "kvarn4", PackedQuality.ECONOMY: "kvarn3"}
)
"""What a quality begins with, before anything was measured of the model."""

TOLERANCE_NATS: Mapping[PackedQuality, float] = MappingProxyType(
    {PackedQuality.HIGH: 0.005, PackedQuality.ECONOMY: 0.02}
)
"""The mean divergence that a quality bears.

About three times what `FIRST` measured on a published model (0.0015 and 0.0070 nats): another
model may be so much worse off before it gets more bits. Of that model's choices 1.4 and 5.7 in a
hundred were others."""

LEAST_SAMPLES = 16
"""Positions of a codec before anything is decided by them, or said of them."""
SETTLED_SAMPLES = 96
"""Positions after which a codec is measured no more, until it is reset: a verdict stays then.

At so many the mean is known to `ERRORS` / sqrt(96) = 0.27 of the samples' deviation."""
ERRORS = 2.6
"""Standard errors of a mean that are held to be possible: Student's t for 16 samples, 99 %."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """How far a codec moved the distributions of choices, over `count` positions.

    `mean` is in nats, KL(as it lies || packed) a position; `squares` the sum of squared
    distances from it.
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @property
    def error(self) -> float:
        """Half the width of the range in which the true mean lies, nats; infinite below two."""
        if self.count < 2:
            return math.inf
        return ERRORS * math.sqrt(self.squares / (self.count - 1) / self.count)

    @property
    def least(self) -> float:
        """The lower end of that range; not below 0."""
        return max(0.0, self.mean - self.error)

    @property
    def most(self) -> float:
        """The upper end of that range."""
        return self.mean + self.error

    @property
    def tells(self) -> bool:
        """Whether there are samples enough to decide by, and to quote."""
        return self.count >= LEAST_SAMPLES

    @property
    def is_settled(self) -> bool:
        """Whether it is measured no more."""
        return self.count >= SETTLED_SAMPLES

    def with_samples(self, nats: Sequence[float]) -> Divergence:
        """The same with more positions, each at least 0, as far as `SETTLED_SAMPLES` has room."""
        found = self
        for each in nats[: max(0, SETTLED_SAMPLES - self.count)]:
            count = found.count + 1
            mean = found.mean + (each - found.mean) / count
            squares = found.squares + (each - found.mean) * (each - mean)
            found = Divergence(count, mean, squares)
        return found

    def sentence(self, codec: str) -> str:
        """What was measured, for people."""
        if not self.tells:
            return f"{codec} was measured on {self.count} positions, too few to say anything."
        return (
            f"{codec} was measured on {self.count} positions: {self.mean:.4f} nats, "
            f"{self.most:.4f} at most."
        )


NOTHING = Divergence()
"""Of a codec that was not measured."""
