"""Tables: with colours and rules on a terminal, aligned plain text when piped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell; `style` is rich's and shows on a terminal only, like `ornament` before it."""

    text: str
    style: str = ""
    ornament: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; numbers stand right."""

    title: str
    right: bool = False


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


def rich_table(columns: Sequence[Column], rows: Sequence[Row], *, title: str = "") -> Table:
    """The same table for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in columns:
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_rich_text(cell), style=_style(cell)) for cell in row))
    return table


def memory_bar(used: int, total: int, *, width: int = 6) -> str:
    """A bar of `width` cells, as full as the memory."""
    if total <= 0:
        return "·" * width
    full = min(width, max(0, round(width * used / total)))
    return "█" * full + "░" * (width - full)


def _text(cell: Cell | str) -> str:
    return cell if isinstance(cell, str) else cell.text


def _rich_text(cell: Cell | str) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell.ornament} {cell.text}" if cell.ornament else cell.text


def _style(cell: Cell | str) -> str:
    return "" if isinstance(cell, str) else cell.style
