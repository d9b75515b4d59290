"""Where a command writes: JSON lines, plain text when piped, colours on a terminal.

What is piped has no width: lines are as long as they are, and the same on every screen.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from kakeya_fleet.node.cli.terminal.folding import folded
from kakeya_fleet.node.cli.terminal.printable import printable
from kakeya_fleet.node.cli.terminal.tables import Column, Row, ScreenTable, plain_table
from kakeya_fleet.node.cli.terminal.timeline import ASCII, BLOCKS, Brush

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from rich.console import Console

# Columns and lines of what is no terminal.
UNBOUNDED = 1000


def write_json(value: Mapping[str, object]) -> None:
    """Writes one JSON object as one line on stdout, at once."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def fields_of(value: DataclassInstance) -> dict[str, object]:
    """A dataclass as JSON takes it; enumerations are strings already."""
    return dataclasses.asdict(value)


def say(text: str) -> None:
    """Writes a line on stdout, at once."""
    sys.stdout.write(printable(text) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Writes a line on stderr, at once: what is not the result."""
    sys.stderr.write(fitted(printable(text), sys.stderr) + "\n")
    sys.stderr.flush()


def fitted(text: str, stream: TextIO) -> str:
    """Text for people: on a terminal folded between words, elsewhere as it is."""
    return folded(text, screen_size(stream)[0]) if stream.isatty() else text


def print_table(
    columns: Sequence[Column], rows: Sequence[Row], *, stream: TextIO, title: str = ""
) -> None:
    """Writes a table: folded to the width of a terminal, plain and whole elsewhere."""
    table, console = ScreenTable(columns, rows, title), terminal(stream)
    if console is not None:
        console.print(table, crop=False)
        return
    if stream.isatty():
        text = "\n".join(line.plain for line in table.lines(screen_size(stream)[0]))
    else:
        text = plain_table(columns, rows)
        text = f"{title}\n{text}" if title else text
    stream.write(f"{text}\n")
    stream.flush()


def terminal(stream: TextIO) -> Console | None:
    """A rich console on `stream` when people watch it, or FORCE_COLOR asks for it; else None.

    TERM=dumb is a terminal that shows lines alone. With NO_COLOR there are no colours.
    """
    if not (shows_pictures(stream) or os.environ.get("FORCE_COLOR")):
        return None
    from kakeya_fleet.node.cli.terminal.screen_console import ScreenConsole

    # A terminal's width is looked up anew each time: it can change.
    width = None if stream.isatty() else screen_size(stream)[0]
    return ScreenConsole(file=stream, highlight=False, width=width)


def has_colours(stream: TextIO) -> bool:
    """Whether what is written to `stream` may be coloured: NO_COLOR and FORCE_COLOR decide."""
    if os.environ.get("NO_COLOR"):
        return False
    return shows_pictures(stream) or bool(os.environ.get("FORCE_COLOR"))


def shows_pictures(stream: TextIO) -> bool:
    """Whether `stream` is a terminal whose cursor can be moved."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def screen_size(stream: TextIO) -> tuple[int, int]:
    """Columns and lines of the terminal that `stream` is; COLUMNS and LINES win.

    Beyond every table where it is none.
    """
    try:
        columns, lines = os.get_terminal_size(stream.fileno())
    except OSError:
        columns, lines = UNBOUNDED, UNBOUNDED
    return _size("COLUMNS") or columns or UNBOUNDED, _size("LINES") or lines or UNBOUNDED


def _size(variable: str) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def brush_for(stream: TextIO) -> Brush:
    """Block characters where the stream's encoding has them, else ASCII."""
    try:
        "▒░█".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS
