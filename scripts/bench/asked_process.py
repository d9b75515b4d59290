"""A rival in a process of its own, asked and answering in lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

WAITING = "OMP_WAIT_POLICY"
"""How threads of OpenMP wait: rivals have it as their own users do."""
SERVER = Path(__file__).with_name("llama_cpp_server.py")


class Asked:
    """Answers one question after the other. It ends with the stack that it is given."""

    def __init__(self, words: Sequence[str], stack: ExitStack) -> None:
        """Waits until it is ready. Raises `ChildProcessError` when it ends before."""
        self._words = words
        process = stack.enter_context(
            subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: told for name, told in os.environ.items() if name != WAITING},
                text=True,
            )
        )
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout
        # Left first: it ends with its standard input.
        stack.callback(self._input.close)
        self._heard()

    def __call__(self, question: Mapping[str, object]) -> dict[str, Any]:
        """What it says. Raises `ChildProcessError` when it ends instead."""
        print(json.dumps(question), file=self._input, flush=True)
        return self._heard()

    def _heard(self) -> dict[str, Any]:
        for line in self._output:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise ChildProcessError(f"ended: {' '.join(self._words)}")


def llama_cpp(
    python: Path,
    file: Path,
    threads: int,
    stack: ExitStack,
    *,
    draft: Path | None = None,
    drafted: int = 0,
) -> Asked:
    """llama.cpp's server on a GGUF file, by a Python that has xllamacpp.

    The model of the file `draft` drafts for it, `drafted` tokens at most.
    """
    words = [str(python), "-P", str(SERVER), str(file), str(threads)]
    return Asked([*words, *([] if draft is None else [str(draft), str(drafted)])], stack)
