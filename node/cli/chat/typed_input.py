"""What a person types: lines with history where the terminal has it, pasted ones as one."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path
from types import ModuleType
from typing import Protocol

from kakeya_fleet.node.cli.asking.prompts import not_text
from kakeya_fleet.node.cli.chat.lines import joined

PROMPT = "› "
GOES_ON = "… "
# Lines that come this soon after one were pasted with it.
PASTE_SECONDS = 0.03
KEPT_LINES = 1000
_BOLD = "\x1b[1m"
_PLAIN = "\x1b[0m"


class Words(Protocol):
    """Where a chat's texts come from."""

    @property
    def is_terminal(self) -> bool:
        """Whether a person types, rather than a program."""
        ...

    def open(self) -> None:
        """Before the first text is read."""
        ...

    def close(self) -> str:
        """After the last; what went wrong, else empty."""
        ...

    def keep(self, text: str) -> str:
        """Offers a text for the next time; how it is sent then."""
        ...

    def read(self) -> str | None:
        """The next text; None at the end of input. Raises KeyboardInterrupt on Ctrl-C."""
        ...


class Typist:
    """Reads the texts that a person gives, each from one line or several.

    On a terminal lines can be edited and called back, also those of earlier chats, which
    `history_file` keeps, readable by its owner alone.
    """

    def __init__(self, history_file: Path, *, has_colours: bool) -> None:
        self._is_terminal = sys.stdin.isatty()
        self._history_file = history_file
        self._has_colours = has_colours
        self._readline = _readline() if self._is_terminal else None
        self._kept = ""

    @property
    def is_terminal(self) -> bool:
        """Whether a person types, rather than a program."""
        return self._is_terminal

    def open(self) -> None:
        """Reads the lines of earlier chats."""
        if self._readline is None:
            return
        self._readline.set_history_length(KEPT_LINES)
        # A chat without earlier lines is as good.
        try:
            self._readline.read_history_file(self._history_file)
        except OSError:
            return

    def close(self) -> str:
        """Keeps this chat's lines; what went wrong, else empty."""
        if self._readline is None or not self._readline.get_current_history_length():
            return ""
        try:
            self._history_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._history_file, os.O_WRONLY | os.O_CREAT, 0o600))
            self._readline.write_history_file(self._history_file)
        except OSError as error:
            return f"the lines of this chat cannot be kept in {self._history_file}: {error}"
        return ""

    def keep(self, text: str) -> str:
        """Offers a text that could not be sent for the next time; how it is sent then.

        It stands in the next line, to be changed or sent; where lines cannot be edited,
        an empty line sends it.
        """
        self._kept = text
        if self._readline is None:
            return "your words are kept: Enter sends them again"
        return "your words are kept in the line: Enter sends them again"

    def read(self) -> str | None:
        """The next text; None at the end of input. Raises KeyboardInterrupt on Ctrl-C."""
        kept, self._kept = self._kept, ""
        if self._readline is not None:
            _begin_line(self._readline, kept)
            return self._text()
        text = self._text()
        return kept if text == "" else text

    def _text(self) -> str | None:
        line = self._line(PROMPT)
        if line is None:
            return None
        lines = [line]
        while lines[-1].endswith("\\") or self._is_pasted():
            prompt = GOES_ON if lines[-1].endswith("\\") else ""
            line = self._line(prompt)
            if line is None:
                break
            lines.append(line)
        return joined(lines)

    def _line(self, prompt: str) -> str | None:
        try:
            if self._is_terminal:
                return input(self._shown(prompt))
            line = sys.stdin.readline()
            return line.rstrip("\n") if line else None
        except EOFError:
            return None
        except UnicodeDecodeError as error:
            raise not_text(error) from error

    def _shown(self, prompt: str) -> str:
        if not self._has_colours or not prompt:
            return prompt
        if self._readline is None:
            return f"{_BOLD}{prompt}{_PLAIN}"
        # The library must know which characters take no room.
        return f"\x01{_BOLD}\x02{prompt}\x01{_PLAIN}\x02"

    def _is_pasted(self) -> bool:
        if not self._is_terminal:
            return False
        return bool(select.select([sys.stdin], [], [], PASTE_SECONDS)[0])


def _begin_line(readline: ModuleType, text: str) -> None:
    """The next line that is read begins with `text`; the ones after it do not."""

    def insert() -> None:
        readline.insert_text(text)
        readline.set_startup_hook()

    readline.set_startup_hook(insert if text else None)


def _readline() -> ModuleType | None:
    """The library that edits lines; None where Python was built without it."""
    try:
        import readline
    except ImportError:
        return None
    if "libedit" not in (readline.__doc__ or ""):
        readline.parse_and_bind("set enable-bracketed-paste on")
    return readline
