"""Runs whole fleets in virtual time, measures membership, and writes JSON and a table.

    python -m scripts.simulate --out benchmarks/membership.json     # some hours of two cores
    python -m scripts.simulate --short --out /tmp/membership.json   # half a minute

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
from collections.abc import Sequence
from pathlib import Path

from scripts.bench.machine import command, machine, write_report
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
    asked = parser.parse_args(arguments)
    began = time.monotonic()
    rows = run_all(jobs(SHORT if asked.short else FULL), asked.processes)
    figures = summary(rows)
    write_report(
        asked.out,
        {
            "command": command(__file__),
            "machine": machine(),
            "seconds": round(time.monotonic() - began, 1),
            "peak_bytes_a_process": peak_bytes(),
            **figures,
            "rows": rows,
        },
    )
    print(json.dumps(figures, indent=2) if asked.json else table(figures))
    kept = [row["kept"] for row in (*figures["news"], *figures["hours_of_loss"])]
    stood = [not row["missed_seeds"] for row in figures["storms"]]
    return 0 if all(kept) and all(stood) else 1


def run_all(todo: Sequence[Job], processes: int) -> list[Row]:
    """The jobs' rows, in their order; progress on stderr."""
    began, rows = time.monotonic(), []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for row in pool.imap(_run, todo):
            rows.append(row)
            seconds = time.monotonic() - began
            print(f"{len(rows)} of {len(todo)}, {seconds:.0f} s: {_title(row)}", file=sys.stderr)
        pool.close()
        pool.join()
    return rows


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
