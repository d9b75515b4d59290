"""Commands in the tests' own process: what they load is loaded once, not once a command."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from typing import Any
from unittest.mock import patch

import pytest

from kakeya_fleet.node.cli.main import run


@dataclass(frozen=True)
class Finished:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def run_here(
    words: Sequence[str], environment: Mapping[str, str], stdin: str | bytes = ""
) -> Finished:
    """Runs `fleet` with nothing but this environment, its streams no terminals."""
    out, err = (TextIOWrapper(BytesIO(), "utf-8", write_through=True) for _ in range(2))
    given = stdin.encode() if isinstance(stdin, str) else stdin
    with patch.dict(os.environ, environment, clear=True), pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "stdin", TextIOWrapper(BytesIO(given), "utf-8"))
        patched.setattr(sys, "stdout", out)
        patched.setattr(sys, "stderr", err)
        try:
            code: str | int | None = run(words)
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int)
    return Finished(code, _written(out), _written(err))


def _written(stream: TextIOWrapper[BytesIO]) -> str:
    return stream.buffer.getvalue().decode()
