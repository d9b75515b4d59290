"""What becomes of the words that a person typed while the verifier was away."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Never, cast

import pytest

import kakeya
from kakeya import NodeUnreachable
from kakeya.conversation import Conversation, plain_text
from kakeya.text import TextCodec
from kakeya_fleet.node.cli.asking.sampling_options import Sampling
from kakeya_fleet.node.cli.chat.lines import Said
from kakeya_fleet.node.cli.chat.loop import Chat
from kakeya_fleet.node.cli.chat.screen import ChatScreen
from kakeya_fleet.node.cli.chat.session import AnswerLimits, Branch
from kakeya_fleet.node.cli.chat.typed_input import Typist as RealTypist
from scripts.support.pty_screen import starting
from tests.support.commands import Screen

TYPING = """
import sys
from pathlib import Path
from kakeya_fleet.node.cli.chat import typed_input
if sys.argv[2] == "without":
    typed_input._readline = lambda: None
typist = typed_input.Typist(Path(sys.argv[1]), has_colours=False)
print(typist.keep("first\\nsecond"))
while (text := typist.read()) is not None:
    print("read", repr(text))
"""


class Words:
    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return bytes(token_ids).decode()


class Session:
    """A session whose verifier is away: at once, or once it answered a little."""

    resumptions = ()

    def __init__(self, *, answers: bool) -> None:
        self.history: list[int] = []
        self._answers = answers

    @property
    def history_length(self) -> int:
        return len(self.history)

    def append(self, token_ids: Sequence[int]) -> None:
        if not self._answers:
            raise NodeUnreachable("no node answers")
        self.history += token_ids

    def generate(self, *_: object, **__: object) -> Never:
        self.history += b"so"
        raise NodeUnreachable("no node answers")


class Typist:
    is_terminal = True

    def __init__(self) -> None:
        self.kept: list[str] = []

    def keep(self, text: str) -> str:
        self.kept.append(text)
        return "kept"


def chat(typist: Typist, screen: SimpleNamespace, session: Session) -> Chat:
    """Of each part there is what a chat asks of it when words are sent."""
    codec = SimpleNamespace(
        detokenizer=lambda **_: SimpleNamespace(push=lambda _: "", flush=lambda: "")
    )
    held = cast("kakeya.Session", session)
    return Chat(
        cast("RealTypist", typist),
        cast("ChatScreen", screen),
        AnswerLimits(Sampling(), 8),
        cast("TextCodec", codec),
        Branch(1, held, Conversation(Words(), plain_text)),
    )


@pytest.fixture
def notices() -> list[str]:
    return []


@pytest.fixture
def shown(notices: list[str]) -> SimpleNamespace:
    return SimpleNamespace(
        notice=notices.append, answer=lambda *_, **__: None, end_answer=lambda: None
    )


def test_words_that_could_not_be_sent_are_kept_each_time(
    shown: SimpleNamespace, notices: list[str]
) -> None:
    typist = Typist()
    talk = chat(typist, shown, Session(answers=False))
    for _ in range(2):
        talk._obey(Said("hello"))
    assert typist.kept == ["hello", "hello"]
    assert [text for text in notices if text == "kept"] == ["kept", "kept"]


def test_words_that_have_a_part_of_their_answer_are_not_said_again(shown: SimpleNamespace) -> None:
    typist = Typist()
    chat(typist, shown, Session(answers=True))._obey(Said("hello"))
    assert typist.kept == []


@pytest.mark.parametrize("editing", ["with", "without"])
def test_on_a_terminal_enter_sends_them_and_what_comes_next_is_new(
    screen: Screen, tmp_path: Path, editing: str
) -> None:
    command = [sys.executable, "-c", TYPING, str(tmp_path / "history"), editing]
    process = screen(program=starting(command, {**os.environ, "TERM": "xterm-256color"}))
    process.wait_for(r"Enter sends them again\n› *(first\nsecond)?$")
    process.type("\r")
    process.wait_for(r"read 'first\\nsecond'\n› *$")
    process.type("new\r")
    process.wait_for(r"read 'new'\n› *$")
    process.press("ctrl-d")
    assert process.end() == 0
