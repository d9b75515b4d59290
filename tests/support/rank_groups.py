"""Groups of processes on this host, and what is left of them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from tests.support.patience import PATIENCE_SECONDS

HASH_RANK = "tests.support.hash_rank"


def write_hostfile(folder: Path, count: int = 2, backend: str = "gloo") -> Path:
    """A hostfile of `count` ranks on this host."""
    path = folder / "hosts.json"
    hosts = [{"ssh": "localhost", "ips": ["127.0.0.1"]}] * count
    path.write_text(json.dumps({"backend": backend, "hosts": hosts}), "utf-8")
    return path


def hash_rank_command() -> list[str]:
    """What starts a rank without weights."""
    return [sys.executable, "-m", HASH_RANK]


def ranks_of(pid: int | None = None) -> list[psutil.Process]:
    """The living rank processes below `pid`, this process by default, rank 0 first."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            words = " ".join(child.cmdline())
            if "hash_rank" in words or "kakeya_fleet.node.roles.groups.rank_process" in words:
                found.append((int(child.environ()["KAKEYA_GROUP_RANK"]), child))
        except psutil.Error:
            continue
    return [child for _, child in sorted(found, key=lambda each: each[0])]


def wait_until(holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Returns when it holds; fails after `seconds`."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.01)


def gone(processes: Sequence[psutil.Process]) -> bool:
    """Whether none of them runs any more."""
    return not any(
        process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes
    )


def listening(pid: int | None = None) -> set[int]:
    """Ports at which the process listens."""
    return {
        each.laddr.port
        for each in psutil.Process(pid).net_connections("tcp")
        if each.status == psutil.CONN_LISTEN
    }
