"""`fleet dashboard`: the process that serves the page, its beginning and its ends."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from kakeya_fleet.node.cli.fleet.dashboard_process import BUILT_FILES
from tests.support.commands import RunningCommand, Screen, Terminal
from tests.support.patience import PATIENCE_SECONDS

BUILT = any((folder / "server" / "main.mjs").is_file() for folder in BUILT_FILES)
pytestmark = pytest.mark.skipif(not BUILT, reason="the dashboard is not built: make dashboard")

# Nobody answers there: the page shows that, and the process lives.
NOBODY = "127.0.0.1:9"
QUIET = ("dashboard", "--no-open", "--json", "--node", NOBODY)


def gone(process_id: int) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if psutil.Process(process_id).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def begin(fleet: Terminal) -> tuple[RunningCommand, str, int]:
    """The command, the page's address, and the process that serves it."""
    process = fleet.start(*QUIET)
    ready = process.event()
    assert ready["event"] == "ready"
    (child,) = psutil.Process(process.pid).children()
    return process, ready["url"], child.pid


def test_pages_have_ports_of_their_own_and_are_served_until_they_are_told_to_end(
    fleet: Terminal,
) -> None:
    """One for each signal that asks for an end."""
    words = (signal.SIGINT, signal.SIGTERM)
    begun = [begin(fleet) for _ in words]
    assert len({url for _, url, _ in begun}) == len(words)
    for word, (process, url, child) in zip(words, begun, strict=True):
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
            assert b"Kakeya" in answer.read()
            assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
        process.send_signal(word)
        assert process.finish().code == 0
        assert gone(child)


def test_its_process_ends_with_it_whatever_way_it_dies(fleet: Terminal) -> None:
    process, url, child = begin(fleet)
    port = url.rsplit(":", 1)[1].strip("/")
    taken = fleet.run(*QUIET, "--port", port)
    assert taken.code == 3
    assert taken.json["error"]["reason"] == "DASHBOARD_FAILED"
    assert f"Port {port} is taken" in taken.json["error"]["message"]
    process.kill()
    assert gone(child)


def test_where_a_model_fits_is_asked_of_this_very_command(fleet: Terminal) -> None:
    """Which tells of a model before it asks a node; that it does, dashboard/tests/real holds."""
    _, url, _ = begin(fleet)
    body = json.dumps({"model": "nobodys"}).encode()
    asked = urllib.request.Request(
        f"{url}fit", data=body, headers={"Content-Type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(asked, timeout=90)
    assert refused.value.code == 422
    told = json.loads(refused.value.read())
    assert (told["reason"], "'nobodys'" in told["message"]) == ("MODEL_NOT_FOUND", True)


def test_a_process_that_dies_is_told(fleet: Terminal) -> None:
    process, _, child = begin(fleet)
    os.kill(child, signal.SIGKILL)
    done = process.finish()
    assert done.code == 3
    assert done.lines[-1]["error"]["reason"] == "DASHBOARD_ENDED"


def test_a_node_js_that_is_old_or_missing_is_told_with_its_mend(
    fleet: Terminal, tmp_path: Path
) -> None:
    missing = fleet.run("dashboard", "--no-open", "--node", NOBODY, PATH=str(tmp_path))
    assert missing.code == 3
    assert "install Node.js 20" in missing.err
    program = tmp_path / "node"
    for says in ("v18.20.1", "nothing"):
        program.write_text(f"#!/bin/sh\necho {says}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        done = fleet.run(*QUIET, PATH=f"{tmp_path}:{os.environ['PATH']}")
        assert (done.code, done.json["error"]["reason"]) == (3, "NODE_JS_TOO_OLD"), says
        assert "20" in done.json["error"]["message"]


def test_started_before_its_node_it_waits_for_it_and_finds_it(fleet: Terminal) -> None:
    process = fleet.start("dashboard", "--no-open", "--json")
    ready, waiting = process.event(), process.event()
    assert (ready["event"], ready["node"]) == ("ready", None)
    assert waiting == {"event": "waiting", "for": "a node of this machine"}
    agent = fleet.start(
        "join", "--json", "--name", "late", "--no-mdns", "--serve", "proposer=ngram"
    )
    address = agent.event()["address"]
    assert process.event() == {"event": "watching", "node": address}


def test_a_person_is_told_what_it_waits_for(screen: Screen) -> None:
    board = screen("dashboard", "--no-open", "--node", NOBODY)
    board.wait_for(f"it waits for a node at {NOBODY}: start one with `fleet join`")
    board.interrupt()
    assert board.end() == 0
