"""Text that comes piece by piece, on a terminal: no word is cut at the edge.

A word is shown as far as it has come. When it turns out to be longer than its line, it is taken
back, and begins the next one. Control sequences: ECMA-48, CHA and EL.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

_FENCE = "```"
_AS_THEY_ARE = (_FENCE, "|")
"""How lines begin that are not folded: around code, and rows of tables."""
_TAB = 8


class WordWrap:
    """Makes of each piece what is to be written for it; begins at the start of a line.

    Lines within fences of code stay as they are: they are copied, and a terminal folds them itself.
    """

    def __init__(self, width: Callable[[], int]) -> None:
        """`width` tells the terminal's columns, which may change."""
        self._width = width
        self._column = 0
        self._line = ""
        self._word = ""
        self._is_code = False

    def shown(self, text: str) -> str:
        """The piece, with what folds its lines."""
        width = self._width()
        return "".join(self._shown(each, width) for each in text)

    def _shown(self, character: str, width: int) -> str:
        if character == "\n":
            self._is_code ^= self._line.lstrip().startswith(_FENCE)
            self._column, self._line, self._word = 0, "", ""
            return character
        self._line += character
        if character.isspace():
            self._word = ""
            if self._column >= width and self._folds:
                # It would begin the next line; the word behind it does.
                return ""
            cells = _TAB - self._column % _TAB if character == "\t" else 1
            self._column = min(width, self._column + cells)
            return character
        cells, before = _cells(character), ""
        if self._column + cells > width:
            before = self._next_line()
        self._word += character
        self._column += cells
        return before + character

    @property
    def _folds(self) -> bool:
        return not (self._is_code or self._line.lstrip().startswith(_AS_THEY_ARE))

    def _next_line(self) -> str:
        """The edge is reached: what takes the word to the next line, if anything does."""
        size = sum(map(_cells, self._word))
        if not self._folds or size >= self._column:
            # The terminal goes on below by itself.
            self._column = 0
            return ""
        # To where it began: columns are counted from 1.
        erased = f"\x1b[{self._column - size + 1}G\x1b[K" if size else ""
        self._column = size
        return f"{erased}\n{self._word}"


def _cells(character: str) -> int:
    """How many columns it takes: Unicode's annex 11, and none for what combines."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
