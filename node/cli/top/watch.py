"""Follows the fleet and each of its nodes, and tells every change."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from kakeya import (
    AsyncClient,
    FleetEvent,
    FleetSnapshot,
    KakeyaError,
    Liveness,
    NodeChanged,
    NodeRemoved,
    Timeouts,
)
from kakeya_fleet.node.cli.asking.access import Callers
from kakeya_fleet.node.cli.asking.node_loads import MOST_ASKED, nearest_living
from kakeya_fleet.node.cli.asking.told_values import sanitized
from kakeya_fleet.node.cli.top.watched_fleet import WatchedFleet

# Two minutes of samples make a full sparkline on a wide screen.
HISTORY_SECONDS = 180.0
BLOCK_COUNT = 64
# A watch that broke is tried again so often while the fleet holds the node alive.
AGAIN_SECONDS = 1.0
# A watch may be silent for long: its node has nothing to tell.
WATCH_SECONDS = 7 * 24 * 3600.0
ANSWER_SECONDS = 5.0


class FleetWatcher:
    """Keeps `fleet` as the fleet is; `changed` is called after each change.

    The node that is asked tells which nodes there are; the `MOST_ASKED` nearest live ones are
    asked themselves, those that are once asked as long as they live.
    """

    def __init__(
        self, client: AsyncClient, fleet: WatchedFleet, changed: Callable[[], None]
    ) -> None:
        self._client = client
        self._callers = Callers(client.address)
        self._fleet = fleet
        self._changed = changed
        self._tasks: dict[str, tuple[str, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Until it is cancelled. Raises `KakeyaError` when the asked node's watch breaks."""
        try:
            async with self._client.fleet.watch() as events:
                async for event in events:
                    self._fleet.take_fleet(sanitized(event), time.monotonic())
                    if not self._is_followed(event):
                        self._follow_living()
                    self._changed()
        finally:
            await self.close()

    async def close(self) -> None:
        """Leaves every watch."""
        tasks = [task for _, task in self._tasks.values()]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def has_heard_all(self) -> bool:
        """Whether each node that is asked told of itself and its sessions, or cannot."""
        asked = [node for node in self._fleet.nodes if node.status.node_id in self._tasks]
        return bool(asked) and all(
            (node.has_told_itself and node.has_told_sessions) or node.trouble for node in asked
        )

    def _follow_living(self) -> None:
        statuses = [node.status for node in self._fleet.nodes]
        living = {each.node_id: each.address for each in nearest_living(statuses, len(statuses))}
        for node_id, (address, task) in list(self._tasks.items()):
            if living.get(node_id) != address:
                task.cancel()
                del self._tasks[node_id]
        for node_id, address in living.items():
            if len(self._tasks) == MOST_ASKED:
                break
            if node_id not in self._tasks:
                self._tasks[node_id] = (
                    address,
                    asyncio.create_task(self._follow(node_id, address)),
                )
        self._fleet.unasked_count = len(living) - len(self._tasks)

    def _is_followed(self, event: FleetEvent) -> bool:
        """Whether an event changes nothing about who is asked, as most of a large fleet's."""
        match event:
            case FleetSnapshot():
                return False
            case NodeChanged(node):
                if node.node_id not in self._tasks and len(self._tasks) == MOST_ASKED:
                    return True
                address = node.address if node.liveness is Liveness.ALIVE else ""
                asked, _ = self._tasks.get(node.node_id, ("", None))
                return asked == address
            case NodeRemoved(node_id):
                return node_id not in self._tasks

    async def _follow(self, node_id: str, address: str) -> None:
        timeouts = Timeouts(watch=WATCH_SECONDS, unary=ANSWER_SECONDS)
        async with self._callers.client(address, timeouts) as client:
            while True:
                reason = await self._until_broken(
                    lambda: self._follow_node(client, node_id),
                    lambda: self._follow_sessions(client, node_id),
                )
                self._fleet.trouble(node_id, reason)
                self._changed()
                await asyncio.sleep(AGAIN_SECONDS)

    async def _until_broken(self, *watches: Callable[[], Awaitable[None]]) -> str:
        """Runs the watches until the first one breaks; why it did."""
        tasks = [asyncio.ensure_future(watch()) for watch in watches]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except KakeyaError as error:
            return error.reason
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return "ended"

    async def _follow_node(self, client: AsyncClient, node_id: str) -> None:
        async with client.fleet.watch_node(history_seconds=HISTORY_SECONDS) as activities:
            async for activity in activities:
                self._fleet.take_node(node_id, sanitized(activity))
                self._changed()

    async def _follow_sessions(self, client: AsyncClient, node_id: str) -> None:
        async with client.watch_sessions(block_count=BLOCK_COUNT) as events:
            async for event in events:
                self._fleet.take_sessions(node_id, sanitized(event))
                self._changed()
