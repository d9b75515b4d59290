"""The demonstration: holds on any model, ends by itself, and leaves no process behind."""

import os
import signal
import subprocess
import sys
import time
import uuid

import psutil
import pytest

from scripts.support import agent_process

pytestmark = pytest.mark.slow


@pytest.fixture
def marked():
    """An environment by which every process of one demonstration is known."""
    mark = uuid.uuid4().hex
    environment = os.environ | {"DEMO_MARK": mark, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    yield environment
    for process in living(mark):
        process.kill()


def living(mark):
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("DEMO_MARK") == mark and process.pid != os.getpid():
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.fixture
def demo(toy, marked):
    process = subprocess.Popen(
        [sys.executable, "-m", "scripts.demo", "--verifier", str(toy)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=marked,
    )
    with process:
        yield process
        process.kill()


def test_everything_holds_and_nothing_is_left(demo, marked) -> None:
    out, err = demo.communicate(timeout=110)
    assert demo.returncode == 0, out + err
    assert err == ""
    assert "✗" not in out
    assert out.count("✓ identical") == 2
    for claim in (
        "through the seed peer",
        "mini-2 drafts for mini-1",
        "drafted tokens took part",
        "the proposer was dropped",
        "no process is left behind",
        "everything held",
    ):
        assert claim in out
    assert living(marked["DEMO_MARK"]) == []


def two_are_ready(demo, mark) -> None:
    for line in demo.stdout:
        if "mini-2" in line:
            return


def one_is_loading(demo, mark) -> None:
    """It has some of its libraries: by then the demonstration knows that it was started."""
    until = time.monotonic() + 60
    while not any(
        "kakeya_fleet.node.cli" in process.cmdline() and process.memory_info().rss > 50 << 20
        for process in living(mark)
    ):
        assert time.monotonic() < until, "no agent was started"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "came_about"), [(signal.SIGINT, two_are_ready), (signal.SIGTERM, one_is_loading)]
)
def test_stopped_in_the_middle_it_takes_its_agents_along(demo, marked, number, came_about) -> None:
    came_about(demo, marked["DEMO_MARK"])
    demo.send_signal(number)
    _, err = demo.communicate(timeout=60)
    assert demo.returncode == 130
    assert "Traceback" not in err
    assert living(marked["DEMO_MARK"]) == []


def test_an_agent_that_starts_when_ctrl_c_comes_is_ended_too(monkeypatch) -> None:
    started = []

    def start(command, environment, errors):
        words = [sys.executable, "-c", "import time; time.sleep(60)"]
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True))
        os.kill(os.getpid(), signal.SIGINT)
        return started[0]

    monkeypatch.setattr(agent_process, "start_process", start)
    with pytest.raises(KeyboardInterrupt), agent_process.LocalFleet("interrupted") as fleet:
        fleet.start("one")
    assert started[0].poll() is not None
