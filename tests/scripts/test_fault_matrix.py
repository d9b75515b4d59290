"""The fault matrix: every row is there, a row runs end to end, and nothing of it stays behind."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from scripts import fault_matrix
from scripts.faults.isolation import end_all_but, in_a_process
from scripts.faults.matrix import ROWS
from scripts.faults.row import Verdict

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "benchmarks" / "fault_matrix.json"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_every_row_is_there_once_and_in_the_report_with_its_words() -> None:
    assert [row.number for row in ROWS] == list(range(1, 33))
    report = {each["row"]: each for each in json.loads(REPORT.read_bytes())["rows"]}
    assert report.keys() == {row.number for row in ROWS}
    for row in ROWS:
        told = report[row.number]
        assert (told["fault"], told["criterion"]) == (row.fault, row.criterion)
        assert Verdict(told["verdict"])
        assert told["measured"]


def test_a_row_runs_end_to_end_beside_what_the_report_has(tmp_path: Path) -> None:
    out = tmp_path / "matrix.json"
    out.write_text(json.dumps({"rows": [{"row": 32, "measured": "before"}]}))
    fault_matrix.main(["--rows", "15", "--out", str(out)])
    found, kept = json.loads(out.read_bytes())["rows"]
    assert kept == {"row": 32, "measured": "before"}
    # Whether it was soon enough is for a machine that does nothing else.
    assert found["row"] == 15
    assert found["figures"]["exit_code"] == 3
    assert "PORT_IN_USE" in found["figures"]["told"]
    assert found["in_the_logs"] == []
    assert found["left_processes"] == 0


@pytest.fixture
def agents() -> set[int]:
    """Process ids of agents that this test's process has, at its beginning."""
    return {each.pid for each in psutil.Process().children(recursive=True)}


def test_a_row_that_takes_too_long_is_ended_with_all_that_it_started(agents: set[int]) -> None:
    row = replace(next(each for each in ROWS if each.number == 32), seconds=4.0)
    came = in_a_process(row, seed=1, watched_seconds=1.0)
    assert came["verdict"] == Verdict.MISSED.value
    assert came["measured"] == "it was not over after 4 s"
    # Itself, and the agents, which are no children of this process until then.
    assert int(str(came["left_processes"])) >= 1
    left = {each.pid for each in psutil.Process().children(recursive=True)} - agents
    assert not [pid for pid in left if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
    # Nor does this process adopt what others leave from now on.
    shell = subprocess.run(
        ["sh", "-c", "sleep 30 >/dev/null & echo $!"], stdout=subprocess.PIPE, check=True, text=True
    )
    orphan = psutil.Process(int(shell.stdout))
    assert orphan.ppid() != os.getpid()
    orphan.kill()


def test_what_is_started_while_others_are_ended_is_ended_too(
    agents: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeping = [subprocess.Popen(["sleep", "30"])]
    honest = psutil.wait_procs

    def waiting(processes: list[psutil.Process], timeout: float) -> object:
        if len(sleeping) == 1:
            sleeping.append(subprocess.Popen(["sleep", "30"]))
        return honest(processes, timeout=timeout)

    monkeypatch.setattr("psutil.wait_procs", waiting)
    assert end_all_but({psutil.Process(pid) for pid in agents}) == 2
    for each in sleeping:
        each.wait()


@pytest.mark.parametrize("words", ["0", "33", "1,99"])
def test_rows_that_are_not_there_are_refused(words: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        fault_matrix.main(["--rows", words, "--out", str(tmp_path / "out.json")])
    assert not os.listdir(tmp_path)
