"""The control stream of a link: messages both ways, in order, for the link's whole life."""

from __future__ import annotations

from typing import Protocol

from kakeya_fleet.node.links.protocol.contract import RoadKind
from kakeya_fleet.node.links.protocol.messages import Message

Packed = object
"""A message as its stream carries it."""


class ControlEnded(Exception):
    """The stream has ended; the message says why, and is empty for an orderly end."""


class ControlStream(Protocol):
    """One end of a stream. Belongs to the event loop's thread; one reads, one writes."""

    @property
    def base(self) -> RoadKind:
        """What carries the stream, and the chunks on it."""
        ...

    def pack(self, message: Message) -> Packed:
        """What `write` takes; copies the bytes of a chunk, in any thread."""
        ...

    async def write(self, packed: Packed) -> None:
        """Waits until the message has left this end. Raises `ControlEnded`."""
        ...

    async def read(self) -> Message:
        """The next message.

        Raises `ControlEnded`, `TensorOutOfOrder` and `BadParameters` for what is none.
        """
        ...

    async def close(self) -> None:
        """Ends it, so that what was written still arrives. Never raises."""
        ...
