"""A row in a process of its own: bounded, and everything that it started is ended with it."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from scripts.faults.row import Row, Verdict

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
ENDING_SECONDS = 10.0
LAST_WORDS = 600


def in_a_process(row: Row, seed: int, watched_seconds: float) -> dict[str, object]:
    """What the row came to, for the report; a row that broke or took too long has missed."""
    before = set(psutil.Process().children(recursive=True))
    words = [sys.executable, "-m", "scripts.faults.run_row", str(row.number)]
    words += ["--seed", str(seed), "--watched-seconds", str(watched_seconds)]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as errors:
        with adopting_orphans():
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
            try:
                told, _ = process.communicate(timeout=row.seconds)
                broke = ""
            except subprocess.TimeoutExpired:
                told, broke = "", f"it was not over after {row.seconds:g} s"
            finally:
                left = end_all_but(before)
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()
        errors.seek(0)
        last = errors.read()[-LAST_WORDS:].strip().splitlines()
    lines = told.splitlines()
    if lines and process.returncode == 0:
        came: dict[str, object] = json.loads(lines[-1])
        return came | {"left_processes": left}
    return {
        "row": row.number,
        "fault": row.fault,
        "criterion": row.criterion,
        "verdict": Verdict.MISSED.value,
        "measured": broke or f"it broke: {last[-1] if last else 'without a word'}",
        "figures": {},
        "last_words": last,
        "seed": seed,
        "seconds": round(time.monotonic() - began, 1),
        "left_processes": left,
    }


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Processes whose parents end become this one's children, and can be ended (Linux).

    Afterwards they are whose they were: who adopts them for good has to wait for each.
    """
    if sys.platform != "linux":
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    before = ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def end_all_but(kept: set[psutil.Process]) -> int:
    """Ends the processes below this one but `kept`; how many of them there were running.

    One that is started while others are looked for is found the next time: this goes on until
    none is left, or none ends.
    """
    count = 0
    while True:
        below = set(psutil.Process().children(recursive=True)) - kept
        running = [each for each in below if not _is_zombie(each)]
        if not running:
            return count
        for process in running:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        ended, _ = psutil.wait_procs(running, timeout=ENDING_SECONDS)
        count += len(running)
        if not ended:
            return count


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
