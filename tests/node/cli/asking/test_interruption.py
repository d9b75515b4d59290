"""Ctrl-C ends what a command waits for, whichever thread takes the signal."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_SECONDS

SILENT = """
import asyncio, os, signal, sys, threading
from pathlib import Path

from kakeya_fleet.node.cli.asking.interruption import run_interruptible

def interrupt():
    stat = Path(f"/proc/self/task/{os.getpid()}/stat")
    # Behind the name, which may have spaces: S sleeps.
    while not (begun.is_set() and stat.read_text().rpartition(") ")[2].startswith("S")):
        pass
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

async def silence():
    begun.set()
    await asyncio.Event().wait()

begun = threading.Event()
threading.Thread(target=interrupt, daemon=True).start()
try:
    run_interruptible(silence())
except KeyboardInterrupt:
    os._exit(130)
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="no threads are told of here")
def test_a_signal_that_another_thread_takes_wakes_a_loop_that_sleeps() -> None:
    """As one that comes just before the loop goes to sleep does not wake it either."""
    words = [sys.executable, "-c", SILENT]
    assert subprocess.run(words, timeout=PATIENCE_SECONDS, check=False).returncode == 130
