"""Findings as people and programs read them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, counted
from kakeya_fleet.node.cli.terminal.folding import line_starts
from kakeya_fleet.node.cli.terminal.output import UNBOUNDED, say, screen_size, terminal
from kakeya_fleet.node.cli.terminal.printable import printable

_WORDS = {
    Level.OK: "ok",
    Level.WARNING: "warning",
    Level.PROBLEM: "problem",
    Level.NOT_RUN: "not run here",
}
_STYLES = {
    Level.OK: "green",
    Level.WARNING: "yellow",
    Level.PROBLEM: "bold red",
    Level.NOT_RUN: "bright_black",
}
_LEVEL_WIDTH = max(map(len, _WORDS.values())) + 2
_CHECK_WIDTH = 15
_LEAST_WIDTH = 24


def lines_of(finding: Finding, width: int = UNBOUNDED) -> list[str]:
    """A line, and one each for cause and mend below it; folded under themselves to `width`."""
    level = _WORDS[finding.level].ljust(_LEVEL_WIDTH)
    head = f"{level}{finding.check.replace('_', ' ').ljust(_CHECK_WIDTH)}"
    if finding.level is Level.NOT_RUN:
        return _folded(head, finding.cause, width)
    lines = _folded(head, finding.what, width)
    for title, body in (("cause: ", finding.cause), ("mend:  ", finding.mend)):
        lines += _folded(" " * len(head) + title, body, width) if body else []
    return lines


def print_findings(findings: Iterable[Finding]) -> None:
    """Writes them on stdout: coloured by their levels on a terminal, which folds them."""
    console = terminal(sys.stdout)
    width = screen_size(sys.stdout)[0] if console is not None or sys.stdout.isatty() else UNBOUNDED
    for finding in findings:
        for line in lines_of(finding, width):
            if console is None:
                say(line)
                continue
            from rich.text import Text

            text = Text(printable(line))
            if not line.startswith(" "):
                text.stylize(_STYLES[finding.level], 0, _LEVEL_WIDTH)
            console.print(text, soft_wrap=True)


def _folded(prefix: str, body: str, width: int) -> list[str]:
    """The body after its prefix, and what does not fit below itself."""
    room = max(_LEAST_WIDTH, width - len(prefix))
    starts = [0, *line_starts(body, room, room)]
    pieces = [
        body[start:end].rstrip() for start, end in zip(starts, [*starts[1:], None], strict=True)
    ]
    return [f"{prefix}{pieces[0]}", *(" " * len(prefix) + piece for piece in pieces[1:])]


def summary(findings: Sequence[Finding]) -> str:
    """`1 problem, 2 warnings, 9 ok, 1 not run here`."""
    parts = []
    for level in (Level.PROBLEM, Level.WARNING, Level.OK, Level.NOT_RUN):
        count = sum(each.level is level for each in findings)
        is_counted = level in (Level.PROBLEM, Level.WARNING)
        if count and is_counted:
            parts.append(counted(count, _WORDS[level]))
        elif count:
            parts.append(f"{count} {_WORDS[level]}")
    return ", ".join(parts)


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """How many there are of each level, by the level's name."""
    return {level.value: sum(each.level is level for each in findings) for level in Level}
