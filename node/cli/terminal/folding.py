"""What becomes of text that is wider than the terminal: it folds between words and columns.

Nothing is broken inside a word, so an address or a model's name can always be copied
whole; one that is longer than the line alone runs over its end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

# Between two columns of a line, and how far what goes on below stands in.
GAP = 2
HANGING = 2


def folded(text: str, width: int) -> str:
    """Text whose lines hold at most `width` characters; what goes on below is indented."""
    return "\n".join(part for line in text.split("\n") for part in _folded_line(line, width))


def _folded_line(line: str, width: int) -> list[str]:
    """One line as one or several, the later ones deeper than the first."""
    depth = len(line) - len(line.lstrip()) + HANGING
    starts = [0, *line_starts(line, width, width - depth)]
    pieces = [
        line[start:end].rstrip() for start, end in zip(starts, [*starts[1:], None], strict=True)
    ]
    return [pieces[0], *(" " * depth + piece for piece in pieces[1:])]


def line_starts(text: str, first: int, later: int) -> list[int]:
    """Where the words stand that begin a further line, in lines of `first` and `later` width."""
    starts: list[int] = []
    begin, width = 0, first
    for word in re.finditer(r"\S+", text):
        if text[begin : word.start()].strip() and word.end() - begin > width:
            begin, width = word.start(), later
            starts.append(begin)
    return starts


def kept_columns(widths: Sequence[int], folds: Sequence[int], width: int) -> list[int]:
    """Indices of the columns that stay beside each other within `width`.

    Columns leave in the order of `folds`, the lowest first, until the others fit; those
    with 0 never do.
    """
    kept = list(range(len(widths)))
    leaving = sorted((index for index in kept if folds[index]), key=lambda index: folds[index])
    for index in leaving:
        if sum(widths[each] for each in kept) + GAP * (len(kept) - 1) <= width:
            break
        kept.remove(index)
    return kept


def packed(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Lines of indices: parts of these lengths beside each other, as many as `width` holds."""
    lines: list[list[int]] = []
    used = 0
    for index, length in enumerate(lengths):
        if lines and used + GAP + length <= width:
            lines[-1].append(index)
            used += GAP + length
        else:
            lines.append([index])
            used = length
    return lines
