"""A conversation is one history: what a turn keeps of it, and which ids it appends."""

import random
from collections.abc import Sequence

import pytest

from kakeya.conversation import (
    Conversation,
    Message,
    Render,
    plain_text,
    shared_length,
)

END = 300


class Letters:
    """Ids are code points; END is a special token, `<end>` as text."""

    def encode(self, text: str) -> list[int]:
        ids = []
        while text:
            if text.startswith("<end>"):
                ids.append(END)
                text = text[5:]
            else:
                ids.append(ord(text[0]))
                text = text[1:]
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        special = "" if skip_special_tokens else "<end>"
        return "".join(special if each == END else chr(each) for each in token_ids)


def marked(messages: Sequence[Message]) -> str:
    """A template as models have them: a role and an end around each message."""
    return "".join(f"[{each.role}]{each.content}<end>" for each in messages) + "[assistant]"


def trimming(messages: Sequence[Message]) -> str:
    """A template that writes earlier answers anew, without the spaces around them."""
    shown = [Message(each.role, each.content.strip()) for each in messages]
    return marked(shown)


class Session:
    """Holds ids as a node does: asks are appended, rewinds cut."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.history: list[int] = []
        self.appended: list[int] = []

    def ask(self, text: str, answer: str) -> str:
        turn = self.conversation.ask(text, tuple(self.history))
        self.history = [*self.history[: turn.keep], *turn.append]
        self.appended.append(len(turn.append))
        ids = Letters().encode(answer)
        self.history += ids
        return self.conversation.answered(ids)

    @property
    def text(self) -> str:
        return Letters().decode(self.history, skip_special_tokens=False)


def talk(render: Render = marked, system: str = "") -> Session:
    return Session(Conversation(Letters(), render, system=system))


def test_each_turn_appends_its_own_tokens_alone() -> None:
    session = talk(system="be brief")
    assert session.ask("hello", "hi<end>") == "hi"
    first = session.appended[0]
    session.ask("and now?", "later<end>")
    assert (
        session.text
        == marked(
            [
                Message("system", "be brief"),
                Message("user", "hello"),
                Message("assistant", "hi"),
                Message("user", "and now?"),
            ]
        )
        + "later<end>"
    )
    assert session.appended[1] == len("[user]and now?") + 1 + len("[assistant]") < first


def test_an_answer_that_was_stopped_is_ended_by_the_template() -> None:
    session = talk()
    session.ask("one", "never fini")
    session.ask("two", "ok<end>")
    assert "never fini<end>[user]two" in session.text


def test_a_template_that_trims_goes_back_to_the_longest_prefix_that_holds() -> None:
    session = talk(trimming)
    session.ask("one", "  spaced<end>")
    before = len("[user]one") + 1 + len("[assistant]")
    turn = session.conversation.ask("two", tuple(session.history))
    assert turn.keep == before
    whole = [*session.history[: turn.keep], *turn.append]
    assert Letters().decode(whole, skip_special_tokens=False) == (
        "[user]one<end>[assistant]spaced<end>[user]two<end>[assistant]"
    )


def test_undo_goes_back_to_before_the_question() -> None:
    session = talk()
    session.ask("one", "first<end>")
    kept = list(session.history)
    session.ask("two", "second<end>")
    assert session.conversation.take_back() == Message("user", "two")
    turn = session.conversation.ask("later", tuple(session.history))
    assert turn.keep == len(kept) + len("[user]")
    assert session.history[: len(kept)] == kept
    assert session.conversation.turn_count == 2
    assert session.conversation.take_back() == Message("user", "later")
    assert session.conversation.take_back() == Message("user", "one")
    assert session.conversation.take_back() is None


def test_a_history_that_lost_its_end_is_appended_again() -> None:
    """As after an append that failed, or an answer of which less arrived."""
    session = talk()
    session.ask("one", "first<end>")
    session.history = session.history[:5]
    session.ask("two", "second<end>")
    assert session.text.startswith("[user]one<end>[assistant]first<end>[user]two<end>")


def test_other_words_of_the_system_begin_anew() -> None:
    session = talk(system="a")
    session.ask("one", "x<end>")
    session.conversation.system = "b"
    turn = session.conversation.ask("two", tuple(session.history))
    assert turn.keep == len("[system]")


def test_a_fork_goes_its_own_way() -> None:
    session = talk()
    session.ask("one", "x<end>")
    session.ask("two", "y<end>")
    twin = Session(session.conversation.first_turns(1))
    twin.history = list(session.history)
    twin.ask("three", "z<end>")
    session.ask("four", "w<end>")
    assert "two" not in twin.text
    assert [each.content for each in twin.conversation.messages] == ["one", "x", "three", "z"]
    assert "three" not in session.text


def test_turns_without_a_template_are_joined_plainly() -> None:
    session = talk(plain_text)
    session.ask("x = 1", "y = 2")
    session.ask("z = 3", "w")
    assert session.text == "x = 1\ny = 2\nz = 3\nw"


@pytest.mark.parametrize("render", [marked, trimming])
def test_the_history_is_always_the_rendered_conversation(render: Render) -> None:
    for seed in range(6):
        rng = random.Random(seed)
        session = talk(render)
        for step in range(60):
            if rng.random() < 0.25:
                session.conversation.take_back()
            if rng.random() < 0.2:
                session.history = session.history[: rng.randrange(len(session.history) + 1)]
            if rng.random() < 0.1:
                session.conversation = session.conversation.first_turns(rng.randrange(4))
            words = rng.choice(["a", " b", "cc "]) * rng.randrange(1, 4)
            turn = session.conversation.ask(f"{step}{words}", tuple(session.history))
            held = [*session.history[: turn.keep], *turn.append]
            text = Letters().decode(held, skip_special_tokens=False)
            assert text == render(session.conversation.messages), seed
            answer = Letters().encode(rng.choice(["yes<end>", " no <end>", "", "cut"]))
            session.history = held + answer
            session.conversation.answered(answer)


def test_what_two_histories_share() -> None:
    assert shared_length([1, 2, 3], [1, 2, 4]) == 2
    assert shared_length([1], [1, 2]) == 1
    assert shared_length([], [1]) == 0
