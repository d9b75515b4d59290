"""From `fleet run smollm2` to its first token, on a machine where no node runs and none did.

    python -m scripts.bench.first_token --out benchmarks/first_token.json

Two figures, each the median of several runs, every run with a state and a configuration of its
own: `first`, with an empty cache too, so that the file is converted, the forward compiled and
checked, and `again`, with what a first run kept of that. What the model is made of is here already:
the package of PyPI, or the GGUF file of --model. The command is started as people start it, and
starts a node itself; what is timed ends when it has printed the first token, as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from scripts.bench.machine import command, machine, write_report

FLEET = [sys.executable, "-m", "kakeya_fleet.node.cli"]
PROMPT = "Why is the sky blue?"
GOAL_SECONDS = 15.0
LIMIT_SECONDS = 600.0
ROUNDS = 3
# The first event of each kind ends a phase.
PHASES = {"chosen": "node_ready_seconds", "loaded": "model_loaded_seconds", "tokens": "seconds"}


def measure(model: str, environment: Mapping[str, str]) -> dict[str, float]:
    """Seconds from the start of the command to the end of each phase."""
    began, worked = time.perf_counter(), processor_seconds()
    found: dict[str, float] = {}
    words = [*FLEET, "run", model, PROMPT, "--start", "--json", "--max-tokens", "16"]
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told = json.loads(line)
            if "error" in told:
                raise SystemExit(f"fleet run failed: {told['error']['message']}")
            phase = PHASES.get(told["event"])
            if phase is not None:
                found.setdefault(phase, round(time.perf_counter() - began, 3))
        process.wait(LIMIT_SECONDS)
    # Its node's too, which it waited for; all of both, up to their ends.
    found["processor_seconds"] = round(processor_seconds() - worked, 3)
    return found


def processor_seconds() -> float:
    """What the processes that ended have taken of the processor."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def environment_of(folder: Path, cache: Path) -> dict[str, str]:
    """One in which no node ever was, with that cache."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("KAKEYA_")}
    return kept | {
        "XDG_STATE_HOME": str(folder / "state"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_CACHE_HOME": str(cache),
        "HF_HUB_OFFLINE": "1",
        "KAKEYA_MDNS": "false",
    }


def measured(model: str, rounds: int, folder: Path) -> dict[str, list[dict[str, float]]]:
    """Each round first with an empty cache, then with what that has kept."""
    found: dict[str, list[dict[str, float]]] = {"first": [], "again": []}
    for number in range(rounds):
        cache = folder / f"cache-{number}"
        for name, runs in found.items():
            runs.append(measure(model, environment_of(folder / f"{name}-{number}", cache)))
            print(f"{name:<6} {runs[-1]}", flush=True)
    return found


def summary(runs: list[dict[str, float]]) -> dict[str, object]:
    """Medians of the phases, and the seconds of each run."""
    return {
        f"median_{phase}": round(statistics.median(run[phase] for run in runs), 2)
        for phase in (*PHASES.values(), "processor_seconds")
    } | {"runs": runs}


def main() -> int:
    """Measures, writes the file, and fails where the goal is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2", help="what `fleet run` is given")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    busy = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="kakeya-") as folder:
        found = measured(options.model, options.rounds, Path(folder))
    sides = {name: summary(runs) for name, runs in found.items()}
    missed = [
        name for name, side in sides.items() if float(str(side["median_seconds"])) > GOAL_SECONDS
    ]
    result = {
        "command": command(__file__),
        "machine": machine(),
        "load_average_before": round(busy, 2),
        "model": options.model,
        "rounds": options.rounds,
        "goal_seconds": GOAL_SECONDS,
        "goal_missed": missed,
        **sides,
    }
    if options.out is not None:
        write_report(options.out, result)
    if missed:
        print(f"slower than {GOAL_SECONDS:g} s: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
