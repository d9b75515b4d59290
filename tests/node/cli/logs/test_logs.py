"""`fleet logs` of real agents: events, the log's lines, and both as they come."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click
import pytest

from kakeya import Client, SessionOptions
from kakeya_fleet.node.cli.asking.agent_log import log_file
from kakeya_fleet.node.cli.asking.duration import Duration
from kakeya_fleet.node.cli.asking.local_agents import LocalAgent
from kakeya_fleet.node.cli.fleet.dashboard_process import BUILT_FILES
from kakeya_fleet.node.cli.logs.log_file import MOST_BYTES, LogTail, time_of
from tests.support.commands import Agents, Terminal
from tests.support.patience import PATIENCE_SECONDS

BUILT = any((folder / "server" / "main.mjs").is_file() for folder in BUILT_FILES)


def forgotten(address: str, label: str) -> None:
    """A session with such a label, whose window its history leaves: an event of the node."""
    forgetful: SessionOptions = {
        "speculation": "off",
        "kv_strategy": "sink_window",
        "window_tokens": 32,
        "client_label": label,
        "tokens": [1] * 64,
    }
    with Client(address) as client, client.create_session("toy", **forgetful) as session:
        assert list(session.generate(max_tokens=1))


def test_events_and_log_lines_of_an_agent_here_are_told_in_order(
    fleet: Terminal, agents: Agents
) -> None:
    state = {"KAKEYA_STATE": str(agents[0].options.state)}
    done = fleet.run("logs", "mini-1", **state)
    assert done.code == 0
    assert "events of mini-1, with its log " in done.err
    lines = done.out.splitlines()
    # Nodes of other tests may have joined besides.
    joined = [line for line in lines if "PEER_JOINED" in line and "mini-2" in line]
    assert joined[0].endswith("  info     PEER_JOINED  mini-2 joined the fleet.")
    assert any("  log      " in line and "peer_joined" in line for line in lines)
    assert [line[:19] for line in lines if line[0] != " "] == sorted(
        line[:19] for line in lines if line[0] != " "
    )
    entries = fleet.run("logs", "mini-1", "--json", **state).lines
    assert {each["source"] for each in entries} == {"event", "log"}
    joins = [each for each in entries if each.get("kind") == "PEER_JOINED"]
    assert {each["severity"] for each in joins} == {"info"}
    assert agents[1].node_id in {each["subject_node_id"] for each in joins}


def test_a_node_is_named_by_address_or_the_start_of_its_id_and_has_events_alone(
    fleet: Terminal, agents: Agents
) -> None:
    # Of the other node's state directory this one is no local agent, whose log could be read.
    state = {"KAKEYA_STATE": str(agents[1].options.state)}
    forgotten(agents[0].address, "by id")
    by_id = fleet.run("logs", agents[0].node_id[:10], "--json", **state)
    by_address = fleet.run("logs", "--json", KAKEYA_NODE=agents[0].address)
    for done in (by_id, by_address):
        assert done.err == ""
        assert {each["source"] for each in done.lines} == {"event"}
        told = [each for each in done.lines if each["kind"] == "HISTORY_TRUNCATED"]
        assert "by id" in told[-1]["message"]
    began = time.time()
    recent = fleet.run("logs", "mini-1", "--since", "0s", "--json", **state)
    # The node's samples, by which it counts, are a second apart.
    assert all(each["at_unix"] > began - 5 for each in recent.lines)
    unknown = fleet.run("logs", "mini-9", **state)
    assert (unknown.code, "there are: mini-1, mini-2" in unknown.err) == (3, True)


def test_following_shows_what_happens_until_ctrl_c_which_is_no_error(
    fleet: Terminal, agents: Agents
) -> None:
    process = fleet.start("logs", agents[0].address, "--follow", "--json", "--since", "1d")
    # What was comes first, so the watch is open.
    assert process.event()["source"] == "event"
    forgotten(agents[0].address, "notes")
    event = process.event()
    while event["kind"] != "HISTORY_TRUNCATED" or "notes" not in event["message"]:
        event = process.event()
    assert event["mend"]
    done = process.interrupt()
    assert done.code == 0
    assert "Traceback" not in done.err


def test_the_log_of_an_agent_is_found_where_it_was_told_to_write_it(
    fleet: Terminal, tmp_path: Path
) -> None:
    state, path = tmp_path / "state", tmp_path / "elsewhere" / "node.log"
    path.parent.mkdir()
    words = ("join", "--json", "--name", "logged", "--state", str(state), "--bind", "127.0.0.1:0")
    agent = fleet.start(*words, "--http", "off", "--no-mdns", "--log-file", str(path))
    address = agent.event()["address"]
    path.write_text("2026-01-01T00:00:00Z [info] it says\n")
    done = fleet.run("logs", address, KAKEYA_STATE=str(state))
    assert done.code == 0
    assert done.err.strip() == f"events of logged, with its log {path}"
    assert "[info] it says" in done.out
    assert agent.interrupt().code == 0


@pytest.mark.skipif(not BUILT, reason="the dashboard is not built: make dashboard")
def test_the_dashboard_reads_the_log_of_an_agent_here(fleet: Terminal, agents: Agents) -> None:
    state = str(agents[0].options.state)
    words = ("dashboard", "--no-open", "--json", "--port", "0")
    process = fleet.start(*words, KAKEYA_STATE=state)
    url = process.event()["url"]
    # It was told of this machine's nodes, and of their logs with them.
    while process.event()["event"] != "watching":
        pass

    def told(node_id: str) -> Iterator[dict[str, Any]]:
        asked = urllib.request.Request(
            f"{url}logs",
            data=json.dumps({"nodeId": node_id}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=PATIENCE_SECONDS) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])

    first, second = islice(told(agents[0].node_id), 2)
    path = log_file(LocalAgent("", "", agents[0].pid))
    assert (first["type"], first["path"]) == ("file", str(path))
    joined = [line for line in second["lines"] if line["text"].startswith("peer_joined")]
    assert joined[0]["level"] == "info"
    # Of the other node's state directory nothing was told: its log is not this page's to read.
    assert list(told(agents[1].node_id)) == [{"type": "file", "path": ""}]


def test_nobody_there_and_ctrl_c_while_a_node_is_silent(
    fleet: Terminal, free_address: str, silent_node: socket.socket
) -> None:
    done = fleet.run("logs", free_address)
    assert (done.code, done.out) == (3, "")
    assert free_address in done.err
    assert fleet.run("logs").code == 3
    host, port = silent_node.getsockname()
    process = fleet.start("logs", f"{host}:{port}")
    connection, _ = silent_node.accept()
    with connection:
        assert process.interrupt().code == 130


def test_nodes_of_the_fleet_are_completed(fleet: Terminal, agents: Agents) -> None:
    state = str(agents[0].options.state)
    done = fleet.run("fleet logs mini", _FLEET_COMPLETE="bash", KAKEYA_STATE=state)
    assert [line.split("\t")[1] for line in done.out.splitlines()] == ["mini-1", "mini-2"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("10m", 600), ("90s", 90), ("90", 90), ("1.5h", 5400), ("2d", 172_800)]
)
def test_durations(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "m", "-1s", "1w", "10 m", "1e3", "nan"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no duration"):
        Duration().convert(text, None, None)


def test_a_log_is_read_from_its_end_then_as_it_grows_and_anew_when_emptied(tmp_path: Path) -> None:
    path = tmp_path / "log"
    head = b"2026-01-01T00:00:00.5Z [info] first\n"
    path.write_bytes(head + b"x" * MOST_BYTES + b"\n2026-01-01T00:00:01Z a\n  more\ncut")
    tail = LogTail(path)
    first, second = tail.lines()
    assert (first.text, second.text) == ("2026-01-01T00:00:01Z a", "  more")
    assert first.at_unix == second.at_unix == 1767225601.0
    with path.open("ab") as log:
        log.write(b" off\n")
    assert [line.text for line in tail.lines()] == ["cut off"]
    assert tail.lines() == []
    path.write_bytes(head)
    (again,) = tail.lines()
    assert again.at_unix == 1767225600.5
    tail.close()


def test_a_log_that_was_rotated_is_read_to_its_end_then_the_one_in_its_place(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    path.write_text("one\n")
    tail = LogTail(path)
    assert [line.text for line in tail.lines()] == ["one"]
    with path.open("a") as log:
        log.write("last\n")
    path.rename(tmp_path / "log.1")
    assert [line.text for line in tail.lines()] == ["last"]
    assert tail.lines() == []
    path.write_text("first of the next\n")
    assert [line.text for line in tail.lines()] == ["first of the next"]
    assert tail.lines() == []
    tail.close()


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ('{"event": "x", "timestamp": "2026-01-01T00:00:01.250000Z"}', 1767225601.25),
        ('{"event": "x"}', 0.0),
        ("{no json", 0.0),
        ("2026-13-99T00:00:00Z x", 0.0),
        ("Traceback", 0.0),
    ],
)
def test_the_time_of_a_line_is_what_it_says(line: str, at: float) -> None:
    assert time_of(line) == at


def test_only_a_file_is_a_log_that_can_be_shown(tmp_path: Path) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("this system does not tell where a process writes")
    path = tmp_path / "log"
    with path.open("wb") as log:
        for errors, found in ((log, path), (subprocess.PIPE, None), (subprocess.DEVNULL, None)):
            with subprocess.Popen(["sleep", "60"], stderr=errors) as process:
                assert log_file(LocalAgent("", "", process.pid)) == found
                process.kill()
    assert log_file(LocalAgent("", "", 2**22 + 1)) is None
