"""How fast the terminal answers: `fleet --help`, completion and `fleet status`, median of 20 runs.

And how long `fleet join` takes until it is ready, and to leave, by what it serves, median of 5.

    python -m scripts.bench.cli --out benchmarks/cli.json

The node that is asked is started here: one with an n-gram proposer. Each command is a process of
its own, as people start it; what Python itself takes to start is measured beside.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.bench.machine import command, machine
from scripts.support.agent_process import LocalFleet

ROUNDS = 20
JOINS = 5
SERVED = ("proposer=ngram", "archive=64MiB", "proposer=tiny-dflash", "verifier=tiny")
IMPORTS_SHOWN = 12
FLEET = [sys.executable, "-m", "kakeya_fleet.node.cli"]
# What a command may take at most, in seconds.
LIMITS = {"fleet --help": 0.3, "fleet status": 0.6}


def measure(words: Sequence[str], environment: Mapping[str, str]) -> dict[str, float]:
    """Seconds of one command over the rounds, after one that is not counted."""
    seconds, busy = [], []
    for _ in range(ROUNDS + 1):
        started, worked = time.perf_counter(), processor_seconds()
        subprocess.run(words, check=True, capture_output=True, env=environment, timeout=60)
        seconds.append(time.perf_counter() - started)
        busy.append(processor_seconds() - worked)
    kept = sorted(seconds[1:])
    return {
        "median_processor_seconds": round(statistics.median(busy[1:]), 4),
        "median_seconds": round(statistics.median(kept), 4),
        "smallest_seconds": round(kept[0], 4),
        "largest_seconds": round(kept[-1], 4),
    }


def processor_seconds() -> float:
    """What the processes that ended have taken of the processor."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def imports(words: Sequence[str], environment: Mapping[str, str]) -> dict[str, object]:
    """What importing takes: in all, and of the packages that take most, in milliseconds."""
    traced = [words[0], "-X", "importtime", *words[1:]]
    done = subprocess.run(
        traced, check=True, capture_output=True, text=True, env=environment, timeout=60
    )
    own: dict[str, float] = {}
    for line in done.stderr.splitlines():
        found = re.match(r"import time: +(\d+) \| +\d+ \| +(\S+)", line)
        if found:
            package = found.group(2).partition(".")[0]
            own[package] = own.get(package, 0.0) + int(found.group(1)) / 1000
    most = sorted(own.items(), key=lambda pair: -pair[1])[:IMPORTS_SHOWN]
    return {
        "all_milliseconds": round(sum(own.values()), 1),
        "own_milliseconds_by_package": {name: round(value, 1) for name, value in most},
    }


def measured(address: str) -> dict[str, dict[str, object]]:
    """Every command's seconds and imports."""
    plain = {**os.environ, "KAKEYA_NODE": address, "TERM": "dumb"}
    completing = plain | {"_FLEET_COMPLETE": "bash"}
    commands: dict[str, tuple[list[str], dict[str, str]]] = {
        "python -c pass": ([sys.executable, "-c", "pass"], plain),
        "fleet --help": ([*FLEET, "--help"], plain),
        "fleet <tab>": ([*FLEET, "fleet "], completing),
        "fleet plan --verifier <tab>": ([*FLEET, "fleet plan --verifier "], completing),
        "fleet status": ([*FLEET, "status"], plain),
        "fleet top --once": ([*FLEET, "top", "--once"], plain),
    }
    found: dict[str, dict[str, object]] = {}
    for name, (words, environment) in commands.items():
        facts: dict[str, object] = dict(measure(words, environment))
        if words[: len(FLEET)] == FLEET:
            facts["imports"] = imports(words, environment)
        if name in LIMITS:
            facts["limit_seconds"] = LIMITS[name]
        found[name] = facts
        print(f"{name:<30} {facts['median_seconds']:>7} s", flush=True)
    return found


def joined(local: LocalFleet) -> dict[str, dict[str, float]]:
    """Seconds of a node's start until it is ready, and until its process has ended again."""
    found: dict[str, dict[str, float]] = {}
    for role in SERVED:
        ready, left = [], []
        for round_number in range(JOINS):
            started = time.perf_counter()
            agent = local.start(f"join-{len(found)}-{round_number}", serve=[role])
            assert agent.ready
            ready.append(time.perf_counter() - started)
            started = time.perf_counter()
            agent.stop()
            left.append(time.perf_counter() - started)
        found[role] = {
            "median_ready_seconds": round(statistics.median(ready), 3),
            "median_leave_seconds": round(statistics.median(left), 3),
        }
        print(f"fleet join --serve {role:<20} {found[role]}", flush=True)
    return found


def main() -> int:
    """Measures, writes the file, and fails where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kakeya-") as folder:
        local = LocalFleet("bench-cli", directory=Path(folder))
        with local:
            agent = local.start("mini-1", serve=["proposer=ngram"])
            commands = measured(agent.address)
            agent.stop()
            joins = joined(local)
    result = {
        "command": command(__file__),
        "machine": machine(),
        "method": "Each command is a process of its own, one after the other, with nothing else "
        "running; the node that is asked runs beside and does nothing else.",
        "rounds": ROUNDS,
        "commands": commands,
        "join_rounds": JOINS,
        "joins": joins,
    }
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    slow = [
        name
        for name, limit in LIMITS.items()
        if float(str(commands[name]["median_seconds"])) > limit
    ]
    if slow:
        print(f"slower than its limit: {', '.join(slow)}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
