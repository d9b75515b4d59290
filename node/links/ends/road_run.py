"""The road of one generation, from its plan to its end, in one task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field

from kakeya_fleet.node.links.protocol.contract import RoadKind
from kakeya_fleet.node.links.protocol.delivery import Kept
from kakeya_fleet.node.links.protocol.messages import Announcement
from kakeya_fleet.node.links.protocol.settings import LinkSettings
from kakeya_fleet.node.links.roads.contract import Road, RoadPlan, Terms


@dataclass(slots=True, eq=False)
class RoadRun:
    """Belongs to the event loop's thread. `terms` are the other end's, which it waits for.

    Once it is used, kept tensors leave by it in the order of `leaving`, and announced ones
    come in the order of `coming`.
    """

    generation: int
    kind: RoadKind
    settings: LinkSettings
    terms: asyncio.Future[Terms]
    used: asyncio.Event = field(default_factory=asyncio.Event)
    leaving: asyncio.Queue[Kept] = field(default_factory=asyncio.Queue)
    coming: asyncio.Queue[Announcement] = field(default_factory=asyncio.Queue)

    async def build(
        self,
        plan: Callable[[], Awaitable[RoadPlan]],
        planned: Callable[[Terms], None],
    ) -> Road:
        """Tells the terms of this end, and builds it. Raises `RoadFailed`; nothing is left then."""
        own = await plan()
        try:
            planned(own.terms)
            other = await self.terms
        except BaseException:
            await own.abandon()
            raise
        return await own.build(other)

    async def carry(self, road: Road, receive: Callable[[], Coroutine[None, None, None]]) -> None:
        """Carries tensors both ways from when it is used, until cancelled. Raises `RoadFailed`."""
        await self.used.wait()
        both = [
            asyncio.create_task(self._send(road), name="road-send"),
            asyncio.create_task(receive(), name="road-receive"),
        ]
        try:
            ended, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for each in ended:
                each.result()
        finally:
            for each in both:
                each.cancel()
            await asyncio.wait(both)

    async def _send(self, road: Road) -> None:
        while True:
            kept = await self.leaving.get()
            data = memoryview(kept.tensor.data).cast("B")
            await road.send(data, seconds=self.settings.deadline(len(data)))
