"""The randomness that pure code is given."""

from __future__ import annotations

from typing import Any, Protocol


class Randomness(Protocol):
    """What `random.Random` offers of this package's needs."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def shuffle(self, x: list[Any], /) -> None:
        """Orders `x` at random, in place."""
        ...


def sample(population: list[str], count: int, rng: Randomness) -> list[str]:
    """Up to `count` different elements of `population`, in random order."""
    shuffled = list(population)
    rng.shuffle(shuffled)
    return shuffled[:count]
