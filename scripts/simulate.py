"""Runs whole fleets in virtual time, measures membership, and writes JSON and a table.

    python -m scripts.simulate --out benchmarks/membership.json     # an hour of two cores
    python -m scripts.simulate --short --out /tmp/membership.json   # half a minute

With `--rows FILE` a run that was interrupted goes on where it was, as long as its code is the same;
with `--found` too the report is of the rows that it had found, and says how many runs are missing.
Every row follows from its arguments alone: the same seeds give the same figures, on any machine
and in any number of processes. The exit status is 1 when a criterion was missed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from scripts.bench.machine import command, machine, write_report
from scripts.simulator.kept_rows import KeptRows
from scripts.simulator.plan import FULL, SHORT, Job, Row, jobs, summary
from scripts.simulator.table import table


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what was asked for; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="the report, JSON")
    parser.add_argument("--short", action="store_true", help="small fleets, to see that it runs")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--processes", type=int, default=2, help="that run at once; 2 by default")
    parser.add_argument("--rows", type=Path, help="keeps each row as it is found, JSON lines")
    parser.add_argument("--found", action="store_true", help="run nothing more: what --rows has")
    asked = parser.parse_args(arguments)
    if asked.found and asked.rows is None:
        parser.error("--found is of the rows of --rows FILE")
    began = time.monotonic()
    todo = jobs(SHORT if asked.short else FULL)
    kept = KeptRows(asked.rows) if asked.rows else None
    if asked.found and kept is not None:
        found = [(job, kept.of(job)) for job in todo]
        rows = [row for _, row in found if row is not None]
        missing = Counter(job.kind for job, row in found if row is None)
    else:
        rows, missing = run_all(todo, asked.processes, kept), Counter()
    figures = summary(rows)
    write_report(
        asked.out,
        {
            "command": command(__file__),
            "machine": machine(),
            "seconds": round(time.monotonic() - began, 1),
            "processor_seconds": round(sum(row["processor_seconds"] for row in rows), 1),
            "peak_bytes_a_process": peak_bytes(),
            "runs_missing": dict(missing),
            **figures,
            "rows": rows,
        },
    )
    print(json.dumps(figures, indent=2) if asked.json else table(figures))
    good = [row["kept"] for row in (*figures["news"], *figures["hours_of_loss"])]
    stood = [not row["missed_seeds"] for row in figures["storms"]]
    return 0 if all(good) and all(stood) else 1


def run_all(todo: Sequence[Job], processes: int, kept: KeptRows | None = None) -> list[Row]:
    """The jobs' rows, in their order; progress on stderr. Those that are kept are not run."""
    found = {index: row for index, job in enumerate(todo) if kept and (row := kept.of(job))}
    missing = [index for index in range(len(todo)) if index not in found]
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for index, row in zip(missing, pool.imap(_run, [todo[i] for i in missing]), strict=True):
            found[index] = row
            if kept is not None:
                kept.keep(todo[index], row)
            seconds = time.monotonic() - began
            print(f"{len(found)} of {len(todo)}, {seconds:.0f} s: {_title(row)}", file=sys.stderr)
        pool.close()
        pool.join()
    return [found[index] for index in range(len(todo))]


def peak_bytes() -> int:
    """The most memory that one of the processes that ended had, in bytes."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def _run(job: Job) -> Row:
    began = time.process_time()
    row = job()
    return {**row, "processor_seconds": round(time.process_time() - began, 2)}


def _title(row: Row) -> str:
    told = ("kind", "name", "node_count", "loss", "seed", "processor_seconds")
    return ", ".join(f"{name} {row[name]}" for name in told if name in row)


if __name__ == "__main__":
    sys.exit(main())
