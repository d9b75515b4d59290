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
import socket
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.warm.starting import WarmStarts
from tests.warm.template import LOCK, TESTS_READER, Connections, end

FLAGS = "-u"
"""The first word of an interpreter's that xdist's transport puts behind the command's own."""


class WorkerStarts(WarmStarts):
    """Starts copies of a process that has read tests."""

    def __init__(self, folder: Path, paths: Sequence[str]) -> None:
        """`folder`: of the process that agents are copies of. `paths`: as pytest's arguments."""
        own = folder / f"{zlib.crc32(repr(paths).encode()):08x}"
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

    Where any module cannot be read the workers read all, and tell of it.
    """
    listening = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    if pytest.main(["--collect-only", "-qq", *paths]) not in (
        0,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):
        forget_tests()
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


def forget_tests() -> None:
    """pytest takes a module for read that failed in the midst of it, and knows it by its name."""
    for name, module in list(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or name).name
        if file == "conftest.py" or file.startswith("test_"):
            del sys.modules[name]


def run(folder: Path, arguments: Sequence[str]) -> int:
    """The exit status of a copy that is the interpreter which was asked for."""
    flags = arguments.index(FLAGS)
    starts = WorkerStarts(folder, arguments[:flags])
    copy = starts.copy(arguments[flags:], os.environ, (0, 1, 2))
    # Ctrl-C reaches only this process's group.
    copy.pass_on_signals()
    status = copy.wait() or 0
    starts.close()
    return status


if __name__ == "__main__":
    if FLAGS in sys.argv:
        os._exit(abs(run(Path(os.environ["TESTS_WARM_FOLDER"]), sys.argv[1:])))
    read_tests(Path(sys.argv[1]), sys.argv[2:])
