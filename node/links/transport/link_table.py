"""The links that this node serves: a bounded number, of a bounded number of bytes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.caller import NOBODY, Caller
from kakeya_fleet.node.links.protocol.contract import RoadKind
from kakeya_fleet.node.links.protocol.opening import LinkRequest
from kakeya_fleet.node.links.transport.link_service import LinkService
from kakeya_fleet.node.rpc.refusals import TooManyLinks

LINK_ID_BYTES = 16


@dataclass(slots=True, eq=False)
class Link:
    """One link, to a node that has `kinds` of roads; `used_at` is in the table's seconds.

    `ended` is set once it is closed, `end_reason` then completes "the link was ...".
    """

    link_id: str
    request: LinkRequest
    kinds: frozenset[RoadKind]
    service: LinkService
    caller: Caller
    used_at: float
    is_streaming: bool = False
    end_reason: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class LinkTable:
    """All links. Belongs to the event loop's thread."""

    def __init__(self, clock: Callable[[], float], allowances: Allowances) -> None:
        self._clock = clock
        self.settings = allowances.limits.links
        self._places = allowances.share("links.at_once", TooManyLinks)
        self._memory = allowances.share("links.memory_bytes", TooManyLinks)
        self._links: dict[str, Link] = {}

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[Link]:
        return iter(tuple(self._links.values()))

    @property
    def reserved_bytes(self) -> int:
        """Bytes that the links take at most."""
        return self._memory.used

    def open(
        self,
        request: LinkRequest,
        service: LinkService,
        kinds: frozenset[RoadKind] = frozenset(),
        caller: Caller = NOBODY,
    ) -> Link:
        """A new link of `caller`. Raises `TooManyLinks`."""
        self._places.take(caller)
        try:
            self._memory.take(caller, service.memory_bytes)
        except TooManyLinks:
            self._places.give_back(caller)
            raise
        link = Link(
            secrets.token_hex(LINK_ID_BYTES), request, kinds, service, caller, self._clock()
        )
        self._links[link.link_id] = link
        return link

    def find(self, link_id: str) -> Link | None:
        """The open link of that id; asking counts as using it."""
        link = self._links.get(link_id)
        if link is not None:
            link.used_at = self._clock()
        return link

    def close(self, link_id: str, reason: str) -> None:
        """Ends a link and frees what it holds; one that is not there is closed."""
        link = self._links.pop(link_id, None)
        if link is not None:
            self._places.give_back(link.caller)
            self._memory.give_back(link.caller, link.service.memory_bytes)
            link.end_reason = reason
            link.ended.set()

    def sweep(self) -> None:
        """Ends links that were idle for `idle_seconds`, and those never claimed."""
        now, most = self._clock(), self.settings.idle_seconds
        for link in self:
            unclaimed = min(most, self.settings.unclaimed_seconds)
            if now - link.used_at >= (most if link.is_streaming else unclaimed):
                self.close(link.link_id, "ended after it was idle")

    def close_all(self, reason: str) -> None:
        """Ends every link."""
        for link in self:
            self.close(link.link_id, reason)
