"""How many requests are answered at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kakeya_fleet.node.http.refusal import HttpRefusal


class RequestSlots:
    """Refuses at once when all places are taken: a queue would only hide the load."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken = 0

    @property
    def taken(self) -> int:
        """Requests that are answered now."""
        return self._taken

    @contextmanager
    def take(self) -> Iterator[None]:
        """Holds a place. Raises `HttpRefusal`."""
        if self._taken >= self._most:
            raise HttpRefusal(
                "TOO_MANY_REQUESTS",
                f"this node answers {self._most} requests at once; come back, or ask another node",
                retry_after=1.0,
            )
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1
