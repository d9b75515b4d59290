"""What a process holds as an attack goes on."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from dataclasses import asdict

from scripts.attack.subject import Held

SAMPLE_SECONDS = 1.0
TENTHS = 10


class Readings:
    """Of one process, by how far the attack was: messages, or seconds."""

    def __init__(self, held: Callable[[], Held], so_far: Callable[[], float]) -> None:
        self._held = held
        self._so_far = so_far
        self._seen: list[tuple[float, Held]] = []

    async def run(self) -> None:
        """Looks once a second until it is cancelled."""
        while True:
            self._seen.append((self._so_far(), self._held()))
            await asyncio.sleep(SAMPLE_SECONDS)

    def by_tenth(self) -> list[dict[str, float]]:
        """Medians, of each tenth of the way that has readings."""
        most = self._so_far()
        tenths: list[list[Held]] = [[] for _ in range(TENTHS)]
        for so_far, held in self._seen:
            tenths[min(TENTHS - 1, int(TENTHS * so_far / most)) if most else 0].append(held)
        return [
            {
                name: statistics.median(asdict(held)[name] for held in tenth)
                for name in Held.__dataclass_fields__
            }
            for tenth in tenths
            if tenth
        ]
