"""Where a step attends to what an archive keeps: there, or at the verifier, which reads it back.

    python -m scripts.bench.attend --out benchmarks/attend.json

The evicted positions' part of a step, in all layers; the rest of a step is the same
either way. Keys and values are read back as favourably as can be: over plain TCP,
all layers asked for at once, without frames, checksums or copies beside the kernel's.
An archive in one process, sessions in processes of their own, each side with a core
and one thread; the archive's core whole, or shared with three processes that spin.
Over loopback, and over wires between two network namespaces (see
`scripts.bench.network_namespaces`; without root they are left out, by name). The ways
take turns in an order shuffled anew every round. Linux, two cores.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from scripts.bench.attend_session import Ports, Shape, Way
from scripts.bench.intervals import summary
from scripts.bench.machine import command, machine, write_report
from scripts.bench.network_namespaces import (
    FAR,
    NETWORKS,
    TwoNamespaces,
    device_bytes,
    what_is_missing,
)
from scripts.bench.slow_wire import DEVICE, Line
from scripts.support.child_process import Behind, ChildProcess

ARCHIVE_CORE, VERIFIER_CORE = 0, 1
SPINNING = f"import os; os.sched_setaffinity(0, {{{ARCHIVE_CORE}}})\nwhile True: pass"
COMPETITORS = 3
TOKEN, PROMPT = 1, 64
"""Queries of a step: of a token that is decoded, of a chunk of a prompt."""
LOOPBACK, HOST = "loopback", "127.0.0.1"
MODEL = Shape("archive", layers=28, kv_heads=8, groups=2, head_dim=128, context=0)
"""Qwen3-0.6B's."""
TINY = Shape("projection", layers=4, kv_heads=2, groups=2, head_dim=64, context=0)
"""That of the shipped `tiny`, which has a learned map."""
METHOD = (
    "Random keys and values, or context vectors, float32. One machine: the processes share its "
    "memory bus, and a network's wire is a process besides. Seconds of a step are those of the "
    "slowest of the sessions, which step at once."
)


@dataclass(frozen=True, slots=True)
class Place:
    """A network, whether the archive's core is busy, and how many sessions share the archive."""

    network: str = LOOPBACK
    busy: bool = False
    sessions: int = 1


@dataclass(frozen=True, slots=True)
class Cell:
    """What one round measures: blocks of queries of a shape behind a context, at a place."""

    shape: Shape
    place: Place
    rows: int = 1


def cells(networks: Sequence[str]) -> list[Cell]:
    """All of them; where a step takes longest, over loopback alone."""
    one = [Place(), Place(busy=True)]
    several = Place(sessions=3)
    wires = [Place(network, busy) for network in networks for busy in (False, True)]
    found = []
    for shape, context, rows, places in (
        (MODEL, 1024, TOKEN, [*one, several, *wires]),
        (MODEL, 1024, PROMPT, [*one, several, *wires]),
        (MODEL, 4096, TOKEN, one),
        (MODEL, 4096, PROMPT, one),
        (MODEL, 16_384, TOKEN, one),
        (TINY, 1024, TOKEN, one),
        (TINY, 1024, PROMPT, one),
    ):
        found += [Cell(replace(shape, context=context), place, rows) for place in places]
    return found


@contextmanager
def competitors(count: int) -> Iterator[None]:
    """Processes that spin on the archive's core."""
    spinning = [subprocess.Popen([sys.executable, "-c", SPINNING]) for _ in range(count)]
    try:
        yield
    finally:
        for one in spinning:
            one.kill()
            one.wait()


class Bench:
    """Archives on loopback and behind the wire, and sessions of them."""

    def __init__(self, namespaces: TwoNamespaces | None, rounds: int, seed: int) -> None:
        self._namespaces = namespaces
        self._rounds = rounds
        self._order = random.Random(seed)
        self._lines: dict[str, Line] = {}
        if namespaces is not None:
            self._lines = {
                network.name: namespaces.calibrated(network).line for network in NETWORKS
            }

    @property
    def networks(self) -> list[str]:
        """Those that can be had."""
        return list(self._lines)

    def measure(self, amount: str, measured: Sequence[Cell]) -> Iterator[dict[str, Any]]:
        """Cells that have shape, network and sessions in common: one set of processes."""
        shape, place = measured[0].shape, measured[0].place
        self._become(Line())
        with ExitStack() as stack:
            ports = Ports(**self._archive(stack, place, amount))
            sessions = [
                stack.enter_context(
                    ChildProcess("scripts.bench.attend_session", ["--core", str(VERIFIER_CORE)])
                )
                for _ in range(place.sessions)
            ]
            for session in sessions:
                session.tell(json.dumps({"shape": asdict(shape), "ports": asdict(ports)}))
            for session in sessions:
                session.hear()
            self._become(self._lines.get(place.network, Line()))
            for cell in measured:
                with competitors(COMPETITORS if cell.place.busy else 0):
                    yield self._measured(cell, sessions)

    def _measured(self, cell: Cell, sessions: Sequence[ChildProcess]) -> dict[str, Any]:
        seconds: dict[Way, list[float]] = {way: [] for way in Way}
        crossed: dict[Way, list[int]] = {way: [] for way in Way}
        for index in range(-1, self._rounds):
            for way in self._order.sample(list(Way), len(Way)):
                before = self._crossed(cell.place)
                for session in sessions:
                    session.tell(json.dumps({"way": way, "rows": cell.rows}))
                taken = max(float(session.hear()) for session in sessions)
                # Round -1 warms up.
                if index >= 0:
                    seconds[way].append(taken)
                    crossed[way].append(self._crossed(cell.place) - before)
        there = seconds[Way.ARCHIVE]
        return {
            "shape": asdict(cell.shape),
            **asdict(cell.place),
            "rows": cell.rows,
            "ways": {
                way: {
                    "step_seconds": summary(seconds[way]),
                    "wire_bytes_a_step": summary(crossed[way]) if self._namespaces else None,
                    "speed_over_archive": summary(
                        [one / two for one, two in zip(there, seconds[way], strict=True)]
                    ),
                }
                for way in Way
            },
        }

    def _archive(self, stack: ExitStack, place: Place, amount: str) -> dict[str, Any]:
        host: str = HOST
        behind: Behind = list
        if place.network != LOOPBACK and self._namespaces is not None:
            host, behind = FAR, self._namespaces.behind
        words = ["--core", str(ARCHIVE_CORE), amount, "--host", host]
        archive = stack.enter_context(ChildProcess("scripts.bench.attend_host", words, behind))
        return {"host": host, **json.loads(archive.hear())}

    def _become(self, line: Line) -> None:
        if self._namespaces is not None:
            self._namespaces.become(line)

    def _crossed(self, place: Place) -> int:
        if self._namespaces is None:
            return 0
        sent, received = device_bytes("lo" if place.network == LOOPBACK else DEVICE)
        return sent if place.network == LOOPBACK else sent + received


def together(found: Sequence[Cell]) -> list[list[Cell]]:
    """Cells that differ only in rows, and in whether the archive's core is busy."""
    groups: dict[tuple[Shape, Place], list[Cell]] = {}
    for cell in found:
        groups.setdefault((cell.shape, replace(cell.place, busy=False)), []).append(cell)
    return list(groups.values())


def verdict(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The verifier's speed over the archive's by queries a step, and the cells where it is above 1.

    Loopback apart: behind it an archive saves the verifier's host no memory.
    """
    told = {}
    for rows in sorted({cell["rows"] for cell in found}):
        for is_loopback in (True, False):
            own = [
                cell
                for cell in found
                if cell["rows"] == rows and (cell["network"] == LOOPBACK) is is_loopback
            ]
            ratios = [cell["ways"][Way.VERIFIER]["speed_over_archive"]["median"] for cell in own]
            if ratios:
                told[f"{rows} over {'loopback' if is_loopback else 'networks'}"] = {
                    "least": min(ratios),
                    "most": max(ratios),
                    "ahead": sum(ratio > 1 for ratio in ratios),
                    "cells": len(ratios),
                }
    return told


def show(cell: Mapping[str, Any]) -> None:
    """One cell's medians."""
    shape = cell["shape"]
    ways = "  ".join(
        f"{way} {found['step_seconds']['median'] * 1e3:.1f} ms"
        f" ({found['speed_over_archive']['median']:.2f})"
        for way, found in cell["ways"].items()
    )
    place = f"{cell['network']}{', busy' if cell['busy'] else ''}, {cell['sessions']} sessions"
    print(f"{shape['restorer']} {shape['context']} x{cell['rows']} {place}: {ways}", flush=True)


def run(arguments: argparse.Namespace, namespaces: TwoNamespaces | None, lacking: str) -> None:
    """Measures every cell; the report is written after each."""
    bench = Bench(namespaces, arguments.rounds, arguments.seed)
    found: list[dict[str, Any]] = []
    measured = cells(bench.networks)
    if arguments.quick:
        measured = [Cell(replace(TINY, context=256), Place(), rows) for rows in (TOKEN, PROMPT)]
    for group in together(measured):
        for cell in bench.measure(arguments.archive, group):
            found.append(cell)
            show(cell)
            write_report(
                arguments.out,
                {
                    "command": command(__file__),
                    "machine": machine(),
                    "method": METHOD,
                    "rounds": arguments.rounds,
                    "networks_left_out": lacking,
                    "cells": found,
                    "verdict": verdict(found),
                },
            )


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--archive", default="8GiB", help="bytes that the archive offers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--networks", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--quick", action="store_true", help="one short cell")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/attend.json"))
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Measures and writes JSON."""
    arguments = parse(words)
    lacking = what_is_missing() if arguments.networks else "not asked for"
    if lacking:
        run(arguments, None, lacking)
        return
    with TwoNamespaces() as namespaces:
        run(arguments, namespaces, "")


if __name__ == "__main__":
    main()
