"""Where a command writes: JSON lines, plain text when piped, colours on a terminal."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from node.cli.timeline import ASCII, BLOCKS, Brush

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from rich.console import Console


def write_json(value: Mapping[str, object]) -> None:
    """Writes one JSON object as one line on stdout, at once."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def fields_of(value: DataclassInstance) -> dict[str, object]:
    """A dataclass as JSON takes it; enumerations are strings already."""
    return dataclasses.asdict(value)


def say(text: str) -> None:
    """Writes a line on stdout, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Writes a line on stderr, at once: what is not the result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def terminal(stream: TextIO) -> Console | None:
    """A rich console on `stream` when people watch it, or FORCE_COLOR asks for it; else None.

    TERM=dumb is a terminal that shows lines alone. With NO_COLOR there are no colours.
    """
    if not (shows_pictures(stream) or os.environ.get("FORCE_COLOR")):
        return None
    from rich.console import Console

    return Console(file=stream, highlight=False)


def has_colours(stream: TextIO) -> bool:
    """Whether what is written to `stream` may be coloured: NO_COLOR and FORCE_COLOR decide."""
    if os.environ.get("NO_COLOR"):
        return False
    return shows_pictures(stream) or bool(os.environ.get("FORCE_COLOR"))


def shows_pictures(stream: TextIO) -> bool:
    """Whether `stream` is a terminal whose cursor can be moved."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def screen_size() -> tuple[int, int]:
    """Columns and lines of the terminal on stdout; COLUMNS and LINES win, 80x24 where unknown."""
    size = shutil.get_terminal_size((80, 24))
    return size.columns, size.lines


def brush_for(stream: TextIO) -> Brush:
    """Block characters where the stream's encoding has them, else ASCII."""
    try:
        "▒░█".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS
