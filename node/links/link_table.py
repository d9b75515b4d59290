"""The links that this node serves: a bounded number, of a bounded number of bytes."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.node.links.feature_inbox import FeatureInbox
from kakeya_fleet.node.links.link_limits import LinkLimits
from kakeya_fleet.node.rpc.refusals import TooManyLinks

LINK_ID_BYTES = 16
MOST_LINKS = 256
MOST_BYTES = 1 << 30
# A link on which nothing arrives for so long belongs to nobody any more.
IDLE_SECONDS = 300.0
# Who opens a link has its stream a round trip later. One that never comes must not keep
# a place from others.
UNCLAIMED_SECONDS = 10.0


@dataclass(slots=True, eq=False)
class Link:
    """One link; `used_at` is in the table's seconds.

    One for context features has an `inbox`, any other the `limits` of who serves it.
    `memory_bytes` is what it takes at most.
    `ended` is set once it is closed, `end_reason` then completes "the link was ...".
    """

    link_id: str
    request: wire.OpenLinkRequest
    inbox: FeatureInbox | None
    memory_bytes: int
    used_at: float
    limits: LinkLimits = field(default_factory=LinkLimits)
    is_streaming: bool = False
    end_reason: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class LinkTable:
    """All links. Belongs to the event loop's thread."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        most_links: int = MOST_LINKS,
        most_bytes: int = MOST_BYTES,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """`most_bytes` bounds what all links take together."""
        self._clock = clock
        self._most_links = most_links
        self._most_bytes = most_bytes
        self._idle_seconds = idle_seconds
        self._links: dict[str, Link] = {}

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[Link]:
        return iter(tuple(self._links.values()))

    @property
    def reserved_bytes(self) -> int:
        """Bytes that the links take at most."""
        return sum(link.memory_bytes for link in self._links.values())

    def open(self, sender_node_id: str, model_id: str, width: int) -> Link:
        """A new link for vectors of `width` values. Raises `TooManyLinks`."""
        request = wire.OpenLinkRequest(
            sender_node_id=sender_node_id,
            purpose=wire.LINK_PURPOSE_FEATURES,
            model_id=model_id,
        )
        return self.open_for(request, FeatureInbox(width))

    def open_for(
        self, request: wire.OpenLinkRequest, inbox: FeatureInbox | None, memory_bytes: int = 0
    ) -> Link:
        """A new link, with an inbox or with room for other bytes. Raises `TooManyLinks`."""
        if inbox is not None:
            memory_bytes += inbox.memory_bytes
        if (
            len(self._links) >= self._most_links
            or self.reserved_bytes + memory_bytes > self._most_bytes
        ):
            raise TooManyLinks(
                f"{len(self._links)} links with {self.reserved_bytes} bytes are open; this node "
                f"serves {self._most_links} links and {self._most_bytes} bytes",
                limit=str(self._most_links),
                limit_bytes=str(self._most_bytes),
            )
        link = Link(secrets.token_hex(LINK_ID_BYTES), request, inbox, memory_bytes, self._clock())
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
        """Ends links for features that were idle for `idle_seconds`, and those never claimed."""
        now = self._clock()
        for link in self:
            patience = min(self._idle_seconds, UNCLAIMED_SECONDS)
            if link.is_streaming:
                # What a handler serves is as idle as its session, whose stream says when it ends.
                patience = self._idle_seconds if link.inbox is not None else float("inf")
            if now - link.used_at >= patience:
                self.close(link.link_id, "ended after it was idle")

    def close_all(self, reason: str) -> None:
        """Ends every link."""
        for link in self:
            self.close(link.link_id, reason)
