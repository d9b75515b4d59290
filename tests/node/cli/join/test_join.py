"""`fleet join` and `fleet leave`: how agents begin and end, as people see it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch

from scripts.support.agent_process import AgentProcess, LocalFleet
from tests.support.commands import NODE, Agents, Terminal
from tests.support.patience import PATIENCE_SECONDS
from tests.warm.starting import FLEET

LONE = ("join", "--json", "--name", "solo", "--no-mdns", "--serve", "proposer=ngram")


def has_ended(pid: int) -> bool:
    """Whether nothing of the process runs any more."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def record_of(fleet: Terminal) -> Path:
    """Where `LONE` says to others of its machine what it is."""
    return Path(fleet.environment["XDG_STATE_HOME"]) / "kakeya" / "solo" / "agent.json"


def test_an_agent_as_people_start_it_says_that_it_starts_then_ready_and_drains_at_ctrl_c(
    fleet: Terminal,
) -> None:
    """A copy would have loaded before it begins what takes its time here, and tensors too."""
    with subprocess.Popen(
        [*FLEET, *LONE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=fleet.environment,
    ) as process:
        assert process.stdout is not None
        try:
            while not record_of(fleet).exists():
                time.sleep(0.005)
                assert process.poll() is None
            # As long as anyone wants to look.
            process.send_signal(signal.SIGSTOP)
            error = fleet.run("status", "--json").json["error"]
            assert error["reason"] == "NODE_STARTING"
            assert error["metadata"] == {"node": "solo", "pid": str(process.pid)}
            process.send_signal(signal.SIGCONT)
            ready = json.loads(process.stdout.readline())
            assert ready["event"] == "ready"
            assert re.fullmatch(r"[0-9a-f]{64}", ready["node_id"])
            assert re.fullmatch(r"127\.0\.0\.1:\d+", ready["address"])
            assert fleet.run("status").code == 0
            maps = Path(f"/proc/{process.pid}/maps")
            if maps.exists():
                assert "libtorch" not in maps.read_text()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 0
    events = [json.loads(line)["event"] for line in out.splitlines()]
    assert events[-2:] == ["draining", "left"]
    assert "Traceback" not in err


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[AgentProcess]:
    """Of a fleet of its own: who has left is listed for minutes."""
    with LocalFleet("watched", directory=tmp_path / "agents") as local:
        yield local.start("mini-1", serve=["proposer=ngram"], environment=NODE)


def test_a_node_that_joins_and_leaves_is_seen_by_a_watch(
    fleet: Terminal, watched: AgentProcess
) -> None:
    watch = fleet.start("status", "--watch", "--json", "--node", watched.address)
    assert watch.event()["event"] == "snapshot"
    process = fleet.start(*LONE, "--fleet", "watched", "--peer", watched.address)
    ready = process.event()
    seen: set[tuple[str, str]] = set()

    def see(liveness: str) -> None:
        while (ready["node_id"], liveness) not in seen:
            node = watch.event()["node"]
            seen.add((node["node_id"], node["liveness"]))

    see("alive")
    left = fleet.run("leave", "--node", ready["address"])
    see("left")
    assert left.code == 0
    assert "solo left the fleet after" in left.out
    assert process.wait() == 0
    done = watch.interrupt()
    assert (done.code, done.err.strip()) == (0, "")


def test_of_one_agent_here_no_word_is_needed_until_it_has_left(fleet: Terminal) -> None:
    process = fleet.start(*LONE)
    assert process.event()["event"] == "ready"
    assert fleet.run("status").code == 0
    done = fleet.run("leave", "--json")
    assert done.code == 0
    assert done.json["name"] == "solo"
    # It is not waited for here: at most its status is still to be collected.
    assert has_ended(process.pid), f"process {process.pid} runs on"
    assert process.wait() == 0
    # What a killed agent leaves behind is not asked either.
    record_of(fleet).write_text(
        json.dumps({"name": "solo", "address": "127.0.0.1:1", "pid": process.pid})
    )
    gone = fleet.run("status", "--json")
    assert (gone.code, gone.json["error"]["reason"]) == (3, "NO_LOCAL_NODE")


def test_what_another_agent_has_is_said_with_its_mend(fleet: Terminal, agents: Agents) -> None:
    address = agents[1].address
    taken = fleet.start("join", "--bind", address, "--no-mdns").finish()
    assert taken.code == 3
    assert address.rpartition(":")[2] in taken.err
    assert taken.err.count("\n") == 1
    shared = fleet.run("join", "--state", str(agents[1].options.state), "--no-mdns")
    assert shared.code == 3
    assert "--state" in shared.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--serve verifier=no/such-model", "no/such-model"),
        ("--serve verifier=nowhere", "'nowhere'"),
        ("--serve poet=tiny", "poet"),
        ("--serve ngram", "verifier=MODEL"),
        ("--bind 0.0.0.0:0", "--insecure"),
        ("--config /nope.toml", "--config"),
        ("--name a/b", "name"),
    ],
)
def test_an_agent_that_cannot_start_says_why_in_one_sentence(
    fleet: Terminal, words: str, says: str
) -> None:
    done = fleet.start("join", "--no-mdns", *words.split()).finish()
    assert done.code in (2, 3)
    assert says in done.err
    assert "Traceback" not in done.err
    assert done.err.splitlines()[-1].startswith("fleet: ")


def test_the_ready_block_gives_the_exact_next_command(fleet: Terminal) -> None:
    process = fleet.start("join", "--name", "mini-1", "--no-mdns", "--serve", "proposer=ngram")
    block = ""
    while "Ctrl-C" not in block:
        assert process.running
        block += process.line()
    address = re.search(r"address +(\S+)", block)
    assert address is not None
    assert f"fleet join --name mini-2 --serve verifier=tiny --peer {address[1]}" in block
    process.send_signal(signal.SIGTERM)
    done = process.finish()
    assert "left the fleet" in done.out
    assert (done.code, done.err) == (0, "")


def test_an_agent_whose_output_nobody_reads_serves_and_leaves(fleet: Terminal) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while os.write(writing, b"x" * 4096):
            pass
    os.set_blocking(writing, True)
    words = [*FLEET, *LONE[:-2]]
    with subprocess.Popen(words, stdout=writing, stderr=writing, env=fleet.environment) as process:
        try:
            while fleet.run("status").code:
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=PATIENCE_SECONDS) == 0
        finally:
            process.kill()
            os.close(reading)
            os.close(writing)


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_device_that_is_not_here_ends_the_start_by_name(fleet: Terminal, device: str) -> None:
    if getattr(torch.backends, device).is_built():
        pytest.skip(f"this torch has {device}")
    done = fleet.run(*LONE, "--device", device)
    assert done.code == 3
    error = done.json["error"]
    assert (error["reason"], error["metadata"]) == ("DEVICE_UNAVAILABLE", {"device": device})
