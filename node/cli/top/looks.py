"""Small pictures in characters: sparklines, bars, coloured cells. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from kakeya import BlockTiming

_LEVELS = "▁▂▃▄▅▆▇█"
_EMPTY = "·"

ACCEPTED = "green"
REJECTED = "red"
OWN = "blue"
DRAFT = "cyan"
WIRE = "yellow"
VERIFY = "magenta"
WAIT = "bright_black"


def sparkline(values: Sequence[float], width: int, top: float) -> Text:
    """The latest `width` values, as high as their share of `top`; right-aligned."""
    shown = list(values)[-width:] if width > 0 else []
    text = Text(_EMPTY * (width - len(shown)), "bright_black")
    for value in shown:
        if value <= 0:
            text.append(_LEVELS[0], "bright_black")
        else:
            level = min(len(_LEVELS) - 1, int(value / max(top, value) * len(_LEVELS)))
            text.append(_LEVELS[level], "green")
    return text


def bar(part: float, whole: float, width: int, style: str) -> Text:
    """A bar of `width` cells, as full as `part` of `whole`."""
    full = min(width, max(0, round(width * part / whole))) if whole > 0 else 0
    return Text("█" * full, style).append("░" * (width - full), "bright_black")


def memory_style(share: float) -> str:
    """Green while there is room, yellow above four fifths, red above nineteen twentieths."""
    if share > 0.95:
        return "red"
    return "yellow" if share > 0.8 else "green"


def block_cells(blocks: Sequence[BlockTiming], width: int) -> Text:
    """The latest blocks, a cell a token: accepted, rejected, the verifier's own; spaces between.

    `■` accepted, `□` rejected, `+` the verifier's own token.
    """
    parts: list[Text] = []
    room = width
    for block in reversed(blocks):
        own = max(0, block.committed_count - block.accepted_count)
        rejected = max(0, block.drafted_count - block.accepted_count)
        size = block.accepted_count + rejected + own
        needed = size + (1 if parts else 0)
        if not size or needed > room:
            break
        room -= needed
        cells = Text("■" * block.accepted_count, ACCEPTED)
        cells.append("□" * rejected, REJECTED)
        cells.append("+" * own, OWN)
        parts.append(cells)
    return Text(" ").join(reversed(parts))


def split_bar(parts: Sequence[tuple[float, str]], width: int) -> Text:
    """One bar of `width` cells that its parts share, each in its style; empty without any."""
    whole = sum(max(0.0, part) for part, _ in parts)
    text = Text()
    if whole <= 0:
        return text.append(_EMPTY * width, "bright_black")
    reached, cells = 0.0, 0
    for part, style in parts:
        reached += max(0.0, part)
        end = round(width * reached / whole)
        text.append("█" * (end - cells), style)
        cells = end
    return text


def fitted(text: str | Text, width: int, *, right: bool = False) -> Text:
    """The text in exactly `width` cells, cut with an ellipsis where it is longer."""
    fit = text.copy() if isinstance(text, Text) else Text(text)
    fit.no_wrap = True
    if fit.cell_len > width:
        fit.truncate(width, overflow="ellipsis" if width > 1 else "crop")
    gap = width - fit.cell_len
    if gap > 0:
        if right:
            return Text(" " * gap).append_text(fit)
        fit.pad_right(gap)
    return fit


_ASCII = str.maketrans("▁▂▃▄▅▆▇█▒░·■□›↑↓→…", "._-=+*%#:..#o>^v>~")


def ascii_only(lines: Sequence[Text]) -> list[Text]:
    """The same lines for a terminal whose characters are few."""
    plain = []
    for line in lines:
        text = line.copy()
        text.plain = text.plain.translate(_ASCII)
        plain.append(text)
    return plain
