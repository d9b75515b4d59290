"""The control stream of a link: messages both ways, in order, for the link's whole life."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol, TypeAlias

from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.node.links.contract import RoadKind

Envelope: TypeAlias = wire.StreamTensorsRequest | wire.StreamTensorsResponse
"""One message: a chunk, an announcement, what was taken, or a step of a road."""

# Messages of 1 MiB that wait in a queue of one process.
QUEUED_MESSAGES = 8


class ControlEnded(Exception):
    """The stream has ended; the message says why, and is empty for an orderly end."""


class ControlStream(Protocol):
    """One end of a stream. Belongs to the event loop's thread; one reads, one writes."""

    @property
    def base(self) -> RoadKind:
        """What carries the stream, and the chunks on it."""
        ...

    def envelope(self) -> Envelope:
        """An empty message towards the other end."""
        ...

    async def write(self, envelope: Envelope) -> None:
        """Waits until the message has left this end. Raises `ControlEnded`."""
        ...

    async def read(self) -> Envelope:
        """The next message. Raises `ControlEnded`."""
        ...

    async def close(self) -> None:
        """Ends it, so that what was written still arrives. Never raises."""
        ...


class _Way:
    """One direction within a process."""

    def __init__(self) -> None:
        self._messages: deque[Envelope] = deque()
        self._changed = asyncio.Event()
        self._is_closed = False

    async def put(self, envelope: Envelope) -> None:
        while len(self._messages) >= QUEUED_MESSAGES and not self._is_closed:
            await self._change()
        if self._is_closed:
            raise ControlEnded("")
        self._messages.append(envelope)
        self._changed.set()

    async def get(self) -> Envelope:
        while not self._messages and not self._is_closed:
            await self._change()
        if not self._messages:
            raise ControlEnded("")
        self._changed.set()
        return self._messages.popleft()

    def close(self) -> None:
        self._is_closed = True
        self._changed.set()

    async def _change(self) -> None:
        # Its two ends never wait at once: one waits for a message, one for room.
        self._changed.clear()
        await self._changed.wait()


class QueuedStream:
    """One end of a stream within one process."""

    def __init__(self, incoming: _Way, outgoing: _Way) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    @property
    def base(self) -> RoadKind:
        """Bytes never leave the process."""
        return RoadKind.LOCAL

    def envelope(self) -> Envelope:
        """An empty message."""
        return wire.StreamTensorsRequest()

    async def write(self, envelope: Envelope) -> None:
        """Waits while the other end has many messages to read. Raises `ControlEnded`."""
        await self._outgoing.put(envelope)

    async def read(self) -> Envelope:
        """The next message. Raises `ControlEnded`."""
        return await self._incoming.get()

    async def close(self) -> None:
        """Ends both directions; what was written can still be read."""
        self._outgoing.close()
        self._incoming.close()


def queued_pair() -> tuple[QueuedStream, QueuedStream]:
    """Both ends of a stream within this process."""
    there, back = _Way(), _Way()
    return QueuedStream(back, there), QueuedStream(there, back)
