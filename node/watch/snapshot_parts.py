"""A watch over the wire: a snapshot of any size, then what changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol, TypeVar

from google.protobuf.message import Message as WireMessage

from kakeya_fleet.node.rpc.grpc_settings import DATA_MESSAGE_BYTES
from kakeya_fleet.node.rpc.refusals import AnswerTooLarge
from kakeya_fleet.node.watch.backlog import Backlog
from kakeya_fleet.node.watch.watchers import Watcher

PART_BYTES = 128 << 10
"""Of things in a part, before the last of them: some 250 nodes or sessions, made in 20 ms.

A thing has 64 KiB at most, a card's bound, so that every part is far below a message's.
"""

Message = TypeVar("Message")
Item = TypeVar("Item", bound=WireMessage)
Response = TypeVar("Response", bound=WireMessage)
_Message = TypeVar("_Message", contravariant=True)
_Response = TypeVar("_Response", bound=WireMessage, covariant=True)


class Watched(Protocol[_Message, Item, _Response]):
    """The things that a watcher is told of, each by a key. Its calls return at once."""

    def item(self, key: str) -> Item | None:
        """The thing as a part of the snapshot has it; None when it is no more."""
        ...

    def snapshot(self, items: Sequence[Item], *, more: bool) -> _Response:
        """A part of the snapshot, or the whole."""
        ...

    def changed(self, key: str) -> _Response | None:
        """What is told of a thing that changed since it was last told; None when it is no more."""
        ...

    def change(self, message: _Message) -> _Response:
        """What is told of a message of the watch."""
        ...


async def snapshot_and_changes(
    watcher: Watcher[Message],
    backlog: Backlog[Message],
    watched: Watched[Message, Item, Response],
    *,
    in_parts: bool,
) -> AsyncIterator[Response]:
    """What a watcher is told, from the moment in which the backlog's keys were collected.

    Raises `WatcherTooSlow`, and `AnswerTooLarge` when the snapshot does not fit one
    message and the caller did not ask for it `in_parts`.
    """
    watcher.begin(backlog)
    whole: list[Item] = []
    whole_bytes = 0
    more = True
    while more:
        part, nbytes = _part(backlog, watched)
        # What is left may end meanwhile: the next part says then that it was the last.
        more = backlog.has_more
        if in_parts:
            yield watched.snapshot(part, more=more)
        else:
            whole += part
            whole_bytes += nbytes
            _check_fits(whole_bytes)
            # A snapshot of megabytes is made in pieces that stall nobody.
            await asyncio.sleep(0)
        watcher.has_read()
    if not in_parts:
        yield watched.snapshot(whole, more=False)
        watcher.has_read()
    whole.clear()
    while (later := backlog.next_later()) is not None:
        key, end = later
        response = watched.changed(key) if end is None else watched.change(end)
        if response is not None:
            if end is None:
                backlog.was_told(key)
            yield response
            watcher.has_read()
    watcher.caught_up()
    while (message := await watcher.next()) is not None:
        yield watched.change(message)


def _part(
    backlog: Backlog[Message], watched: Watched[Message, Item, Response]
) -> tuple[list[Item], int]:
    """The next things of the snapshot, and their bytes."""
    part: list[Item] = []
    nbytes = 0
    while backlog.has_more and nbytes < PART_BYTES:
        key = backlog.next_of_snapshot()
        item = watched.item(key)
        if item is not None:
            backlog.was_told(key)
            part.append(item)
            nbytes += item.ByteSize()
    return part, nbytes


def _check_fits(nbytes: int) -> None:
    if nbytes > DATA_MESSAGE_BYTES:
        raise AnswerTooLarge(
            f"the snapshot takes more than the {DATA_MESSAGE_BYTES:,} bytes of a message:"
            " ask for it with in_parts, as newer clients do"
        )
