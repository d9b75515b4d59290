"""`fleet run` as people type it: a model that is served, one that is not, and no node at all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kakeya_fleet.node.cli.chat.given_text import GivenText
from kakeya_fleet.node.cli.chat.lines import Said, read
from kakeya_fleet.node.cli.run.given_prompt import given_prompt
from kakeya_fleet.node.cli.run.own_agent import OwnAgent
from tests.support.commands import (
    Agents,
    Ask,
    RunningCommand,
    Screen,
    Terminal,
)
from tests.support.in_process import Finished
from tests.support.patience import PATIENCE_SECONDS
from tests.warm.starting import WarmStarts

LIMIT = ("--max-tokens", "8")
HOLDING = """
import time
from kakeya_fleet.node.cli.run.own_agent import OwnAgent
with OwnAgent() as agent:
    print(agent.address(), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def empty(fleet: Terminal) -> Iterator[RunningCommand]:
    """A node of this machine that serves nothing."""
    process = fleet.start("join", "--json", "--name", "mini-7", "--no-mdns")
    assert process.event()["event"] == "ready"
    yield process
    process.kill()


def events(done: Finished) -> list[str]:
    return [line["event"] for line in done.lines]


def end(done: Finished) -> dict[str, object]:
    (found,) = [line for line in done.lines if line["event"] == "done"]
    assert isinstance(found, dict)
    return found


def test_a_model_that_is_served_answers_at_once(ask: Ask) -> None:
    done = ask("run", "toy", "abc", *LIMIT)
    assert (done.code, done.out[-1:]) == (0, "\n")
    assert done.err == (
        "toy has no chat template: turns are joined plainly\n"
        "cut after --max-tokens; say more to go on\n"
    )
    # The same as a chat's only turn.
    assert done.out == ask("chat", "--plain", *LIMIT, stdin="abc\n").out


@pytest.mark.parametrize(
    ("words", "piped", "prompt"),
    [
        (("a", "question"), "", "a question"),
        ((), "two\nlines\n", "two\nlines"),
        (("what", "is it?"), "a text\n", "a text\n\nwhat is it?"),
        # Nothing of it is a command of the chat.
        (("/quit",), "", "/quit"),
    ],
)
def test_what_is_typed_and_what_is_piped_is_one_prompt(
    ask: Ask, words: tuple[str, ...], piped: str, prompt: str
) -> None:
    done = ask("run", "toy", *words, "--json", *LIMIT, stdin=piped)
    assert done.code == 0, done.out
    # Bytes are tokens here.
    assert end(done)["history_length"] == len(f"{prompt}\n") + 8


def test_a_prompt_without_a_word_is_told(ask: Ask) -> None:
    done = ask("run", "toy", "--json", stdin=" \n")
    assert (done.code, done.json["error"]["reason"]) == (2, "EMPTY_PROMPT")


def test_a_model_that_nobody_serves_is_loaded_with_who_drafts_for_it(
    fleet: Terminal, empty: RunningCommand, toy: Path
) -> None:
    first = fleet.run("run", str(toy), "abc", "--json", *LIMIT)
    assert first.code == 0, first.out
    told = first.lines
    assert told[0] == {
        "event": "chosen",
        "model": str(toy),
        "node": "mini-7",
        "node_id": told[0]["node_id"],
        "reason": "the only node that can load it",
        "against": {},
    }
    loaded = [line["offer"] for line in told if line["event"] == "loaded"]
    assert [(each["role"], each["model_id"]) for each in loaded] == [
        ("verifier", "toy"),
        ("proposer", "ngram"),
    ]
    assert end(first)["history_length"] == len("abc\n") + 8
    # By the name that cards call it, and nothing is loaded again.
    again = fleet.run("run", "toy", "abc", "--json", *LIMIT)
    assert again.code == 0, again.out
    assert not {"chosen", "progress", "loaded"} & set(events(again))
    assert end(again)["text"] == end(first)["text"]


def test_of_two_nodes_one_is_chosen_and_the_other_is_told_why_not(
    fleet: Terminal, toy: Path
) -> None:
    first = fleet.start("join", "--json", "--name", "mini-1", "--no-mdns")
    joining = ("--name", "mini-2", "--no-mdns", "--peer", first.event()["address"])
    second = fleet.start("join", "--json", *joining)
    assert second.event()["event"] == "ready"
    while first.event()["event"] != "peer_joined":
        pass
    done = fleet.run("run", str(toy), "abc", *LIMIT)
    assert done.code == 0, done.err
    # One machine, so as much room: the first by name, and which else there is.
    assert f"{toy} is loaded on mini-1: " in done.err
    assert " are left beside the weights; not mini-2: as good\n" in done.err
    assert "mini-1 serves ngram as a proposer" in done.err
    assert "\x1b" not in done.err
    asked = fleet.run("run", str(toy), "abc", "--on", "mini-2", *LIMIT)
    assert f"{toy} is loaded on mini-2: the only node that can load it" in asked.err
    # Somebody drafts for it already.
    assert "ngram" not in asked.err
    wrong = fleet.run("run", "tiny", "abc", "--on", "mini-9", "--json")
    assert wrong.json["error"]["reason"] == "NODE_NOT_FOUND"
    assert "there are: mini-1, mini-2" in wrong.json["error"]["message"]


def test_a_node_that_others_may_not_load_on_is_told_of(ask: Ask) -> None:
    """The nodes of `ask` keep their state elsewhere: to this machine's files they are strangers."""
    done = ask("run", "tiny", "abc", "--json")
    error = done.json["error"]
    assert (done.code, error["reason"]) == (3, "NO_PLACEMENT")
    for name in ("mini-1", "mini-2"):
        assert (
            f"{name}: without an authority a machine's own programs alone load there"
            in (error["message"])
        )


def test_a_keeper_has_it_loaded_on_another_members_machine_and_nobody_else_does(
    fleet: Terminal, warm_starts: WarmStarts, toy: Path, tmp_path: Path
) -> None:
    """Whose files are elsewhere is on another machine, as far as commands can tell."""
    elsewhere = Terminal(tmp_path / "elsewhere", warm_starts)
    joining = ("--json", "--no-mdns")
    try:
        assert fleet.run("init", "home", "--name", "mini-1").code == 0
        keeper = fleet.start("join", "--name", "mini-1", "--serve", "proposer=ngram", *joining)
        assert keeper.event()["event"] == "ready"
        (code,) = fleet.run("invite", "--json").json["long_codes"]
        member = elsewhere.start("join", code, "--name", "mini-2", *joining)
        while member.event()["event"] != "ready":
            pass
        while keeper.event()["event"] != "peer_joined":
            pass
        done = fleet.run("run", "tiny", "abc", "--on", "mini-2", "--json", *LIMIT)
        assert done.code == 0, done.out
        assert done.lines[0]["node"] == "mini-2"
        # The keeper's own node drafts.
        assert [each["offer"]["model_id"] for each in done.lines if each["event"] == "loaded"] == [
            "tiny"
        ]
        path = fleet.run("run", str(toy), "abc", "--on", "mini-2", "--json")
        assert "mini-2: the model is a path on this machine" in path.json["error"]["message"]
        guest = elsewhere.run("run", "smollm2", "abc", "--on", "mini-1", "--json")
        assert guest.json["error"]["reason"] == "NO_PLACEMENT"
        assert "mini-1: its owner and keepers alone load there" in guest.json["error"]["message"]
    finally:
        elsewhere.end_all()


def test_a_model_that_there_is_not_is_told_and_the_node_serves_on(
    fleet: Terminal, empty: RunningCommand
) -> None:
    done = fleet.run("run", "./nowhere", "abc")
    assert done.code == 3
    assert "no model './nowhere'" in done.err.splitlines()[-1]
    assert fleet.run("status").code == 0


def test_ctrl_c_ends_the_waiting_and_the_node_goes_on_loading(
    fleet: Terminal, empty: RunningCommand
) -> None:
    waiting = fleet.start("run", "tiny", "abc", "--json")
    while waiting.event()["event"] != "progress":
        pass
    done = waiting.interrupt()
    assert done.code == 130
    assert done.err == "mini-7 goes on loading tiny; run it again to wait for it\n"
    again = fleet.run("run", "tiny", "abc", "--json", *LIMIT)
    assert (again.code, events(again)[-1]) == (0, "notice")
    assert end(again)["stop_reason"] == "max_tokens"


def test_without_a_node_it_is_said_what_starts_one(fleet: Terminal) -> None:
    done = fleet.run("run", "toy", "abc")
    assert done.code == 3
    assert "`fleet run toy --start`" in done.err
    assert "`fleet join --serve verifier=toy --serve proposer=ngram`" in done.err


@pytest.mark.wide
def test_a_node_that_is_started_for_it_leaves_with_it(fleet: Terminal, toy: Path) -> None:
    # This machine's configuration counts for it, too.
    named = {"KAKEYA_NAME": "mini-5", "KAKEYA_MDNS": "false"}
    done = fleet.run("run", str(toy), "abc", "--start", "--json", *LIMIT, **named)
    assert done.code == 0, done.out
    assert end(done)["history_length"] == len("abc\n") + 8
    state = Path(fleet.environment["XDG_STATE_HOME"]) / "kakeya" / "mini-5"
    assert (state / "port").exists()
    # One that was killed would have left it.
    assert not (state / "agent.json").exists()
    assert fleet.run("status", "--json").json["error"]["reason"] == "NO_LOCAL_NODE"


def test_what_lies_in_the_persons_folder_is_no_module_of_the_node(
    fleet: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('not asked for')")
    monkeypatch.chdir(tmp_path)
    for name, value in {**fleet.environment, "KAKEYA_MDNS": "false"}.items():
        monkeypatch.setenv(name, value)
    with OwnAgent() as agent:
        assert agent.address()


def test_a_node_that_was_started_for_it_leaves_though_nobody_tells_it(fleet: Terminal) -> None:
    environment = {**fleet.environment, "KAKEYA_NAME": "mini-5", "KAKEYA_MDNS": "false"}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDING], env=environment, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline()
        record = Path(environment["XDG_STATE_HOME"]) / "kakeya" / "mini-5" / "agent.json"
        agent = psutil.Process(json.loads(record.read_text())["pid"])
        holder.kill()
    agent.wait(PATIENCE_SECONDS)
    assert not record.exists()


def test_a_node_that_cannot_start_says_why(fleet: Terminal) -> None:
    done = fleet.run("run", "toy", "abc", "--start", "--json", KAKEYA_SERVE="poet=toy")
    assert (done.code, done.json["error"]["reason"]) == (3, "BAD_ROLE_SPEC")


def test_at_a_terminal_it_is_a_chat(screen: Screen, agents: Agents) -> None:
    process = screen("run", "toy", "--node", agents[0].address, *LIMIT)
    process.wait_for(r"toy on mini-1; /help lists the commands\n› *$")
    process.type("abc\r")
    process.wait_for(r"cut after --max-tokens[^›]*^› *$")
    process.press("ctrl-d")
    assert process.end() == 0


def test_at_a_terminal_it_is_asked_whether_to_start_one(screen: Screen) -> None:
    process = screen("run", "toy")
    process.wait_for(r"start one for as long as this takes\? \[Y/n\] *$")
    process.type("n\r")
    assert process.end() == 3
    assert "fleet run toy --start" in " ".join(process.lines)


def test_a_given_text_is_said_as_it_is_and_once() -> None:
    for text in ("hello", "/quit", "//x", "a\n/quit"):
        given = GivenText(text)
        typed = given.read()
        assert typed is not None
        assert read(typed) == Said(text)
        assert given.read() is None


def test_prompts_of_programs_are_read_and_people_talk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", type("Tty", (), {"isatty": lambda _: True})())
    assert given_prompt(()) is None
    assert given_prompt(("a", "b")) == "a b"


def test_all_that_is_said_as_json_is_json(ask: Ask) -> None:
    done = ask("run", "toy", "abc", "--json", *LIMIT)
    assert done.err == ""
    assert all(json.loads(line) for line in done.out.splitlines())
