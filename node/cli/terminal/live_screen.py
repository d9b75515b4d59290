"""A full screen that follows what is known: drawn when something changed, at most so often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kakeya_fleet.node.cli.terminal.keys import Keys

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# At most so often: twenty pictures a second look smooth and cost little.
SHORTEST_SECONDS = 0.05
# At least so often: ages grow although nothing is told.
LONGEST_SECONDS = 1.0

_LEAVE_SCREEN = "\x1b[?1049l\x1b[?25h"


class LiveScreen:
    """Shows `draw()` on the terminal's second screen until `close`, and hands keys to `press`.

    The second screen is drawn over whole, line by line, so that nothing flickers, and
    anew when the terminal has another size. What the terminal showed before comes back.
    """

    def __init__(
        self,
        console: Console,
        draw: Callable[[], RenderableType],
        press: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._console = console
        # Taken before the screen stands: while it does, rich writes between the two.
        self._terminal = console.file
        self._draw = draw
        self._press = press
        self._changed = asyncio.Event()
        self._closed = False
        self._keys = Keys(self._take)

    def changed(self) -> None:
        """Something is to be drawn. Called on the event loop's thread."""
        self._changed.set()

    def close(self) -> None:
        """Ends `run`."""
        self._closed = True
        self._changed.set()

    async def run(self) -> None:
        """Draws until `close`, or until it is cancelled."""
        import signal

        from rich.live import Live

        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self.changed)
        live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            transient=True,
            vertical_overflow="crop",
            get_renderable=self._draw,
        )
        try:
            with self._keys, live:
                while not self._closed:
                    self._changed.clear()
                    live.refresh()
                    await asyncio.sleep(SHORTEST_SECONDS)
                    await self._wait()
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)

    def abandon(self) -> None:
        """Gives the terminal back at once; for the process that ends without more ado."""
        self._terminal.write(_LEAVE_SCREEN)
        self._terminal.flush()
        self._keys.restore()

    def _take(self, key: str) -> None:
        self._press(key)
        self._changed.set()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(LONGEST_SECONDS - SHORTEST_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            return
