"""The log as a file: rotated for real, private, and never waited for."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
import structlog

from kakeya_fleet.node.config.log import configure_log
from kakeya_fleet.node.config.log_file import MAX_WAITING_LINES, LogFile
from kakeya_fleet.node.errors import BadConfig

pytestmark = pytest.mark.usefixtures("log_restored")


def events(file: Path) -> list[int]:
    return [json.loads(line)["number"] for line in file.read_text("utf-8").splitlines()]


def test_files_are_rotated_by_size_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    file = LogFile(path, 4096, 2)
    configure_log("info", "auto", node_name="mini-1", file=file)
    for number in range(200):
        structlog.get_logger("test").info("peer_joined", number=number, text="100 %s " * 5)
    file.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "node.log",
        "node.log.1",
        "node.log.2",
    ]
    kept = events(tmp_path / "node.log.2") + events(tmp_path / "node.log.1") + events(path)
    # No line is cut, doubled or out of order, and the last one is there.
    assert kept == list(range(kept[0], 200))
    assert kept[0] > 0
    for each in tmp_path.iterdir():
        assert each.stat().st_size <= 4096
        assert stat.S_IMODE(each.stat().st_mode) == 0o600
    assert file.lost_count == 0


def test_a_log_goes_on_where_the_last_run_ended(tmp_path: Path) -> None:
    for number in range(2):
        file = LogFile(tmp_path / "node.log", 4096, 1)
        configure_log("info", "json", node_name="mini-1", file=file)
        structlog.get_logger("test").info("ready", number=number)
        file.close()
        file.close()
    assert events(tmp_path / "node.log") == [0, 1]


def test_who_logs_does_not_wait_for_a_disk_that_hangs(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "node.log", 1 << 24, 1)
    configure_log("info", "json", node_name="mini-1", file=file)
    log = structlog.get_logger("test")
    (handler,) = file._writing.handlers
    assert handler.lock is not None
    with handler.lock:
        for number in range(MAX_WAITING_LINES + 100):
            log.info("x", number=number)
        # The thread holds one at most.
        assert file.lost_count in (99, 100)
    file.close()
    assert len(events(tmp_path / "node.log")) == MAX_WAITING_LINES + 100 - file.lost_count


def test_a_file_that_cannot_be_written_any_more_costs_lines_and_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    path = folder / "node.log"
    file = LogFile(path, 4096, 1)
    configure_log("info", "json", node_name="mini-1", file=file)
    # What rotation would replace is in its way.
    (folder / "node.log.1").mkdir()
    (folder / "node.log.1" / "x").touch()
    for number in range(100):
        structlog.get_logger("test").info("x", number=number, text="y" * 100)
    file.close()
    assert file.lost_count > 0
    err = capsys.readouterr().err
    assert err.count(f"the log {path} loses lines") == 1
    assert f"the log {path} lost {file.lost_count} lines" in err


@pytest.mark.parametrize("what", ["a folder", "a pipe", "nowhere"])
def test_what_cannot_be_a_log_is_refused_by_name(tmp_path: Path, what: str) -> None:
    path = tmp_path / "log"
    if what == "a folder":
        path.mkdir()
    elif what == "a pipe":
        os.mkfifo(path)
    else:
        path = path / "deeper"
    with pytest.raises(BadConfig, match="cannot be written") as caught:
        LogFile(path, 4096, 1)
    assert "--log-file" in str(caught.value)
