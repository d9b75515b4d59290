"""Fifty real agents on one machine, without models: a cold start, and what an idle one takes.

    python -m scripts.bench.many_agents --out benchmarks/many_agents.json

Each is a `fleet join` of its own; all but the first have it as their seed peer. All are started at
once, without anything to wait for: told are the moments at which the last one was ready, and at
which every one had met every other. Then they idle, and processor time and memory of each
are read: RSS counts pages that it shares with other processes, such as libraries' code; PSS gives
each its share of them, USS leaves them out. Nobody asks them anything: they print whom they meet.
How busy the machine was with other things is in the report: seconds of its cores that went to none
of these processes.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from scripts.bench.machine import command, machine, percentile, write_report
from scripts.faults.scene import NODE
from scripts.support.agent_process import AgentProcess, LocalFleet

AGENTS = 50
CONVERGED_SECONDS = 300.0
"""Beyond it the run has failed."""
LOOK_SECONDS = 0.1
CALM_SECONDS = 120.0
"""After convergence, so that nothing of the start is left in what is measured: 15 s are too few,
nodes that were suspected in the crowd refute it, and every card of theirs is verified by all."""
ADDRESS = "127.0.0.1"
GOALS = {"converged_seconds": 10.0, "core_share": 0.01, "resident_bytes": 80e6}


def converged(agents: Sequence[AgentProcess], began: float) -> dict[str, float]:
    """Seconds from the start until all were ready, and until each had met all others.

    By what they print themselves: whoever asked them would take of the same cores. Raises
    `TimeoutError`.
    """
    for agent in agents:
        agent.wait_for("ready", seconds=CONVERGED_SECONDS)
    ready = time.monotonic() - began
    left = list(agents)
    while left:
        if len(_met(left[-1])) == len(agents) - 1:
            left.pop()
        elif time.monotonic() - began > CONVERGED_SECONDS:
            raise TimeoutError(f"{len(left)} agents have not met all others")
        else:
            time.sleep(LOOK_SECONDS)
    suspected = sum(event["event"] == "peer_suspect" for each in agents for event in each.events)
    return {
        "all_ready_seconds": ready,
        "converged_seconds": time.monotonic() - began,
        "suspicions": suspected,
    }


def _met(agent: AgentProcess) -> set[object]:
    return {event["node_id"] for event in agent.events if event["event"] == "peer_joined"}


def idle(agents: Sequence[AgentProcess], seconds: float) -> dict[str, object]:
    """What each takes in that time, when nobody asks anything of it."""
    processes = [psutil.Process(agent.pid) for agent in agents]
    before = [_seconds(each) for each in processes]
    machine_before, began = psutil.cpu_times(), time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    shares = [(_seconds(each) - old) / took for each, old in zip(processes, before, strict=True)]
    busy = _busy(psutil.cpu_times()) - _busy(machine_before)
    memory = [each.memory_full_info() for each in processes]
    return {
        "seconds": took,
        "core_share": _spread(shares),
        "resident_bytes": _spread([each.rss for each in memory]),
        "proportional_bytes": _spread([each.pss for each in memory]),
        "unique_bytes": _spread([each.uss for each in memory]),
        "threads": _spread([float(each.num_threads()) for each in processes]),
        "children": sum(len(each.children(recursive=True)) for each in processes),
        "other_work_cores": busy / took - sum(shares),
    }


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _busy(times: psutil._pslinux.scputimes) -> float:
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": statistics.median(values),
        "p99": percentile(values, 0.99),
        "largest": max(values),
    }


def run(count: int, idle_seconds: float) -> dict[str, object]:
    """One cold start, and the idle fleet after it."""
    port = _free_port()
    load = psutil.getloadavg()
    with LocalFleet("many-agents") as fleet:
        machine_before, began = psutil.cpu_times(), time.monotonic()
        agents = [
            fleet.start(
                f"agent-{number}",
                # Before anybody can say where the first one is.
                bind=f"{ADDRESS}:{port if number == 0 else 0}",
                peers=() if number == 0 else (f"{ADDRESS}:{port}",),
                environment=NODE,
            )
            for number in range(count)
        ]
        times = converged(agents, began)
        own = sum(_seconds(psutil.Process(agent.pid)) for agent in agents)
        own += _seconds(psutil.Process())
        busy = _busy(psutil.cpu_times()) - _busy(machine_before)
        time.sleep(CALM_SECONDS)
        found = idle(agents, idle_seconds)
    return {
        **times,
        "load_average_before": [round(each, 1) for each in load],
        "start_core_seconds_an_agent": own / count,
        "other_work_cores_meanwhile": busy / times["converged_seconds"]
        - own / times["converged_seconds"],
        "idle": found,
    }


def _free_port() -> int:
    with socket.create_server((ADDRESS, 0)) as taken:
        return int(taken.getsockname()[1])


def main() -> None:
    """Writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=AGENTS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/many_agents.json"))
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Their modules are compiled once, as an installation has them.
    with LocalFleet("many-agents-before") as fleet:
        fleet.start("first", environment=NODE).wait_for("ready", seconds=120.0)
    runs = []
    for _ in range(asked.runs):
        runs.append(run(asked.agents, asked.idle_seconds))
        print(json.dumps(runs[-1]), flush=True)
        report = {
            "command": command(__file__),
            "machine": machine(),
            "agents": asked.agents,
            "goals": GOALS,
            "runs": runs,
        }
        write_report(asked.out, report)


if __name__ == "__main__":
    main()
