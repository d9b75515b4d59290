"""The request that a node leaves, whoever makes it."""

from __future__ import annotations

import asyncio


class Departure:
    """Who asks first says how long running answers get. Belongs to the event loop's thread."""

    def __init__(self, drain_seconds: float) -> None:
        """`drain_seconds` are what they get unless it is said otherwise."""
        self._drain_seconds = drain_seconds
        self._asked = asyncio.Event()

    @property
    def is_asked(self) -> bool:
        """Whether the node was asked to leave."""
        return self._asked.is_set()

    def ask(self, drain_seconds: float = 0.0) -> None:
        """Has the node leave; running generations get `drain_seconds`, 0 for the configured."""
        if not self.is_asked:
            self._drain_seconds = drain_seconds or self._drain_seconds
            self._asked.set()

    async def asked(self) -> float:
        """Waits for it; the seconds of running generations."""
        await self._asked.wait()
        return self._drain_seconds
