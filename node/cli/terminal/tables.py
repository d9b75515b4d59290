"""Tables: aligned plain text, as wide as it is, when piped; folded to a terminal's width.

On a terminal, columns that find no room beside the others go whole to lines of their own
below the row, each with its title. No word is broken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kakeya_fleet.node.cli.terminal.folding import GAP, HANGING, kept_columns, line_starts, packed
from kakeya_fleet.node.cli.terminal.printable import on_one_line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell; `style` is rich's and shows on a terminal only, like `ornament` before it."""

    text: str
    style: str = ""
    ornament: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; numbers stand right.

    `folds` says when it leaves a line that is too long: the lowest first, 0 never.
    """

    title: str
    right: bool = False
    folds: int = 0


Row = Sequence[Cell | str]


def plain_table(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """Lines of aligned text, two spaces between columns, titles first; no trailing newline."""
    texts = [[column.title for column in columns]]
    texts += [[_text(cell) for cell in row] for row in rows]
    widths = [max(len(line[index]) for line in texts) for index in range(len(columns))]
    lines = [
        "  ".join(
            text.rjust(width) if column.right else text.ljust(width)
            for text, width, column in zip(line, widths, columns, strict=True)
        ).rstrip()
        for line in texts
    ]
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ScreenTable:
    """A table that rich prints, in as many columns a line as the terminal has room for."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """The lines, for rich."""
        yield from self.lines(options.max_width)

    def lines(self, width: int) -> list[Text]:
        """Title, heads, a rule and the rows."""
        from rich.text import Text

        cells = [[_screen_text(cell) for cell in row] for row in self.rows]
        heads = [Text(column.title, "bold") for column in self.columns]
        widths = [
            max(each.cell_len for each in column) for column in zip(heads, *cells, strict=True)
        ]
        kept = kept_columns(widths, [column.folds for column in self.columns], width)
        sizes = [widths[index] for index in kept]
        rule = "─" * (sum(sizes) + GAP * (len(sizes) - 1))
        found = [Text(self.title, "bold"), Text("")] if self.title else []
        found += [self._line(heads, widths, kept), Text(rule, "dim")]
        for row in cells:
            found.append(self._line(row, widths, kept))
            found += self._below(row, kept, width)
        for line in found:
            # The terminal's own edge is where a single longer word goes on.
            line.no_wrap, line.overflow = True, "ignore"
        return found

    def _line(self, row: Sequence[Text], widths: Sequence[int], kept: Sequence[int]) -> Text:
        """The kept cells beside each other."""
        from rich.text import Text

        parts = []
        for index in kept:
            cell, room = row[index].copy(), widths[index] - row[index].cell_len
            if self.columns[index].right:
                cell.pad_left(room)
            else:
                cell.pad_right(room)
            parts.append(cell)
        line = Text(" " * GAP).join(parts)
        line.rstrip()
        return line

    def _below(self, row: Sequence[Text], kept: Sequence[int], width: int) -> list[Text]:
        """The other cells that say something, each after its title."""
        from rich.text import Text

        room = width - HANGING
        parts = [
            Text(f"{column.title} ", "dim").append_text(cell)
            for index, (column, cell) in enumerate(zip(self.columns, row, strict=True))
            if index not in kept and cell.plain not in ("", "-")
        ]
        found = []
        for indices in packed([part.cell_len for part in parts], room):
            text = Text(" " * GAP).join(parts[index] for index in indices)
            depth = HANGING
            for piece in text.divide(line_starts(text.plain, room, room - HANGING)):
                piece.rstrip()
                found.append(Text(" " * depth).append_text(piece))
                depth = 2 * HANGING
        return found


def memory_bar(used: int, total: int, *, width: int = 6) -> str:
    """A bar of `width` cells, as full as the memory."""
    if total <= 0:
        return "·" * width
    full = min(width, max(0, round(width * used / total)))
    return "█" * full + "░" * (width - full)


def _text(cell: Cell | str) -> str:
    return on_one_line(cell if isinstance(cell, str) else cell.text)


def _screen_text(cell: Cell | str) -> Text:
    """A cell as the terminal shows it. Texts are never read as markup."""
    from rich.text import Text

    if isinstance(cell, str):
        return Text(_text(cell))
    return Text(f"{cell.ornament} {_text(cell)}" if cell.ornament else _text(cell), cell.style)
