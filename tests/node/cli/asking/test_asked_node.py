"""Which node a command asks: by address, by name, by choice; and that one is starting."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from kakeya import Liveness
from kakeya_fleet.node.cli.asking.asked_node import address_in, asked_address, chosen_address
from kakeya_fleet.node.cli.asking.node_names import only_node
from kakeya_fleet.node.cli.shell.failure import CommandFailed
from tests.support.fleet_scene import NGRAM, status

Announce = Callable[..., None]


@pytest.fixture
def announce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Announce:
    """announce(name, address): an agent of this machine, as its state directory tells."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("KAKEYA_STATE", raising=False)

    def write(name: str, address: str, folder: str = "", **facts: object) -> None:
        state = tmp_path / "kakeya" / (folder or name)
        state.mkdir(parents=True)
        known = {"name": name, "address": address, "pid": os.getpid()}
        (state / "agent.json").write_text(json.dumps(known | facts))

    return write


def starting() -> dict[str, object]:
    """What an agent says of itself before it answers."""
    return {"state": "starting", "started_at_unix": psutil.Process().create_time()}


def refused(call: Callable[..., object], *arguments: object, **options: object) -> tuple[str, str]:
    with pytest.raises(CommandFailed) as caught:
        call(*arguments, **options)
    return caught.value.reason, caught.value.message


def test_the_name_of_an_agent_here_stands_for_its_address(announce: Announce) -> None:
    announce("mini-1", "127.0.0.1:1")
    announce("mini-2", "127.0.0.1:2")
    assert asked_address("mini-2") == "127.0.0.1:2"
    assert asked_address("10.0.0.1:7600") == "10.0.0.1:7600"


def test_a_name_of_two_agents_here_is_refused_with_both(announce: Announce) -> None:
    announce("mini-1", "127.0.0.1:1")
    announce("mini-1", "127.0.0.1:2", folder="copy")
    reason, message = refused(asked_address, "mini-1")
    assert reason == "NODE_AMBIGUOUS"
    assert "127.0.0.1:1 (on this machine), 127.0.0.1:2 (on this machine)" in message


def test_a_name_without_any_agent_here_cannot_be_looked_up(announce: Announce) -> None:
    reason, message = refused(asked_address, "mini-9")
    assert reason == "NO_LOCAL_NODE"
    assert "'mini-9'" in message


def test_of_the_fleet_a_name_means_one_live_node() -> None:
    one, two = status("mini-1", NGRAM), status("mini-2", NGRAM)
    assert address_in([one, two], "mini-2") == two.address
    reason, message = refused(address_in, [one, two], "mini-3")
    assert reason == "NODE_NOT_FOUND"
    assert "mini-1, mini-2" in message
    again = status("mini-1", NGRAM)
    reason, message = refused(address_in, [one, again, two], "mini-1")
    assert reason == "NODE_AMBIGUOUS"
    assert f"{one.address} ({one.node_id[:12]})" in message
    dead = status("mini-1", liveness=Liveness.DEAD)
    assert address_in([one, dead], "mini-1") == one.address


def test_a_proposers_node_by_a_name_that_two_have_is_refused() -> None:
    nodes = [status("mini-1"), status("mini-1"), status("mini-2")]
    assert refused(only_node, nodes, "mini-1")[0] == "NODE_AMBIGUOUS"
    assert only_node(nodes, "mini-2mini-2") is nodes[2]
    assert only_node(nodes, "other") is None


def test_what_must_not_happen_to_the_wrong_node_is_refused_without_a_terminal(
    announce: Announce, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce("mini-1", "127.0.0.1:1")
    assert chosen_address(None, "leaves", may_ask=True) == "127.0.0.1:1"
    announce("mini-2", "127.0.0.1:2")
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n"))
    reason, message = refused(chosen_address, None, "leaves", may_ask=True)
    assert reason == "NODE_AMBIGUOUS"
    assert "mini-1 (127.0.0.1:1), mini-2 (127.0.0.1:2)" in message
    assert chosen_address("mini-2", "leaves", may_ask=True) == "127.0.0.1:2"


class Typed(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("answer", ["2", "mini-2", "127.0.0.1:2"])
def test_at_a_terminal_the_person_chooses(
    announce: Announce, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    announce("mini-1", "127.0.0.1:1")
    announce("mini-2", "127.0.0.1:2")
    monkeypatch.setattr("sys.stdin", Typed(f"{answer}\n"))
    monkeypatch.setattr("sys.stderr", shown := Typed())
    assert chosen_address(None, "drains and leaves", may_ask=True) == "127.0.0.1:2"
    assert "which node drains and leaves? " in shown.getvalue()
    assert "mini-1 (127.0.0.1:1)" in shown.getvalue()


@pytest.mark.parametrize("answer", ["", "3", "mini"])
def test_an_answer_that_names_none_drains_none(
    announce: Announce, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    announce("mini-1", "127.0.0.1:1")
    announce("mini-2", "127.0.0.1:2")
    monkeypatch.setattr("sys.stdin", Typed(f"{answer}\n"))
    monkeypatch.setattr("sys.stderr", Typed())
    assert refused(chosen_address, None, "leaves", may_ask=True)[0] == "NODE_AMBIGUOUS"


@pytest.mark.parametrize("node", [None, "mini-1", "127.0.0.1:7600"])
def test_a_node_that_answers_nobody_yet_is_starting(announce: Announce, node: str | None) -> None:
    announce("mini-1", "127.0.0.1:7600", **starting())
    reason, message = refused(asked_address, node)
    assert reason == "NODE_STARTING"
    assert f"mini-1 is starting on this machine (process {os.getpid()}, for " in message


def test_another_one_that_answers_is_asked(announce: Announce) -> None:
    announce("mini-1", "", **starting())
    announce("mini-2", "127.0.0.1:2")
    assert asked_address(None) == "127.0.0.1:2"
    assert asked_address("mini-2") == "127.0.0.1:2"
