"""Rows of a report that takes hours, kept as they are found, so that a run can be interrupted."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

from scripts.bench.machine import ROOT
from scripts.simulator.plan import Job, Row

SOURCES = ("fleet/cards", "fleet/membership", "scripts/simulator")


class KeptRows:
    """JSON lines of {"code": digest, "asked": kind and arguments, "row": row}.

    A row of other code is not one of these.
    The file's last line may be cut short; its row is found again then.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: list[tuple[Row, Row]] = []
        text = path.read_text() if path.exists() else ""
        whole, newline, rest = text.rpartition("\n")
        if rest:
            path.write_text(whole + newline)
        for line in filter(None, whole.splitlines()):
            entry = json.loads(line)
            if entry["code"] == code_digest():
                self._rows.append((entry["asked"], entry["row"]))

    def of(self, job: Job) -> Row | None:
        """The row of the job, if it was found before."""
        asked = _asked(job)
        return next((row for kept, row in self._rows if kept == asked), None)

    def keep(self, job: Job, row: Row) -> None:
        """Writes one."""
        entry = {"code": code_digest(), "asked": _asked(job), "row": row}
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def _asked(job: Job) -> Row:
    """By what it was asked for: what is found may be called as an argument is."""
    return {"kind": job.kind, **job.arguments}


@cache
def code_digest() -> str:
    """SHA-256 over the sources that a row follows from."""
    digest = hashlib.sha256()
    for room in SOURCES:
        for path in sorted((ROOT / room).glob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
