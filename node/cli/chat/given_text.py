"""A chat's only turn, which is known beforehand."""

from __future__ import annotations

from kakeya_fleet.node.cli.chat.lines import as_typed


class GivenText:
    """In place of a `Typist`: a text that was given once, then the end of the input."""

    is_terminal = False

    def __init__(self, text: str) -> None:
        """No word of it is a command of the chat."""
        self._text: str | None = as_typed(text)

    def open(self) -> None:
        """Nothing is to be opened."""

    def close(self) -> str:
        """Nothing can go wrong."""
        return ""

    def keep(self, _text: str) -> str:
        """Nobody is there to send it again."""
        return ""

    def read(self) -> str | None:
        """The text, then None."""
        text, self._text = self._text, None
        return text
