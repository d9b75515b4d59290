"""The demonstration: holds on any model, ends by itself, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil
import pytest

from scripts import demo
from scripts.support import agent_process
from tests.warm.starting import WarmProcess, WarmStarts

Show = Callable[[], int]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, warm_starts: WarmStarts) -> list[int]:
    """The process ids of all agents."""
    pids: list[int] = []

    def start(
        command: Sequence[str], environment: Mapping[str, str], errors: IO[bytes]
    ) -> WarmProcess | subprocess.Popen[str]:
        process = warm_starts.start(command, environment, errors)
        pids.append(process.pid)
        return process

    monkeypatch.setattr(agent_process, "start_process", start)
    return pids


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch, toy: Path, started: list[int]) -> Iterator[Show]:
    """Runs it here, on a model that is not the shipped one; its exit code."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    monkeypatch.setattr(sys, "argv", ["demo", "--verifier", str(toy)])
    # Shorter answers, of which the longer one is still long enough to lose its proposer in.
    monkeypatch.setattr(demo, "SHORT_TOKENS", 80)
    # Longer than what is drafted before it shows that the proposer is gone.
    monkeypatch.setattr(demo, "LONG_TOKENS", 700)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("KAKEYA_LINKS", "grpc")
    yield demo.main
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C is KeyboardInterrupt, also where the tests run in a shell's background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.wide
def test_everything_holds_and_nothing_is_left(
    show: Show, started: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    code = show()
    out, err = capsys.readouterr()
    assert (code, err) == (0, ""), out
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
    assert len(started) >= 3
    assert not any(map(psutil.pid_exists, started))


def test_stopped_in_the_middle_it_takes_its_agents_along(
    show: Show, started: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ctrl_c(*_: object) -> None:
        assert all(map(psutil.pid_exists, started))
        os.kill(os.getpid(), signal.SIGINT)

    # Two are ready by then.
    monkeypatch.setattr(demo, "_meet_by_multicast", ctrl_c)
    assert show() == 130
    assert len(started) == 2
    assert not any(map(psutil.pid_exists, started))


def test_an_agent_that_starts_when_ctrl_c_comes_is_ended_too(
    monkeypatch: pytest.MonkeyPatch, interruptible: None
) -> None:
    started: list[subprocess.Popen[str]] = []

    def start(
        command: Sequence[str], environment: Mapping[str, str], errors: IO[bytes]
    ) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", "import time; time.sleep(60)"]
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True))
        os.kill(os.getpid(), signal.SIGINT)
        return started[0]

    monkeypatch.setattr(agent_process, "start_process", start)
    with pytest.raises(KeyboardInterrupt), agent_process.LocalFleet("interrupted") as fleet:
        fleet.start("one")
    with started[0] as process:
        assert process.poll() is not None


@pytest.mark.wide
def test_as_people_start_it_a_signal_while_an_agent_loads_ends_both(toy: Path) -> None:
    mark = uuid.uuid4().hex
    environment = os.environ | {"DEMO_MARK": mark, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
    with subprocess.Popen(
        [sys.executable, "-m", "scripts.demo", "--verifier", str(toy)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        until = time.monotonic() + 60
        # It has some of its libraries: by then the demonstration knows that it was started.
        while not any(
            "kakeya_fleet.node.cli" in each.cmdline() and each.memory_info().rss > 50 << 20
            for each in living(mark)
        ):
            assert time.monotonic() < until, "no agent was started"
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        try:
            _, err = process.communicate(timeout=60)
        finally:
            left = living(mark)
            for each in left:
                each.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert left == []


def living(mark: str) -> list[psutil.Process]:
    """The processes with that mark in their environment, but this one."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("DEMO_MARK") == mark and process.pid != os.getpid():
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
