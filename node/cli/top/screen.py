"""`fleet top` on a terminal, in frames, or as JSON."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from contextlib import suppress
from copy import deepcopy
from typing import TYPE_CHECKING

from rich.text import Text

from kakeya_fleet.node.cli.shell.failure import CommandFailed
from kakeya_fleet.node.cli.terminal.live_screen import LiveScreen
from kakeya_fleet.node.cli.terminal.output import (
    brush_for,
    fields_of,
    say,
    screen_size,
    terminal,
    write_json,
)
from kakeya_fleet.node.cli.terminal.timeline import ASCII
from kakeya_fleet.node.cli.top.looks import ascii_only
from kakeya_fleet.node.cli.top.picture import draw
from kakeya_fleet.node.cli.top.view import TopView, press
from kakeya_fleet.node.cli.top.watch import FleetWatcher
from kakeya_fleet.node.cli.top.watched_fleet import WatchedFleet

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from kakeya import AsyncClient

# A single frame waits so long for nodes that have not told of themselves.
PATIENCE_SECONDS = 3.0
FRAME_SECONDS = 1.0


class TopScreen:
    """The live screen."""

    def __init__(self, client: AsyncClient, console: Console, session_id: str) -> None:
        self._fleet = WatchedFleet()
        self._frozen: WatchedFleet | None = None
        self._console = console
        self._is_ascii = brush_for(sys.stdout) is ASCII
        self._view = view_of(session_id)
        self._screen = LiveScreen(console, self._draw, self._press)
        self._watcher = FleetWatcher(client, self._fleet, self._screen.changed)

    async def run(self) -> None:
        """Until `q`. Raises `KakeyaError` when the asked node is lost."""
        tasks = [asyncio.ensure_future(work()) for work in (self._watcher.run, self._screen.run)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def abandon(self) -> None:
        """Gives the terminal back at once."""
        self._screen.abandon()

    def _press(self, key: str) -> None:
        was_paused = self._view.is_paused
        self._view = press(self._view, key, self._frozen or self._fleet)
        if self._view.is_paused and not was_paused:
            self._frozen = deepcopy(self._fleet)
        elif not self._view.is_paused:
            self._frozen = None
        if self._view.has_ended:
            self._screen.close()

    def _draw(self) -> RenderableType:
        width, height = self._console.size
        lines = draw(self._frozen or self._fleet, self._view, width, height)
        return joined(lines, is_ascii=self._is_ascii)


def joined(lines: list[Text], *, is_ascii: bool) -> Text:
    """The screen as one text, in characters that the terminal has."""
    if is_ascii:
        lines = ascii_only(lines)
    return Text("\n", no_wrap=True, overflow="crop").join(lines)


def view_of(session_id: str) -> TopView:
    """The view that a person begins with."""
    if not session_id:
        return TopView()
    return TopView(pane="sessions", session_id=session_id, is_detailed=True)


async def print_frames(client: AsyncClient, session_id: str, *, as_json: bool, once: bool) -> None:
    """One frame or JSON object, or one a second until it is cancelled.

    Raises `CommandFailed` for a session that is not there, `KakeyaError`.
    """
    fleet = WatchedFleet()
    known, heard = asyncio.Event(), asyncio.Event()

    def hear() -> None:
        known.set()
        if watcher.has_heard_all():
            heard.set()

    watcher = FleetWatcher(client, fleet, hear)
    watching = asyncio.ensure_future(watcher.run())
    try:
        # Which nodes there are is known or an error; how each of them is may stay unknown.
        for event, seconds in ((known, None), (heard, PATIENCE_SECONDS)):
            waiting = asyncio.ensure_future(event.wait())
            done, _ = await asyncio.wait(
                {watching, waiting}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            waiting.cancel()
            if watching in done:
                watching.result()
        if session_id and fleet.session(session_id) is None:
            raise CommandFailed(
                "SESSION_NOT_FOUND",
                f"no session {session_id} is open: see the open ones with `fleet top`.",
                metadata={"session_id": session_id},
            )
        while True:
            print_frame(fleet, view_of(session_id), as_json=as_json)
            if once:
                return
            done, _ = await asyncio.wait({watching}, timeout=FRAME_SECONDS)
            if done:
                watching.result()
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


def print_frame(fleet: WatchedFleet, view: TopView, *, as_json: bool) -> None:
    """One frame on stdout: coloured on a terminal, plain elsewhere, or one JSON object."""
    if as_json:
        write_json(facts_of(fleet))
        return
    width, height = screen_size(sys.stdout)
    lines = draw(fleet, view, width, height - 1)
    picture = joined(lines, is_ascii=brush_for(sys.stdout) is ASCII)
    console = terminal(sys.stdout)
    if console is None:
        # Without a terminal there are no keys, and no screen to fill.
        *rows, _footer = (row.rstrip() for row in picture.plain.splitlines())
        say("\n".join(rows).rstrip("\n"))
    else:
        console.print(picture, width=width, crop=True)


def facts_of(fleet: WatchedFleet) -> dict[str, object]:
    """The whole fleet for programs; samples, the last of each node alone."""
    return {
        "fleet_name": fleet.fleet_name,
        "unasked_count": fleet.unasked_count,
        "nodes": [
            {
                "node_id": node.status.node_id,
                "name": node.status.name,
                "liveness": node.status.liveness,
                "address": node.status.address,
                "acceptance_length": node.acceptance_length,
                "latest": fields_of(node.latest) if node.latest else None,
                "tensor_links": [fields_of(link) for link in node.node.tensor_links]
                if node.node
                else [],
                "trouble": node.trouble,
            }
            for node in fleet.nodes
        ],
        "sessions": [
            {
                "node_id": session.node_id,
                "node_name": fleet.name_of(session.node_id),
                "acceptance_length": session.acceptance_length,
                **fields_of(dataclasses.replace(session.activity, blocks=tuple(session.blocks))),
            }
            for session in fleet.sessions
        ],
        "transfers": [
            {"node_name": node.status.name, **fields_of(transfer)}
            for node, transfer in fleet.transfers
        ],
        "events": [
            {"node_name": node.status.name, **fields_of(event)} for node, event in fleet.events
        ],
    }
