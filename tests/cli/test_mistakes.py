"""What people are told when they, or the fleet, are wrong: one sentence with its mend."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

CLIENTS = {
    "status": [],
    "top": [],
    "chat": [],
    "plan": ["--verifier", "tiny"],
    "generate": ["--verifier", "tiny", "x"],
    "verify": ["--verifier", "tiny", "--prompts", "-"],
    "bench": ["--verifier", "tiny"],
    "leave": [],
}


def one_sentence(done):
    assert done.out == ""
    assert "Traceback" not in done.err
    assert done.err.startswith("fleet: ")
    assert done.err.count("\n") == 1
    return done.err


@pytest.mark.parametrize("name", CLIENTS)
def test_without_a_node_here_the_mend_is_fleet_join(fleet, name):
    done = fleet.run(name, *CLIENTS[name], stdin="x\n")
    assert done.code == 3
    assert "fleet join" in one_sentence(done)


@pytest.mark.parametrize("name", CLIENTS)
def test_nobody_at_the_address(fleet, name, free_address):
    done = fleet.run(name, *CLIENTS[name], "--node", free_address, stdin="x\n")
    assert done.code == 3
    assert free_address in one_sentence(done)


def test_the_address_comes_from_the_environment_too(fleet, free_address):
    done = fleet.run("status", KAKEYA_NODE=free_address)
    assert free_address in one_sentence(done)


def test_errors_are_json_when_json_is_asked_for(fleet, free_address):
    done = fleet.run("status", "--json", "--node", free_address)
    assert done.code == 3
    assert done.err == ""
    error = done.json["error"]
    assert error["reason"] == "NODE_UNREACHABLE"
    assert free_address in error["message"]
    assert error["metadata"]["address"] == free_address


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["jion"], "did you mean `fleet join`"),
        (["frobnicate"], "fleet --help"),
        (["status", "--wach"], "--watch"),
        (["status", "--node", ""], "HOST:PORT"),
        (["status", "--node", "host:99999"], "65535"),
        (["status", "--node", "::1:7600"], "HOST:PORT"),
        (["generate"], "PROMPT"),
        (["generate", "--max-tokens", "0", "x"], "1<=x"),
        (["generate", "--temperature", "-1", "x"], "0<=x"),
        (["generate", "--top-p", "0", "x"], "0<x<=1"),
        (["generate", "--seed", "-3", "x"], "--seed"),
        (["generate", "--block-size", "4", "x"], "--speculation"),
        (["generate", "--kv-strategy", "half", "x"], "sink_window"),
        (["verify"], "--prompts"),
        (["bench", "--rounds", "0"], "1<=x"),
        (["leave", "--drain", "-1"], "0<x"),
        (["plan", "--context", "-1"], "0<=x"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_what_is_right(fleet, words, says):
    done = fleet.run(*words)
    assert done.code == 2
    assert says in one_sentence(done)


def test_wrong_usage_is_json_too(fleet):
    done = fleet.run("plan", "--json", "--context", "x")
    assert done.code == 2
    assert done.json["error"]["reason"] == "USAGE"


def test_a_prompt_that_looks_like_the_flag_does_not_ask_for_json(fleet, free_address):
    done = fleet.run("generate", "--node", free_address, "--", "--json")
    assert done.code == 3
    one_sentence(done)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read"),
        (b"\n\n", "no prompts"),
        (b"\xff\xfe", "UTF-8"),
        (b'{"prompt": "a"}\n{"text": "b"}\n', "line 2"),
        (b'{"prompt": ""}\n', "line 1"),
        (b'{"prompt": 3}\n', "line 1"),
    ],
)
def test_prompts_that_cannot_be_used(fleet, tmp_path, content, says):
    file = tmp_path / "prompts"
    if content is not None:
        file.write_bytes(content)
    done = fleet.run("verify", "--prompts", str(file))
    assert done.code == 2
    assert says in one_sentence(done)


def test_what_a_killed_agent_left_is_not_asked(fleet, tmp_path, dead_process_id, free_address):
    state = tmp_path / "state" / "kakeya" / "mini-1"
    state.mkdir(parents=True)
    facts = {"name": "mini-1", "address": free_address, "pid": dead_process_id}
    (state / "agent.json").write_text(json.dumps(facts))
    assert "fleet join" in one_sentence(fleet.run("status"))


def test_of_several_agents_here_the_first_by_name_is_asked_and_the_others_named(
    fleet, tmp_path, free_address
):
    for name, address in (("mini-2", "127.0.0.1:2"), ("mini-1", free_address)):
        state = tmp_path / "state" / "kakeya" / name
        state.mkdir(parents=True)
        facts = {"name": name, "address": address, "pid": os.getpid()}
        (state / "agent.json").write_text(json.dumps(facts))
    done = fleet.run("status")
    assert "asking mini-1" in done.err
    assert "mini-2 (127.0.0.1:2)" in done.err
    assert f"no node answers at {free_address}" in done.err


def test_a_closed_pipe_is_no_traceback(fleet):
    with fleet.start("--help") as process:
        process.stdout.close()
        err = process.stderr.read()
    assert "Traceback" not in err
    assert "Exception ignored" not in err


@pytest.mark.parametrize(
    ("name", "code"), [(name, 0 if name == "top" else 130) for name in CLIENTS if name != "verify"]
)
def test_ctrl_c_is_answered_at_once_though_the_node_says_nothing(
    fleet, silent_node, interrupt, name, code
):
    host, port = silent_node.getsockname()
    process = fleet.start(name, *CLIENTS[name], "--node", f"{host}:{port}")
    connection, _ = silent_node.accept()
    with connection:
        done, seconds = interrupt(process)
    assert done.code == code
    assert "Traceback" not in done.err
    assert seconds < 0.5


def test_ctrl_c_is_answered_at_once_though_nobody_reads_the_pipe():
    """The loop is blocked in a write; only the last resort can answer."""
    program = (
        "import sys, asyncio\n"
        "from node.cli.connection import run_interruptible\n"
        "async def work():\n"
        "    print('begun', file=sys.stderr, flush=True)\n"
        "    while True: sys.stdout.write('x' * 65536)\n"
        "run_interruptible(work())\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stderr.readline()
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    code = process.wait(20)
    seconds = time.monotonic() - started
    process.communicate()
    assert code == 130
    assert seconds < 0.5
