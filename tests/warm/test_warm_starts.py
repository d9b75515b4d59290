"""A copy is a process as one that people start: events, signals, exit codes, words."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from scripts.support.agent_process import AgentProcess, AgentProcessFailed, LocalFleet
from tests.warm.starting import ROOT, WarmStarts


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalFleet]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with LocalFleet("warm") as agents:
        yield agents


def is_copy(agent: AgentProcess) -> bool:
    return not isinstance(agent._process, subprocess.Popen)


def test_a_copy_serves_and_leaves_as_it_is_told(fleet: LocalFleet) -> None:
    agent = fleet.start("mini-1", serve=["proposer=ngram"])
    assert agent.ready["name"] == "mini-1"
    assert is_copy(agent)
    assert agent.pid != os.getpid()
    assert os.getsid(agent.pid) == agent.pid
    assert agent.stop() == 0
    assert not psutil.pid_exists(agent.pid)


def test_whoever_shares_the_folder_shares_the_process(
    warm_starts: WarmStarts, warm_folder: Path, tmp_path: Path
) -> None:
    """As the workers of a test run do; it does not end with the first who leaves."""

    def parent_of_a_copy(starts: WarmStarts) -> int:
        # Whom it asks listens and says nothing, so that it is there to be looked at.
        with (
            (tmp_path / "said").open("wb") as said,
            open(os.devnull, "rb") as nothing,
            socket.create_server(("127.0.0.1", 0)) as silent,
        ):
            streams = (nothing.fileno(), said.fileno(), said.fileno())
            words = ["top", "--node", f"127.0.0.1:{silent.getsockname()[1]}"]
            copy = starts.copy(words, os.environ, streams)
            parent = psutil.Process(copy.pid).ppid()
            copy.kill()
        assert copy.wait(60) == -signal.SIGKILL
        return parent

    beside = WarmStarts(warm_folder)
    first = parent_of_a_copy(beside)
    assert first == parent_of_a_copy(warm_starts)
    beside.close()
    assert parent_of_a_copy(warm_starts) == first


def test_a_copy_that_is_killed_says_so_and_the_next_one_starts(fleet: LocalFleet) -> None:
    agent = fleet.start("mini-1", serve=["proposer=ngram"])
    assert agent.ready
    agent.signal(signal.SIGSTOP)
    agent.kill()
    assert agent.wait() == -signal.SIGKILL
    again = fleet.start("mini-1", serve=["proposer=ngram"])
    assert again.ready["node_id"] == agent.node_id


def test_a_copy_that_cannot_start_leaves_its_words_and_its_code(fleet: LocalFleet) -> None:
    agent = fleet.start("mini-1", serve=["proposer=nobody"])
    with pytest.raises(AgentProcessFailed, match="nobody"):
        agent.wait_for("ready")
    assert agent.wait() not in {0, None}


def test_its_own_environment_counts_and_other_libraries_settings_are_no_copy(
    fleet: LocalFleet,
) -> None:
    named = fleet.start("mini-1", serve=["proposer=ngram"], environment={"KAKEYA_LOG_FORMAT": "no"})
    assert named.wait() == 2
    assert "log_format" in str(named.events)
    other = fleet.start("mini-2", serve=["proposer=ngram"], environment={"OMP_NUM_THREADS": "2"})
    assert not is_copy(other)
    assert other.ready


@pytest.mark.parametrize(
    ("number", "to_copy", "status"),
    [
        (signal.SIGTERM, False, 0),
        (signal.SIGKILL, True, -signal.SIGKILL),
        (signal.SIGKILL, False, -signal.SIGKILL),
    ],
    ids=["asked to end", "the copy is killed", "its user is killed"],
)
def test_another_suites_agent_is_a_copy_with_its_own_variables_and_ends_as_it(
    warm_folder: Path, tmp_path: Path, number: int, to_copy: bool, status: int
) -> None:
    words = ["join", "--json", "--no-mdns", "--bind", "127.0.0.1:0", "--state", str(tmp_path / "s")]
    own = json.dumps({"KAKEYA_NAME": "from-elsewhere"})
    with subprocess.Popen(
        [sys.executable, "-m", "tests.warm.beside", own, *words],
        cwd=ROOT,
        env={**os.environ, "TESTS_WARM_FOLDER": str(warm_folder)},
        stdout=subprocess.PIPE,
        text=True,
    ) as beside:
        assert beside.stdout is not None
        said: dict[str, dict[str, object]] = {}
        while "ready" not in said:
            event = json.loads(beside.stdout.readline())
            said[event["event"]] = event
        copy = said["copied"]["pid"]
        assert isinstance(copy, int)
        assert copy != beside.pid
        process = psutil.Process(copy)
        assert said["ready"]["name"] == "from-elsewhere"
        os.kill(copy if to_copy else beside.pid, number)
        assert beside.wait(60) == status
    process.wait(60)


READ_ONCE = """
import os
import random
from collections.abc import Iterator

import pytest

WHO_READ, DRAWN_THERE = os.getpid(), random.random()

@pytest.mark.parametrize("index", range(8))
def test_that_is_run(index: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    print("drawn", random.random(), "by", os.getpid(), "read by", WHO_READ)

def test_that_fails() -> None:
    assert WHO_READ == os.getpid()

@pytest.fixture
def unmade() -> None:
    assert WHO_READ == os.getpid()

def test_whose_set_up_fails(unmade: None) -> None:
    pass

@pytest.fixture
def uncleaned() -> Iterator[None]:
    yield
    assert WHO_READ == os.getpid()

def test_whose_clean_up_fails(uncleaned: None) -> None:
    pass
"""


def run_by_copies(folder: Path, warm_folder: Path) -> subprocess.CompletedProcess[str]:
    """The tests in the folder, all by each of two workers."""
    paths = ["-c", str(ROOT / "pyproject.toml"), str(folder)]
    worker = f"{sys.executable} -m tests.warm.worker {' '.join(paths)}"
    words = [
        "-rA",
        "-p",
        "tests.warm.few_messages",
        "--tx",
        f"2*popen//python={worker}",
        "--dist",
        "each",
        *paths,
    ]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        env={**os.environ, "TESTS_WARM_FOLDER": str(warm_folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_workers_are_copies_of_one_process_that_read_the_tests(
    warm_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "test_read_once.py").write_text(READ_ONCE)
    run = run_by_copies(tmp_path, warm_folder)
    drawn = re.findall(r"^drawn (\S+) by (\d+) read by (\d+)$", run.stdout, re.MULTILINE)
    assert len({number for number, _, _ in drawn}) == 16, run.stdout + run.stderr
    assert len({worker for _, worker, _ in drawn}) == 2
    assert len({reader for _, _, reader in drawn}) == 1
    assert "2 failed, 18 passed, 4 errors" in run.stdout
    assert run.returncode == pytest.ExitCode.TESTS_FAILED


def test_what_cannot_be_read_is_told_by_workers_that_are_copies(
    warm_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "test_unread.py").write_text("import no_such_module")
    run = run_by_copies(tmp_path, warm_folder)
    assert "No module named 'no_such_module'" in run.stdout, run.stdout + run.stderr
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
