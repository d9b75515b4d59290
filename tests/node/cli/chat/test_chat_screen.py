"""What a chat writes stays line by line, whenever Ctrl-C comes."""

import sys
from io import StringIO

import pytest

from kakeya_fleet.node.cli.chat.screen import ChatScreen


class Interrupted(StringIO):
    """Ctrl-C comes once a text is written."""

    def flush(self) -> None:
        if not self.getvalue().endswith("\n"):
            raise KeyboardInterrupt


def test_a_notice_after_an_interrupted_piece_begins_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Interrupted()
    monkeypatch.setattr(sys, "stdout", written)
    monkeypatch.setattr(sys, "stderr", written)
    screen = ChatScreen(as_json=False, has_colours=False, tints_drafted=False)
    with pytest.raises(KeyboardInterrupt):
        screen.answer("half a wo", drafted=False)
    screen.notice("stopped")
    assert written.getvalue() == "half a wo\nstopped\n"
