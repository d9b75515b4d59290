"""What a person waits for at the dashboard.

    make dashboard && python -m scripts.bench.dashboard --out benchmarks/dashboard.json

Measured in real Chromium, headless and drawn by the processor, by
`dashboard/bench/measure.mjs`: seconds from the start of `fleet dashboard` to the
first node's name on the screen; milliseconds from an event on a node to the frame
that shows it; frames a second while many synthetic nodes stream, of the page and
of an empty page in turn; bytes of the page's JavaScript. The nodes are synthetic:
they speak the contract, compute nothing, and share this machine with the browser.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts.bench.machine import command, machine, write_report

ROOT = Path(__file__).parents[2]
MEASURE = ROOT / "dashboard" / "bench" / "measure.mjs"
PATIENCE_SECONDS = 600.0
GOALS = {
    "first_page_seconds": 2.0,
    "update_milliseconds": 500.0,
    "frames_per_second": 60.0,
    "gzip_bytes": 100_000,
}


def main() -> int:
    """Measures, prints the figures, writes the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--rounds", type=int, default=5, help="starts of `fleet dashboard`")
    parser.add_argument("--events", type=int, default=40, help="events that are timed")
    parser.add_argument("--nodes", type=int, default=50, help="synthetic nodes that stream")
    parser.add_argument("--seconds", type=int, default=10, help="seconds of counting frames")
    parser.add_argument("--chromium", default=shutil.which("chromium") or "/usr/bin/chromium")
    options = parser.parse_args()
    measured = _measure(options)
    first, updates = measured["first_page_seconds"], measured["update_milliseconds"]
    report = {
        "command": command(__file__),
        "machine": machine(),
        "method": (__doc__ or "").split("\n\n")[2].replace("\n", " "),
        "goals": GOALS,
        "browser": measured["browser"],
        "first_page_seconds": {"median": statistics.median(first), "all": first},
        "update_milliseconds": {
            "median": statistics.median(updates),
            "largest": max(updates),
            "all": updates,
        },
        "streaming": measured["streaming"],
        "javascript": measured["javascript"],
    }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    if options.out is not None:
        write_report(options.out, report)
    return 0


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    program = Path(sys.executable).parent / "fleet"
    words = [
        *("--fleet", str(program)),
        *("--rounds", str(options.rounds)),
        *("--events", str(options.events)),
        *("--nodes", str(options.nodes)),
        *("--seconds", str(options.seconds)),
        *("--chromium", options.chromium),
    ]
    done = subprocess.run(
        ["node", str(MEASURE), *words],
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    measured = json.loads(done.stdout)
    assert isinstance(measured, dict)
    return measured


if __name__ == "__main__":
    sys.exit(main())
