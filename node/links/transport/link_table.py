"""The links that this node serves: a bounded number, of a bounded number of bytes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kakeya_fleet.node.links.protocol.contract import RoadKind
from kakeya_fleet.node.links.protocol.opening import LinkRequest
from kakeya_fleet.node.links.transport.link_service import LinkService
from kakeya_fleet.node.rpc.refusals import TooManyLinks

LINK_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """How many links a node serves, and how long it waits for their callers."""

    most_links: int = 256
    """At once."""

    most_bytes: int = 1 << 30
    """That all links take together."""

    idle_seconds: float = 300.0
    """A link on which nothing arrives for so long belongs to nobody any more."""

    unclaimed_seconds: float = 10.0
    """Who opens a link has its stream a round trip later.

    One that never comes must not keep a place from others.
    """

    opening_seconds: float = 10.0
    """From a stream's begin to its first message: one that says nothing must not stay."""

    handler_seconds: float = 1.0
    """What a handler gets to end by itself once its link has ended."""


@dataclass(slots=True, eq=False)
class Link:
    """One link, to a node that has `kinds` of roads; `used_at` is in the table's seconds.

    `ended` is set once it is closed, `end_reason` then completes "the link was ...".
    """

    link_id: str
    request: LinkRequest
    kinds: frozenset[RoadKind]
    service: LinkService
    used_at: float
    is_streaming: bool = False
    end_reason: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class LinkTable:
    """All links. Belongs to the event loop's thread."""

    def __init__(self, clock: Callable[[], float], settings: ServingSettings | None = None) -> None:
        self._clock = clock
        self.settings = settings if settings is not None else ServingSettings()
        self._links: dict[str, Link] = {}

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[Link]:
        return iter(tuple(self._links.values()))

    @property
    def reserved_bytes(self) -> int:
        """Bytes that the links take at most."""
        return sum(link.service.memory_bytes for link in self._links.values())

    def open(
        self,
        request: LinkRequest,
        service: LinkService,
        kinds: frozenset[RoadKind] = frozenset(),
    ) -> Link:
        """A new link. Raises `TooManyLinks`."""
        most_links, most_bytes = self.settings.most_links, self.settings.most_bytes
        if (
            len(self._links) >= most_links
            or self.reserved_bytes + service.memory_bytes > most_bytes
        ):
            raise TooManyLinks(
                f"{len(self._links)} links with {self.reserved_bytes} bytes are open; this node "
                f"serves {most_links} links and {most_bytes} bytes",
                limit=str(most_links),
                limit_bytes=str(most_bytes),
            )
        link = Link(secrets.token_hex(LINK_ID_BYTES), request, kinds, service, self._clock())
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
