"""pytest's workers as copies of one process that has read all tests.

`python -m tests.warm.worker PATHS` is what xdist is to start in place of an interpreter: `--tx
'3*popen//python=python -m tests.warm.worker tests'`. Reading the tests takes most of what it is to
start a worker: each read them for itself. The process that reads them once is itself a copy of the
one that agents are copies of, in TESTS_WARM_FOLDER, whose libraries are most of what tests import.
It ends with the last worker.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

import pytest

from tests.warm.starting import WarmStarts
from tests.warm.template import LOCK, TESTS_READER, Connections, end

FLAGS = "-u"
"""The first word of an interpreter's that xdist's transport puts behind the command's own."""


class WorkerStarts(WarmStarts):
    """Starts copies of a process that has read tests."""

    def __init__(self, folder: Path, paths: Sequence[str]) -> None:
        """`folder`: of the process that agents are copies of. `paths`: as pytest's arguments."""
        own = folder / "tests"
        own.mkdir(exist_ok=True)
        super().__init__(own)
        self._agents = WarmStarts(folder)
        self._paths = paths

    def _start(self, listening: socket.socket, environment: Mapping[str, str]) -> None:
        with open(os.devnull, "wb") as nothing:
            descriptors = (listening.fileno(), nothing.fileno(), 2)
            words = [str(self._folder), *self._paths]
            self._agents.copy(words, environment, descriptors, module=TESTS_READER)

    def close(self) -> None:
        """As `WarmStarts.close`, of both processes."""
        super().close()
        self._agents.close()


def read_tests(folder: Path, paths: Sequence[str]) -> None:
    """Reads the tests, and is copied until all have gone who came to standard input's socket.

    A module that cannot be read is each worker's to fail at, and to tell of.
    """
    listening = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    pytest.main(["--collect-only", "-qq", *paths])
    gc.freeze()
    copy = Connections(listening, folder / LOCK).serve()
    if copy is None:
        end(0)
    copy.become()
    # Else all draw the same numbers.
    random.seed()
    # As `python -c` runs it: a line that reads a program from standard input.
    exec(copy.request.arguments[-1], {"__name__": "__main__"})
    end(0)


def run(folder: Path, arguments: Sequence[str]) -> int:
    """The exit status of a copy that is the interpreter which was asked for."""
    flags = arguments.index(FLAGS)
    starts = WorkerStarts(folder, arguments[:flags])
    copy = starts.copy(arguments[flags:], os.environ, (0, 1, 2))

    def pass_on(number: int, _frame: FrameType | None) -> None:
        copy.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    # Ctrl-C is the run's to hear, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = copy.wait() or 0
    starts.close()
    return status


if __name__ == "__main__":
    if FLAGS in sys.argv:
        os._exit(abs(run(Path(os.environ["TESTS_WARM_FOLDER"]), sys.argv[1:])))
    read_tests(Path(sys.argv[1]), sys.argv[2:])
