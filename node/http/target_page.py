"""/sd/prometheus of a fleet of any size: built in parts, between which the node does other work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable

from kakeya_fleet.fleet.views.node_view import NodeView
from kakeya_fleet.fleet.views.prometheus_targets import scraped, target_group

NODES_A_PART = 250
"""One takes some 15 us: 4 ms a part."""


class TargetPage:
    """Who asks while it is built shares it, so that many who ask cost one. Belongs to one loop."""

    def __init__(self, views: Callable[[], Iterable[NodeView]]) -> None:
        """`views` are the nodes of the fleet."""
        self._views = views
        self._building: asyncio.Task[bytes] | None = None

    async def body(self) -> bytes:
        """The page as JSON, of the fleet as it was when the building began."""
        if self._building is None:
            self._building = asyncio.create_task(self._build(), name="page of targets")
            self._building.add_done_callback(self._built)
        # One that leaves does not take it from the others.
        return await asyncio.shield(self._building)

    async def _build(self) -> bytes:
        nodes = scraped(self._views())
        parts: list[bytes] = []
        for first in range(0, len(nodes), NODES_A_PART):
            part = [target_group(view) for view in nodes[first : first + NODES_A_PART]]
            parts.append(json.dumps(part)[1:-1].encode())
            await asyncio.sleep(0)
        return b"[" + b", ".join(parts) + b"]"

    def _built(self, _task: asyncio.Task[bytes]) -> None:
        self._building = None
