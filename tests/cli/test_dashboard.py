import json
import os
import signal
import stat
import time
import urllib.request

import psutil
import pytest

from kakeya_fleet.node.cli.fleet.dashboard_process import BUILT_FILES

BUILT = any((folder / "server" / "main.mjs").is_file() for folder in BUILT_FILES)
built = pytest.mark.skipif(not BUILT, reason="the dashboard is not built: make dashboard")

# Nobody answers there: the page shows that, and the process lives.
NOBODY = "127.0.0.1:9"
PATIENCE_SECONDS = 20.0


def gone(process_id) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if psutil.Process(process_id).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def begin(fleet):
    process = fleet.start("dashboard", "--no-open", "--json", "--node", NOBODY)
    ready = json.loads(process.stdout.readline())
    (child,) = psutil.Process(process.pid).children()
    return process, ready, child.pid


def program(folder, name, text) -> None:
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@built
@pytest.mark.parametrize("word", [signal.SIGINT, signal.SIGTERM])
def test_serves_the_page_until_it_is_told_to_end(fleet, word) -> None:
    process, ready, child = begin(fleet)
    assert ready["event"] == "ready"
    with urllib.request.urlopen(ready["url"], timeout=10) as answer:
        assert b"Kakeya" in answer.read()
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
    process.send_signal(word)
    assert process.wait(PATIENCE_SECONDS) == 0
    assert gone(child)
    process.communicate()


@built
def test_its_process_ends_with_it_whatever_way_it_dies(fleet) -> None:
    process, _ready, child = begin(fleet)
    process.kill()
    process.communicate()
    assert gone(child)


@built
def test_a_process_that_dies_is_told(fleet) -> None:
    process, _ready, child = begin(fleet)
    os.kill(child, signal.SIGKILL)
    out, _err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 3
    assert json.loads(out.splitlines()[-1])["error"]["reason"] == "DASHBOARD_ENDED"


@built
@pytest.mark.parametrize(
    ("script", "reason"),
    [("echo v18.20.1", "NODE_JS_TOO_OLD"), ("echo nothing", "NODE_JS_TOO_OLD")],
)
def test_an_old_node_js_is_refused_by_name(fleet, tmp_path, script, reason) -> None:
    program(tmp_path, "node", f"#!/bin/sh\n{script}\n")
    done = fleet.run(
        "dashboard",
        "--no-open",
        "--json",
        "--node",
        NOBODY,
        PATH=f"{tmp_path}:{os.environ['PATH']}",
    )
    assert done.code == 3
    assert done.json["error"]["reason"] == reason
    assert "20" in done.json["error"]["message"]


@built
def test_a_missing_node_js_is_told_with_its_mend(fleet, tmp_path) -> None:
    done = fleet.run("dashboard", "--no-open", "--node", NOBODY, PATH=str(tmp_path))
    assert done.code == 3
    assert "install Node.js 20" in done.err


@built
def test_started_before_its_node_it_waits_for_it_and_finds_it(fleet) -> None:
    process = fleet.start("dashboard", "--no-open", "--json")
    agent = None
    try:
        ready, waiting = (json.loads(process.stdout.readline()) for _ in range(2))
        assert (ready["event"], ready["node"]) == ("ready", None)
        assert waiting == {"event": "waiting", "for": "a node of this machine"}
        agent = fleet.start(
            *("join", "--json", "--name", "late", "--no-mdns", "--serve", "proposer=ngram"),
            *("--bind", "127.0.0.1:0"),
        )
        address = json.loads(agent.stdout.readline())["address"]
        watching = json.loads(process.stdout.readline())
        assert watching == {"event": "watching", "node": address}
    finally:
        for each in (process, agent):
            if each is not None:
                each.terminate()
                each.communicate(timeout=PATIENCE_SECONDS)


@built
def test_a_person_is_told_what_it_waits_for(screen) -> None:
    board = screen("dashboard", "--no-open", "--node", NOBODY)
    board.wait_for(f"it waits for a node at {NOBODY}: start one with `fleet join`")
    board.interrupt()
    assert board.end() == 0


@built
def test_a_taken_port_is_told(fleet) -> None:
    process, ready, _child = begin(fleet)
    port = ready["url"].rsplit(":", 1)[1].strip("/")
    done = fleet.run("dashboard", "--no-open", "--json", "--node", NOBODY, "--port", port)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert done.code == 3
    assert done.json["error"]["reason"] == "DASHBOARD_FAILED"
    assert f"Port {port} is taken" in done.json["error"]["message"]


def test_help_names_it(fleet) -> None:
    assert "dashboard" in fleet.run("--help").out
