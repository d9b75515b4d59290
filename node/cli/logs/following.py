"""What a node and its log tell: once, and then as it happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from kakeya import AsyncClient, NodeActivity, NodeEvent, NodeHistory, UnexpectedError
from kakeya_fleet.node.cli.asking.told_values import sanitized
from kakeya_fleet.node.cli.logs.entries import in_order, print_entry
from kakeya_fleet.node.cli.logs.log_file import LogLine, LogTail
from kakeya_fleet.node.cli.terminal.output import note

LOOK_SECONDS = 0.25
"""Between two looks at the log file."""
CLOCK_SECONDS = 2.0
"""Of samples, a second each: the latest tells the node's own time."""


async def print_past(
    activities: AsyncIterator[NodeActivity],
    tail: LogTail | None,
    since_seconds: float | None,
    *,
    as_json: bool,
) -> None:
    """Prints what was, of the last `since_seconds` of the node's own clock, in order.

    Raises `UnexpectedError` when the node does not begin with its history.
    """
    history = sanitized(await anext(activities))
    if not isinstance(history, NodeHistory):
        raise UnexpectedError("the node began its watch without a history")
    now = history.samples[-1].at_unix if history.samples else time.time()
    since = float("-inf") if since_seconds is None else now - since_seconds
    for entry in in_order([*history.events, *(new_lines(tail) or ())], since):
        print_entry(entry, as_json=as_json)


async def follow(
    activities: AsyncIterator[NodeActivity], tail: LogTail | None, *, as_json: bool
) -> None:
    """Prints what happens, until the node ends its watch. Raises `KakeyaError`."""

    async def events() -> None:
        async for activity in activities:
            if isinstance(activity, NodeEvent):
                print_entry(sanitized(activity), as_json=as_json)

    async def lines() -> None:
        while (found := new_lines(tail)) is not None:
            for line in found:
                print_entry(line, as_json=as_json)
            await asyncio.sleep(LOOK_SECONDS)
        # The events go on without it.
        await following

    following = asyncio.ensure_future(events())
    reading = asyncio.ensure_future(lines())
    try:
        done, _ = await asyncio.wait({following, reading}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (following, reading):
            task.cancel()
        await asyncio.gather(following, reading, return_exceptions=True)


def new_lines(tail: LogTail | None) -> list[LogLine] | None:
    """What was written to the log since the last call; None without one that can be read."""
    if tail is None:
        return None
    try:
        return tail.lines()
    except OSError as error:
        note(f"the log cannot be read any more ({error.strerror}); events go on")
        return None


async def print_node(
    client: AsyncClient,
    tail: LogTail | None,
    since_seconds: float | None,
    *,
    follows: bool,
    as_json: bool,
) -> None:
    """Prints what the client's node tells. Raises `KakeyaError`."""
    async with client.fleet.watch_node(history_seconds=CLOCK_SECONDS) as watch:
        activities = aiter(watch)
        await print_past(activities, tail, since_seconds, as_json=as_json)
        if follows:
            await follow(activities, tail, as_json=as_json)
