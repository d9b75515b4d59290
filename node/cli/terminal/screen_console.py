"""The console that rich prints on, as this command line ends: rich's own would exit with 1."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from kakeya_fleet.node.cli.terminal.printable import printable


class ScreenConsole(Console):
    """Rich's console; a pipe that nobody reads is BrokenPipeError, as everywhere else.

    Lines are printed without what steers a terminal; rich lets control sequences pass.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """As rich does it."""
        cleaned = (printable(each) if isinstance(each, str) else each for each in objects)
        super().print(*cleaned, **options)

    def on_broken_pipe(self) -> None:
        """Raises BrokenPipeError."""
        raise BrokenPipeError
