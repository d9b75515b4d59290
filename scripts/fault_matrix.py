"""Every row of the fault matrix on real processes: measured beside its criterion.

    python -m scripts.fault_matrix                        # all of them, some 50 minutes
    python -m scripts.fault_matrix --rows 1,5,20          # these; others stay as they are
    python -m scripts.fault_matrix --watched-seconds 60   # looks less long for what must not be

Each row runs in a process of its own, for so long at most, and everything that it started is ended
with it; none stops the others. Writes the report; the exit status is 1 when a row missed its
criterion. Rows that this host cannot have say why. `python -m scripts.write.figures --write` puts
them into docs/faults.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.bench.machine import command, machine, write_report
from scripts.faults.isolation import in_a_process
from scripts.faults.matrix import ROWS
from scripts.faults.row import Verdict


def main(words: Sequence[str] | None = None) -> int:
    """Runs the rows that are asked for, and writes each into the report once it is over."""
    asked = parse(words)
    found: dict[int, dict[str, object]] = {}
    if asked.out.exists():
        found = {each["row"]: each for each in json.loads(asked.out.read_bytes())["rows"]}
    missed = False
    for row in ROWS:
        if asked.rows and row.number not in asked.rows:
            continue
        came = in_a_process(row, asked.seed, asked.watched_seconds)
        found[row.number] = came
        missed = missed or came["verdict"] == Verdict.MISSED.value
        print(f"{row.number:>2}  {came['verdict']:<12}  {came['measured']}", flush=True)
        rows = [found[number] for number in sorted(found)]
        write_report(asked.out, {"command": command(__file__), "machine": machine(), "rows": rows})
    return int(missed)


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=_numbers, default=(), help="such as 1,5,20; all by default")
    parser.add_argument("--watched-seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/fault_matrix.json"))
    return parser.parse_args(words)


def _numbers(text: str) -> tuple[int, ...]:
    known = {row.number for row in ROWS}
    numbers = tuple(int(word) for word in text.split(","))
    if not known.issuperset(numbers):
        raise argparse.ArgumentTypeError(f"rows are {min(known)} to {max(known)}")
    return numbers


if __name__ == "__main__":
    # Agents compute in as many threads as they are, which makes two cores slower.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
