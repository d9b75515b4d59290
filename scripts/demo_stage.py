"""Where the demonstration prints, and what it must show."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from io import TextIOWrapper

from kakeya import FleetSnapshot
from kakeya_fleet.node.cli.fleet.table import COLUMNS, heading, rows
from kakeya_fleet.node.cli.terminal.output import screen_size, terminal
from kakeya_fleet.node.cli.terminal.tables import ScreenTable, plain_table

_INDENT = "   "


class Stage:
    """Where the demo prints: coloured on a terminal, plain when piped."""

    def __init__(self) -> None:
        # An encoding without block characters is no reason to stop.
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")
        self._console = terminal(sys.stdout)
        self._scenes = 0

    @property
    def width(self) -> int:
        """Columns of a line below a heading."""
        return screen_size(sys.stdout)[0] - len(_INDENT)

    def scene(self, title: str) -> None:
        """A numbered heading."""
        self._scenes += 1
        self._styled(f"\n{self._scenes}  {title}", "bold")

    def line(self, text: str = "", style: str = "") -> None:
        """A line below the heading."""
        self._styled(f"{_INDENT}{text}" if text else "", style)

    def block(self, text: str) -> None:
        """Several lines below the heading."""
        for each in text.splitlines():
            self.line(each)

    def raw(self, text: str) -> None:
        """Text as it streams."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def quote(self, prompt: str) -> None:
        """The prompt, apart from what follows it."""
        if self._console is None:
            self.raw(prompt)
        else:
            self._console.print(prompt, style="dim", end="", markup=False, soft_wrap=True)

    def fleet(self, snapshot: FleetSnapshot) -> None:
        """The table of nodes."""
        if self._console is None:
            self.block(f"{heading(snapshot)}\n{plain_table(COLUMNS, rows(snapshot.nodes))}")
        else:
            table = ScreenTable(COLUMNS, rows(snapshot.nodes), heading(snapshot))
            self._console.print(table, crop=False)

    def _styled(self, text: str, style: str) -> None:
        if self._console is None:
            self.raw(text + "\n")
        else:
            self._console.print(text, style=style or None, markup=False, soft_wrap=True)


@dataclass(slots=True)
class Verdicts:
    """What must hold, and whether it did."""

    stage: Stage
    broken: list[str] = field(default_factory=list)

    def check(self, claim: str, *, holds: bool) -> None:
        """Prints the claim with its verdict, and remembers a broken one."""
        self.stage.line(f"{'✓' if holds else '✗'} {claim}", "green" if holds else "bold red")
        if not holds:
            self.broken.append(claim)
