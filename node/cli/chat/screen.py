"""What a chat writes: the answer on stdout, everything else beside it."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from kakeya_fleet.node.cli.terminal.output import (
    fitted,
    note,
    screen_size,
    shows_pictures,
    write_json,
)
from kakeya_fleet.node.cli.terminal.printable import printable
from kakeya_fleet.node.cli.terminal.word_wrap import WordWrap

_DRAFTED = "\x1b[36m"
_NOTICE = "\x1b[2m"
_PLAIN = "\x1b[0m"


class ChatScreen:
    """Writes an answer as it comes, and notices on lines of their own.

    `tints_drafted` colours what the proposer drafted, on a terminal with colours alone.
    With `as_json`, each event is one JSON object on stdout.
    """

    def __init__(self, *, as_json: bool, has_colours: bool, tints_drafted: bool) -> None:
        self._as_json = as_json
        self._has_colours = has_colours
        self._tints_drafted = tints_drafted and has_colours
        self._at_line_start = True
        self._wrap = _wrap()

    @property
    def has_colours(self) -> bool:
        """Whether the answer may be coloured."""
        return self._has_colours

    def event(self, name: str, facts: Mapping[str, object]) -> None:
        """An event for programs; nothing for people."""
        if self._as_json:
            write_json({"event": name, **facts})

    def answer(self, text: str, *, drafted: bool) -> None:
        """A piece of the answer."""
        if self._as_json or not text:
            return
        # What a model says may steer a terminal as well; a pipe takes it as it is.
        is_end = text.endswith("\n")
        text = self._wrap.shown(printable(text)) if sys.stdout.isatty() else text
        shown = f"{_DRAFTED}{text}{_PLAIN}" if drafted and self._tints_drafted else text
        # Said before it is written: Ctrl-C may come between the two.
        self._at_line_start = is_end
        sys.stdout.write(shown)
        sys.stdout.flush()

    def end_answer(self) -> None:
        """What comes next begins on a line of its own."""
        if not self._as_json and not self._at_line_start:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._at_line_start = True
        self._wrap = _wrap()

    def notice(self, text: str) -> None:
        """A line beside the conversation, on stderr."""
        self.end_answer()
        if self._as_json:
            write_json({"event": "notice", "text": text})
        elif self._has_colours and shows_pictures(sys.stderr):
            sys.stderr.write(f"{_NOTICE}{fitted(printable(text), sys.stderr)}{_PLAIN}\n")
            sys.stderr.flush()
        else:
            note(text)


def _wrap() -> WordWrap:
    return WordWrap(lambda: screen_size(sys.stdout)[0])
