"""Completion as the shells themselves run it, against agents that live."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from pathlib import Path

import pytest

from kakeya_fleet.node.cli.asking.completion import SCRIPTS
from kakeya_fleet.node.cli.shell.completing import possibilities
from kakeya_fleet.node.cli.shell.dispatch import COMMANDS
from scripts.support.pty_screen import Process, starting
from tests.support.commands import Agents, Screen, Terminal

# What a shell that starts anew says when it is ready.
READY = "ready-to-type> "
# Nothing listens there: what is completed is known without a node.
NOBODY = "127.0.0.1:9"


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a `fleet` of this checkout."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "fleet"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kakeya_fleet.node.cli "$@"\n')
    program.chmod(0o755)
    return folder


@pytest.fixture
def here(tmp_path: Path) -> None:
    """The state of an agent that lives, without the agent: completion reads its file."""
    state = tmp_path / "state" / "kakeya" / "mini-1"
    state.mkdir(parents=True)
    facts = {"name": "mini-1", "address": "127.0.0.1:7612", "pid": os.getpid()}
    (state / "agent.json").write_text(json.dumps(facts))


def values(words: list[str], incomplete: str) -> list[str]:
    return [item.value for item in possibilities(words, incomplete)]


def test_commands_options_and_choices_are_completed() -> None:
    assert values([], "") == list(COMMANDS)
    assert values([], "st") == ["status"]
    assert {"--watch", "--links", "--node", "--json"} <= set(values(["status"], "--"))
    assert values(["generate", "--kv"], "") == ["sink_window", "full", "restored"]
    assert values(["generate"], "--kv-strategy=f") == ["full"]
    assert values(["join", "--serve"], "prop")[0] == "proposer=ngram"
    assert values(["completion"], "z") == ["zsh"]


def test_after_words_that_are_wrong_nothing_is_completed() -> None:
    assert values(["frobnicate"], "") == []


def test_files_are_left_to_the_shell() -> None:
    (item,) = possibilities(["join", "--config"], "")
    assert item.type == "file"


def ask(fleet: Terminal, line: str, **environment: str) -> list[str]:
    done = fleet.run(line, _FLEET_COMPLETE="bash", **environment)
    assert done.code == 0
    assert done.err == ""
    return [row.split("\t")[1] for row in done.out.splitlines()]


def ask_until_heard(fleet: Terminal, line: str, **environment: str) -> list[str]:
    """A node has 0.3 s: one of a busy machine, which completes nothing then, is asked again."""
    end, own = time.monotonic() + 30.0, ask(fleet, line, KAKEYA_NODE=NOBODY)
    while (found := ask(fleet, line, **environment)) == own and time.monotonic() < end:
        pass
    return found


def test_names_and_addresses_come_from_the_agents_of_this_machine(
    fleet: Terminal, here: None
) -> None:
    assert ask(fleet, "fleet status --node ") == ["mini-1"]
    assert ask(fleet, "fleet status --node 127") == ["127.0.0.1:7612"]
    # bash has cut the word at its colons.
    assert ask(fleet, "fleet status --node 127.0.0.1:76") == ["7612"]


def test_names_come_from_a_node_that_answers(fleet: Terminal, agents: Agents) -> None:
    node = {"KAKEYA_NODE": agents[0].address}
    assert ask_until_heard(fleet, "fleet plan --verifier ", **node) == ["toy"]
    # Nodes of other machines have names too.
    assert ask_until_heard(fleet, "fleet run t", **node) == ["tiny", "toy"]
    assert ask_until_heard(fleet, "fleet leave --node ", **node) == ["mini-1", "mini-2"]
    assert ask_until_heard(fleet, "fleet generate --restorer-node mini", **node) == [
        "mini-1",
        "mini-2",
    ]
    assert ask_until_heard(fleet, "fleet hostfile --nodes mini-1,mini-2", **node) == [
        "mini-1,mini-2"
    ]
    assert {"auto", "off", "ngram", "ngram@mini-2"} <= set(
        ask_until_heard(fleet, "fleet generate --speculation ", **node)
    )


def test_a_node_that_is_silent_completes_nothing_soon(
    fleet: Terminal, silent_node: socket.socket
) -> None:
    host, port = silent_node.getsockname()
    assert ask(fleet, "fleet plan --verifier ", KAKEYA_NODE=f"{host}:{port}") == []


def test_scripts_are_printed_as_they_are_and_as_json(fleet: Terminal) -> None:
    for shell, script in SCRIPTS.items():
        assert fleet.run("completion", shell).out == script
        assert fleet.run("completion", shell, "--json").json == {"shell": shell, "script": script}
    assert fleet.run("completion", "csh").code == 2


def start(shell: str, screen: Screen, fleet: Terminal, bin_folder: Path, tmp_path: Path) -> Process:
    """The shell on a terminal, its completion loaded."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / f"completion.{shell}"
    script.write_text(SCRIPTS[shell])
    root = Path(__file__).parents[4]
    words = {
        "bash": [program, "--norc", "--noprofile", "-i"],
        "zsh": [program, "-f", "-i"],
        "fish": [program, "--no-config", "-i"],
    }[shell]
    environment = fleet.environment | {
        "HOME": str(tmp_path),
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "PYTHONPATH": f"{root}",
        "TERM": "xterm",
    }
    process = screen(columns=120, program=starting(words, environment))
    setup = {
        "bash": f"source {script}; PS1='{READY}'",
        "zsh": f"autoload -Uz compinit && compinit -u -d {tmp_path}/z && source {script} && "
        f"PROMPT='{READY}'",
        "fish": f"source {script}; function fish_prompt; echo -n '{READY}'; end",
    }[shell]
    process.type(setup + "\r")
    process.wait_for(rf"^{READY.strip()} *$")
    return process


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_real_shell_completes_commands_options_and_values(
    shell: str, screen: Screen, fleet: Terminal, bin_folder: Path, tmp_path: Path, here: None
) -> None:
    process = start(shell, screen, fleet, bin_folder, tmp_path)
    process.type("fleet stat\t")
    process.wait_for(r"> fleet status$")
    process.type("--wat\t")
    process.wait_for(r"> fleet status --watch$")
    process.type("--node \t")
    process.wait_for(r"> fleet status --watch --node mini-1 ?")
    process.type("\x15fleet generate --kv rest\t")
    process.wait_for(r"> fleet generate --kv restored")
