"""`fleet chat` as people and programs use it, against a real verifier."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kakeya import Client, SessionInfo
from scripts.support.agent_process import LocalFleet
from scripts.support.pty_screen import Process
from tests.support.commands import NODE, Agents, Ask, Screen, Terminal
from tests.support.in_process import Finished

Chat = Callable[..., Finished]
Talk = Callable[..., Process]


@pytest.fixture
def chat(ask: Ask) -> Chat:
    """Runs a chat whose turns are the given lines, in this process."""

    def run(*lines: str, words: Sequence[str] = ("--plain",)) -> Finished:
        stdin = "".join(f"{line}\n" for line in lines)
        return ask("chat", "--max-tokens", "12", *words, stdin=stdin)

    return run


@pytest.fixture
def talk(screen: Screen, agents: Agents) -> Talk:
    """A chat on a terminal."""

    def start(*words: str) -> Process:
        process = screen("chat", "--plain", "--node", agents[0].address, *words)
        process.wait_for(r"^› *$")
        return process

    return start


def open_sessions(agents: Agents) -> list[SessionInfo]:
    with Client(agents[0].address) as client:
        return [each for each in client.sessions() if each.client_label == "fleet chat"]


def test_each_line_is_a_turn_and_only_its_tokens_are_appended(chat: Chat, agents: Agents) -> None:
    done = chat("first", "second", "third", words=("--plain", "--json"))
    assert done.code == 0, done.err
    ends = [line for line in done.lines if line["event"] == "done"]
    assert len(ends) == 3
    lengths = [end["history_length"] for end in ends]
    # Bytes are tokens here; an answer's own line end comes with the next turn.
    assert lengths[0] == len("first\n") + 12
    assert lengths[1] - lengths[0] == len("\nsecond\n") + 12
    assert lengths[2] - lengths[1] == len("\nthird\n") + 12
    assert open_sessions(agents) == []


def test_a_chat_that_forgets_says_so_once(chat: Chat) -> None:
    lines = ("first of all", "second", "third")
    done = chat(*lines, words=("--plain", "--window", "8"))
    assert done.code == 0, done.err
    assert done.err.count("forgotten: ") == 1
    assert "--kv restored with an archive" in done.err
    assert "forgotten" not in chat(*lines, words=("--plain", "--kv", "full")).err


def test_a_model_without_a_template_is_told_with_its_mend(chat: Chat) -> None:
    done = chat("hello", words=())
    assert done.code == 3
    assert "toy has no chat template" in done.err
    assert "--plain" in done.err
    assert done.err.count("\n") == 1


def test_a_model_with_a_template_is_rendered_with_it(chat: Chat, toy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "with-template"
    folder.mkdir()
    for path in toy.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "chat_template.jinja").write_text(
        "{% for each in messages %}<{{ each.role }}>{{ each.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    words = ("--json", "--verifier", "toy", "--tokenizer", str(folder), "--system", "s")
    done = chat("hi", words=words)
    assert done.code == 0, done.err
    (end,) = [line for line in done.lines if line["event"] == "done"]
    assert end["history_length"] == len("<system>s\n<user>hi\n<assistant>") + 12


def test_commands_work_without_a_terminal(chat: Chat, tmp_path: Path) -> None:
    saved = tmp_path / "talk.json"
    lines = ["one", "/stats", "/fork", "two", "/sessions", "/sessions 1", "/undo", "/undo"]
    done = chat(*lines, "/system s", f"/save {saved}", "/nope", "/quit", "never said")
    assert done.code == 0
    for words in (
        r"^session 1 \([0-9a-f]{12}\) on 127",
        r"history 16 tokens, 15 resident, K/V ",
        r"^acceptance length",
        r"^session 2 goes on after 1 turn;",
        r"^\* 2  .* in 2 turns.*: 'two'$",
        r"^\* 1  .* in 1 turn.*: 'one'$",
        r"^taken back: 'one'$",
        r"^nothing was asked yet$",
        r"^system: s$",
        r"^1 messages are in ",
        r"^there is no command /nope",
    ):
        assert re.search(words, done.err, re.M), (words, done.err)
    assert json.loads(saved.read_text()) == [{"role": "system", "content": "s"}]
    assert "never" not in done.out + done.err


def test_a_question_is_asked_anew_or_otherwise(chat: Chat) -> None:
    done = chat(
        "/retry", "one", "/retry", "/edit", "", "/edit", "/two", words=("--plain", "--json")
    )
    assert done.code == 0, done.err
    ends = [line for line in done.lines if line["event"] == "done"]
    # An empty line sends what was taken back; another one takes its place.
    lengths = [len(f"{text}\n") + 12 for text in ("one", "one", "one")]
    assert [end["history_length"] for end in ends] == lengths
    # Greedy: the same question, the same answer.
    assert len({end["text"] for end in ends}) == 1
    notices = [line["text"] for line in done.lines if line["event"] == "notice"]
    assert notices[0] == "nothing was asked yet"
    assert sum("your words are kept" in text for text in notices) == 2
    assert any("there is no command /two" in text for text in notices)


def test_on_a_terminal_a_question_comes_back_into_the_line(talk: Talk) -> None:
    process = talk("--max-tokens", "4")
    process.type("abc\r")
    process.wait_for(r"cut after[^›]*^› *$")
    process.type("/edit\r")
    process.wait_for(r"your words are kept[^›]*^› abc$")
    process.type("d\r")
    process.wait_for(r"^› abcd\n[^›]*cut after[^›]*^› *$")
    process.type("/save /dev/stderr\r")
    process.wait_for(r"## user\n\nabcd\n")
    process.wait_for(r"2 messages are in /dev/stderr\n› *$")
    process.press("ctrl-d")
    assert process.end() == 0


def test_a_whole_conversation_on_a_terminal(talk: Talk, agents: Agents, tmp_path: Path) -> None:
    process = talk("--max-tokens", "16", "--show-drafted")
    process.type("abcabcabcabc\\\r")
    process.wait_for(r"^… *$")
    process.type("abc\r")
    process.wait_for(r"cut after --max-tokens[^›]*^› *$")
    assert open_sessions(agents)[0].history_length == len("abcabcabcabc\nabc\n") + 16
    process.type("/stats\r")
    process.wait_for(r"acceptance length[^›]*^› *$")
    process.press("ctrl-d")
    assert process.end() == 0
    assert open_sessions(agents) == []
    kept = tmp_path / "state" / "kakeya" / "chat_history"
    assert "/stats" in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_ctrl_c_stops_the_answer_and_twice_at_the_prompt_the_chat(
    talk: Talk, agents: Agents
) -> None:
    process = talk("--max-tokens", "1000000")
    with agents[0].slowed():
        process.type("abcabc\r")
        process.wait_for(r"abcabc\n.*\S")
        process.interrupt()
        process.wait_for(r"^stopped[^›]*^› *$")
    (session,) = open_sessions(agents)
    assert session.history_length < 1_000_000
    process.type("/undo\r")
    process.wait_for(r"taken back: 'abcabc'\n› *$")
    process.interrupt_reading()
    process.wait_for(r"Ctrl-C again[^›]*^› *$")
    process.interrupt_reading()
    assert process.end() == 0
    assert b"Traceback" not in process.raw


def test_pasted_lines_are_one_turn(talk: Talk) -> None:
    process = talk("--max-tokens", "4")
    process.type("\x1b[200~one\ntwo\nthree\x1b[201~\r")
    process.wait_for(r"cut after[^›]*^› *$")
    process.type("/save /dev/stderr\r")
    process.wait_for(r"## user\n\none\ntwo\nthree\n")
    process.wait_for(r"messages are in /dev/stderr\n› *$")
    process.press("ctrl-d")
    assert process.end() == 0


def test_a_verifier_that_dies_is_replaced_and_said_in_one_line(
    fleet: Terminal, toy: Path, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    said.write_text("abcabc\n")
    with LocalFleet("chat-tests", directory=tmp_path / "agents") as local:
        serve = [f"verifier={toy}"]
        first = local.start("mini-1", serve=serve, environment=NODE)
        second = local.start("mini-2", serve=serve, peers=[first.address], environment=NODE)
        first.wait_for("peer_joined")
        words = ["--plain", "--json", "--node", first.address, "--max-tokens", "1000"]
        with first.slowed():
            process = fleet.start("chat", *words, stdin=said)
            for _ in range(5):
                assert process.event()["event"] == "tokens"
            first.kill()
        done = process.finish()
    notices = [each["text"] for each in done.lines if each["event"] == "notice"]
    (notice,) = [text for text in notices if "was lost" in text]
    assert notice.startswith(f"the verifier at {first.address} was lost")
    assert f"the session went on at {second.address} with " in notice
    (end,) = [each for each in done.lines if each["event"] == "done"]
    assert end["history_length"] == len("abcabc\n") + 1000
    assert done.code == 0
