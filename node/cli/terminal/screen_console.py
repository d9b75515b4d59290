"""The console that rich prints on, as this command line ends: rich's own would exit with 1."""

from __future__ import annotations

from rich.console import Console


class ScreenConsole(Console):
    """Rich's console; a pipe that nobody reads is BrokenPipeError, as everywhere else."""

    def on_broken_pipe(self) -> None:
        """Raises BrokenPipeError."""
        raise BrokenPipeError
