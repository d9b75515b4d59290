"""What a terminal showed, drawn as a picture that loads nothing."""

from __future__ import annotations

import io
import itertools
import re
from pathlib import Path

import pyte
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.text import Text

_FAINT, _EXTENDED = 2, (38, 48)
_GREY = "brightblack"


class FaintScreen(pyte.Screen):
    """A screen that keeps faint text, which pyte leaves out, as grey."""

    def select_graphic_rendition(self, *attributes: int) -> None:
        """As ECMA-48 8.3.117 has it. In colours of 256 and more a 2 means something else."""
        super().select_graphic_rendition(*attributes)
        faint = _FAINT in attributes and not any(code in attributes for code in _EXTENDED)
        if faint and self.cursor.attrs.fg == "default":
            self.cursor.attrs = self.cursor.attrs._replace(fg=_GREY)


class Transcript:
    """Commands and what they showed, one beneath another, `columns` wide."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self._text = Text()

    def typed(self, prompt: str, command: str) -> None:
        """A command behind its prompt, apart from what was there before."""
        if self._text:
            self._text.append("\n")
        self._text.append(f"{prompt} ", "green").append(f"{command}\n", "bold")

    def shown(self, screen: pyte.Screen) -> None:
        """What a screen shows, without the empty lines at its end."""
        lines = [_line(screen, number) for number in range(screen.lines)]
        while lines and not lines[-1].plain:
            lines.pop()
        for line in lines:
            self._text.append_text(line).append("\n")

    def save(self, target: Path, title: str) -> None:
        """Writes the picture."""
        save(self._text, target, title, self.columns)


def save(text: Text, target: Path, title: str, columns: int) -> None:
    """Writes `text` as a terminal of so many columns, named `title` at its top."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    text.rstrip()
    console.print(text, soft_wrap=True)
    template = re.sub(r"@font-face \{\{.*?\}\}\s", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    drawn = console.export_svg(title=title, code_format=template, unique_id=target.stem)
    target.write_text(drawn, "utf-8")


def _line(screen: pyte.Screen, number: int) -> Text:
    row = screen.buffer[number]
    line = Text()
    cells = [row[column] for column in range(screen.columns)]
    # As few spans as there are looks: each is an element of the picture.
    for look, alike in itertools.groupby(cells, lambda cell: cell._replace(data="")):
        line.append("".join(cell.data for cell in alike), _style(look))
    line.rstrip()
    return line


def _style(cell: pyte.screens.Char) -> Style:
    return Style(
        color=_colour(cell.fg),
        bgcolor=_colour(cell.bg),
        bold=cell.bold,
        italic=cell.italics,
        underline=cell.underscore,
        reverse=cell.reverse,
    )


def _colour(name: str) -> str | None:
    """A colour of pyte's by the name that rich has for it."""
    if name == "default":
        return None
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    bright, plain = name.startswith("bright"), name.removeprefix("bright")
    plain = "yellow" if plain == "brown" else plain
    return f"bright_{plain}" if bright else plain
