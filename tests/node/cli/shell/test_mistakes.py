"""What people are told when they, or the fleet, are wrong: one sentence with its mend."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import termios
import time
from pathlib import Path

import psutil
import pytest

from tests.support.breadth import wide
from tests.support.commands import Agents, Terminal
from tests.support.in_process import Finished
from tests.support.patience import PATIENCE_SECONDS
from tests.warm.starting import FLEET

CLIENTS: dict[str, list[str]] = {
    "status": [],
    "top": [],
    "chat": [],
    "plan": ["--verifier", "tiny"],
    "generate": ["--verifier", "tiny", "x"],
    "verify": ["--verifier", "tiny", "--prompts", "-"],
    "bench": ["--verifier", "tiny"],
    "leave": [],
}


def one_sentence(done: Finished) -> str:
    assert done.out == ""
    assert "Traceback" not in done.err
    assert done.err.startswith("fleet: ")
    assert done.err.count("\n") == 1
    return done.err


@pytest.mark.parametrize("name", CLIENTS)
def test_every_command_says_that_nobody_is_there_and_how_to_mend_it(
    fleet: Terminal, name: str, free_address: str
) -> None:
    nowhere = fleet.run(name, *CLIENTS[name], stdin="x\n")
    assert nowhere.code == 3
    assert "fleet join" in one_sentence(nowhere)
    unanswered = fleet.run(name, *CLIENTS[name], "--node", free_address, stdin="x\n")
    assert unanswered.code == 3
    assert free_address in one_sentence(unanswered)


def test_the_address_comes_from_the_environment_too(fleet: Terminal, free_address: str) -> None:
    done = fleet.run("status", KAKEYA_NODE=free_address)
    assert free_address in one_sentence(done)


def test_errors_are_json_when_json_is_asked_for(fleet: Terminal, free_address: str) -> None:
    done = fleet.run("status", "--json", "--node", free_address)
    assert done.code == 3
    assert done.err == ""
    error = done.json["error"]
    assert error["reason"] == "NODE_UNREACHABLE"
    assert free_address in error["message"]
    assert error["metadata"]["address"] == free_address
    # A prompt that looks like the flag is a prompt.
    prompt = fleet.run("generate", "--node", free_address, "--", "--json")
    assert prompt.code == 3
    one_sentence(prompt)


USAGE = {
    "jion": "did you mean `fleet join`",
    "frobnicate": "fleet --help",
    "status --wach": "--watch",
    "status --node=": "HOST:PORT",
    "status --node host:99999": "65535",
    "status --node ::1:7600": "HOST:PORT",
    "generate": "PROMPT",
    "generate --max-tokens 0 x": "1<=x",
    "generate --temperature -1 x": "0<=x",
    "generate --top-p 0 x": "0<x<=1",
    "generate --seed -3 x": "--seed",
    "generate --block-size 4 x": "--speculation",
    "generate --kv-strategy half x": "sink_window",
    "generate \udcff": "is not utf-8 text",
    "verify": "--prompts",
    "bench --rounds 0": "1<=x",
    "leave --drain -1": "0<x",
    "plan --context -1": "0<=x",
    "completion": "bash, zsh, fish",
}


def test_wrong_usage_is_exit_code_2_and_says_what_is_right(fleet: Terminal) -> None:
    for line, says in USAGE.items():
        done = fleet.run(*line.split())
        assert (done.code, says in one_sentence(done)) == (2, True), (line, done.err)
    as_json = fleet.run("plan", "--json", "--context", "x")
    assert as_json.code == 2
    assert as_json.json["error"]["reason"] == "USAGE"


PROMPTS: dict[str, list[bytes | None]] = {
    "cannot be read": [None],
    "no prompts": [b"\n\n"],
    "UTF-8": [b"\xff\xfe"],
    "line 2": [b'{"prompt": "a"}\n{"text": "b"}\n'],
    "line 1": [b'{"prompt": ""}\n', b'{"prompt": 3}\n'],
}


def test_prompts_that_cannot_be_used(fleet: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    for says, contents in PROMPTS.items():
        for content in contents:
            if content is not None:
                file.write_bytes(content)
            done = fleet.run("verify", "--prompts", str(file))
            assert (done.code, says in one_sentence(done)) == (2, True), (content, done.err)


def test_of_several_agents_here_the_first_by_name_is_asked_and_the_others_named(
    fleet: Terminal, tmp_path: Path, free_address: str
) -> None:
    for name, address in (("mini-2", "127.0.0.1:2"), ("mini-1", free_address)):
        state = tmp_path / "state" / "kakeya" / name
        state.mkdir(parents=True)
        facts = {"name": name, "address": address, "pid": os.getpid()}
        (state / "agent.json").write_text(json.dumps(facts))
    done = fleet.run("status")
    assert "asking mini-1" in done.err
    assert "mini-2 (127.0.0.1:2)" in done.err
    assert f"no node answers at {free_address}" in done.err


PIPE_BYTES = 4096
"""The least that a pipe has room for."""


def waiting_bytes(pipe: int) -> int:
    """How many nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="pipes have their size here")
def test_a_pipe_that_nobody_reads_is_the_signals_exit_code_and_no_word(
    fleet: Terminal, agents: Agents
) -> None:
    """Amid an answer: of the pipe so little is left that the rest waits, however late it closes."""
    words = ["--no-stop-at-eos", "--max-tokens", "1000", "--speculation", "off", "def"]
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    taken = os.write(writing, bytes(PIPE_BYTES - 500))
    with subprocess.Popen(
        [*FLEET, "generate", "--node", agents[0].address, *words],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        env=fleet.environment,
    ) as process:
        os.close(writing)
        while waiting_bytes(reading) == taken:
            assert process.poll() is None
            time.sleep(0.005)
        os.close(reading)
        assert process.stderr is not None
        told = process.stderr.read()
    assert process.returncode == 141
    assert "Traceback" not in told
    assert "Exception ignored" not in told
    assert "fleet:" not in told


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--help >/dev/full", "No space left"),
        ("status --node {} >&-", "it is closed"),
        wide("status --json --node {} >/dev/full", "No space left"),
    ],
)
def test_what_cannot_be_printed_is_said_once(
    fleet: Terminal, agents: Agents, line: str, why: str
) -> None:
    done = fleet.shell(line.format(agents[0].address))
    assert done.code == 3
    assert why in one_sentence(done)


@pytest.mark.parametrize("errors", [wide("2>/dev/full"), "2>&-"])
def test_what_cannot_be_told_leaves_the_exit_code(
    fleet: Terminal, free_address: str, errors: str
) -> None:
    assert fleet.shell(f"status --node {free_address} {errors}").code == 3


@pytest.mark.parametrize("words", ["generate -", "verify --prompts -", "chat --plain"])
def test_input_that_is_no_text_is_said(fleet: Terminal, agents: Agents, words: str) -> None:
    done = fleet.run(*words.split(), "--node", agents[0].address, stdin=b"\xff\xfe\n")
    assert done.code == 2
    assert "standard input is not UTF-8 text" in one_sentence(done)


def test_closed_input_is_an_empty_one(fleet: Terminal, agents: Agents) -> None:
    done = fleet.shell(f"generate - --node {agents[0].address} <&-")
    assert done.code == 2
    assert "the prompt is empty" in one_sentence(done)


@pytest.mark.parametrize("module", ["click", "grpc"])
def test_ctrl_c_while_a_module_loads_is_answered_without_a_word(
    fleet: Terminal, module: str
) -> None:
    """Where an exception would be lost: in a finalizer, as imports run many."""
    program = (
        "import os, signal, sys\n"
        "class Dying:\n"
        "    def __del__(self): os.kill(os.getpid(), signal.SIGINT)\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: Dying()\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.argv = ['fleet', 'status', '--node', '127.0.0.1:1']\n"
        "from kakeya_fleet.node.cli.main import main; main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=fleet.environment,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_before_ctrl_c_is_answered_nothing_loads_that_takes_time() -> None:
    program = (
        "import os; before = set(sys.modules)\n"
        "import kakeya_fleet.node.cli.main\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{program}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == [
        "__future__",
        "gc",
        "kakeya_fleet",
        "kakeya_fleet.node",
        "kakeya_fleet.node.cli",
        "kakeya_fleet.node.cli.main",
    ]


@pytest.mark.parametrize(
    ("name", "code"), [(name, 0 if name == "top" else 130) for name in CLIENTS if name != "verify"]
)
def test_ctrl_c_is_answered_at_once_though_the_node_says_nothing(
    fleet: Terminal, silent_node: socket.socket, name: str, code: int
) -> None:
    host, port = silent_node.getsockname()
    process = fleet.start(name, *CLIENTS[name], "--node", f"{host}:{port}")
    connection, _ = silent_node.accept()
    with connection:
        done = process.interrupt()
    assert done.code == code
    assert "Traceback" not in done.err


def test_ctrl_c_is_answered_at_once_though_nobody_reads_the_pipe() -> None:
    """The loop is blocked in a write; only the last resort can answer."""
    program = (
        "import sys, asyncio\n"
        "from kakeya_fleet.node.cli.asking.interruption import run_interruptible\n"
        "async def work():\n"
        "    print('begun', file=sys.stderr, flush=True)\n"
        "    while True: sys.stdout.write('x' * 65536)\n"
        "run_interruptible(work())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()
        # A signal just before the write waits for its end, which is never.
        while psutil.Process(process.pid).status() != psutil.STATUS_SLEEPING:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        try:
            code = process.wait(PATIENCE_SECONDS)
        finally:
            process.kill()
        process.communicate()
    assert code == 130
