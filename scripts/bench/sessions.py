"""Sessions that last: latency, K/V bytes and resident memory over thousands of turns.

    python -m scripts.bench.sessions --out benchmarks/sessions.json
    python -m scripts.bench.sessions --turns 300 --sessions 1 --kinds sink_window

A turn appends 15 random tokens and generates 15, greedily, through the engine's
sessions, store, and turns of several sessions in one forward. Turns are counted
over all sessions together. With `sink_window` one session takes all turns, which no
shipped model can: positions are absolute, and a copy of the shipped checkpoint says
that it has enough of them. That changes no times, and its words mean nothing beyond
those it was trained on. With `full` the checkpoint is the shipped one: a session
lasts as long as its positions, then another takes its place. At the end, the tokens
a second of 1, 4, 16 and 32 sessions together.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import psutil
import torch

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder, resolve
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from kakeya_fleet.engine.verifiers.exactness import settle
from kakeya_fleet.node.roles.worker import ModelWorker
from scripts.bench.machine import command, decile_ratio, machine, percentile, write_report
from scripts.bench.session_load import Endurance, Reading, TurnLoad, TurnShape

SINK, WINDOW = 4, 64
SHAPE = TurnShape(appended=15, generated=15)
CROWDS = (1, 4, 16, 32)
FLAT = 0.05
"""Latency and memory at the end may exceed those at the start by this share."""
BUDGET_BYTES = 4 << 30
READINGS = 100
"""A run."""


def continued_model(folder: ModelFolder, positions: int, parent: Path) -> ModelFolder:
    """A copy of the checkpoint that says it has `positions` positions."""
    target = parent / f"{folder.model_id}-{positions}"
    shutil.copytree(folder.path, target)
    config = json.loads((target / "config.json").read_bytes())
    (target / "config.json").write_text(json.dumps(config | {"max_position_embeddings": positions}))
    return ModelFolder(target, target.name)


def summary(endurance: Endurance, kind: str, sessions: int) -> dict[str, object]:
    """For JSON."""
    latencies = endurance.latencies
    tenth = max(1, len(latencies) // 10)
    kv = [reading.kv_bytes for reading in endurance.readings]
    resident = [reading.resident_bytes for reading in endurance.readings]
    ratio = decile_ratio(latencies)
    tokens = len(latencies) * SHAPE.tokens
    return {
        "kind": kind,
        "sessions": sessions,
        "sessions_opened": endurance.sessions_opened,
        "turns": len(latencies),
        "tokens": tokens,
        "tokens_per_second": tokens / endurance.seconds,
        "latency_seconds_p50": statistics.median(latencies),
        "latency_seconds_p99": percentile(latencies, 0.99),
        "first_tenth_p50": statistics.median(latencies[:tenth]),
        "last_tenth_p50": statistics.median(latencies[-tenth:]),
        "last_tenth_over_first": ratio,
        "latency_is_flat": abs(ratio - 1.0) <= FLAT,
        "kv_bytes_first": kv[0],
        "kv_bytes_last": kv[-1],
        "kv_bytes_most": max(kv),
        "resident_bytes_first": resident[0],
        "resident_bytes_last": resident[-1],
        "resident_last_tenth_over_first": decile_ratio(resident),
        "resident_is_flat": decile_ratio(resident) <= 1.0 + FLAT,
        "latency_tenths_p50": [statistics.median(part) for part in tenths(latencies)],
        "readings": [
            [reading.turn, reading.kv_bytes, reading.resident_bytes]
            for reading in endurance.readings
        ],
    }


def tenths(series: Sequence[float]) -> list[Sequence[float]]:
    """`series` in ten parts, as equal as can be; fewer when it is shorter."""
    count = min(10, len(series))
    borders = [index * len(series) // count for index in range(count + 1)]
    return [series[first:last] for first, last in pairwise(borders)]


class Bench:
    """The two models' verifiers, each with a worker thread of its own."""

    def __init__(self, verifiers: dict[str, Verifier]) -> None:
        """`verifiers` by kind of cache."""
        self._verifiers = verifiers
        self._process = psutil.Process()

    def spec(self, kind: str) -> CacheSpec:
        """The cache of a session of `kind`."""
        if kind == "sink_window":
            return CacheSpec(CacheKind.SINK_WINDOW, sink=SINK, window=WINDOW)
        context = self._verifiers[kind].info.context_length
        return CacheSpec(CacheKind.CONTIGUOUS, capacity=context)

    async def endure(self, kind: str, sessions: int, turns: int, seed: int) -> Endurance:
        """One run over a new registry."""
        verifier = self._verifiers[kind]
        ids = random.Random(seed)
        registry: SessionRegistry[None] = SessionRegistry(
            clock=time.monotonic,
            ids=lambda: str(uuid.UUID(int=ids.getrandbits(128))),
        )
        budget = registry.add_verifier(verifier, BUDGET_BYTES)
        worker = ModelWorker(f"bench-{kind}")

        def read(turn: int) -> Reading:
            return Reading(turn, verifier.pool.held_bytes, self._process.memory_info().rss)

        try:
            load = TurnLoad(registry, budget, self.spec(kind), SHAPE, worker.run_turn, worker.run)
            # Warms kernels, slabs and thread up; its latencies do not count.
            await load.endure(sessions=sessions, turns=4 * sessions, read=read, read_every=turns)
            return await load.endure(
                sessions=sessions,
                turns=turns,
                read=read,
                read_every=max(1, turns // READINGS),
                seed=seed,
            )
        finally:
            registry.close_all()
            await worker.close()

    def crowds(self, kind: str, turns: int, rounds: int, seed: int) -> list[dict[str, object]]:
        """Tokens a second of each number of sessions, in turn."""
        rng = random.Random(seed)
        speeds: dict[int, list[float]] = {count: [] for count in CROWDS}
        for round_index in range(rounds):
            for count in rng.sample(CROWDS, len(CROWDS)):
                endurance = asyncio.run(self.endure(kind, count, turns, seed + round_index))
                speeds[count].append(len(endurance.latencies) / endurance.seconds)
        alone = statistics.median(speeds[CROWDS[0]])
        return [
            {
                "sessions": count,
                "tokens_per_second": statistics.median(found) * SHAPE.tokens,
                "generated_per_second": statistics.median(found) * SHAPE.generated,
                "over_one_session": statistics.median(found) / alone,
            }
            for count, found in speeds.items()
        ]


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=10_000, help="of all sessions together")
    parser.add_argument("--sessions", nargs="+", type=int, default=[1, 32])
    parser.add_argument(
        "--kinds", nargs="+", choices=("sink_window", "full"), default=["sink_window", "full"]
    )
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--crowd-turns", type=int, default=640, help="0 leaves this part out")
    parser.add_argument("--crowd-rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/sessions.json"))
    return parser.parse_args()


def run(arguments: argparse.Namespace, parent: Path) -> None:
    """Measures run by run; the report is written after each."""
    folder = resolve(arguments.model)
    positions = (arguments.turns + 1) * SHAPE.tokens
    continued = continued_model(folder, positions, parent)
    shipped = json.loads((folder.path / "config.json").read_bytes())["max_position_embeddings"]
    models = {"sink_window": continued, "full": folder}
    verifiers = {
        kind: load_verifier(models[kind], dtype=arguments.dtype) for kind in arguments.kinds
    }
    exact = {kind: settle(verifier).exact for kind, verifier in verifiers.items()}
    bench = Bench(verifiers)
    report: dict[str, object] = {
        "command": command(__file__),
        "machine": machine(),
        "model": arguments.model,
        "dtype": arguments.dtype,
        "exact": exact,
        "positions": {"shipped": shipped, "edited_for_sink_window": positions},
        "turn": {"appended": SHAPE.appended, "generated": SHAPE.generated},
        "sink": SINK,
        "window": WINDOW,
        "method": __doc__.split("\n\n")[2].replace("\n", " ") if __doc__ else "",
        "runs": (runs := []),
        "crowds": (crowds := {}),
    }
    for kind in arguments.kinds:
        for sessions in arguments.sessions:
            endurance = asyncio.run(bench.endure(kind, sessions, arguments.turns, arguments.seed))
            runs.append(summary(endurance, kind, sessions))
            shown = {key: value for key, value in runs[-1].items() if not isinstance(value, list)}
            print(json.dumps(shown, indent=2), file=sys.stderr)
            write_report(arguments.out, report)
        if arguments.crowd_turns:
            crowds[kind] = bench.crowds(
                kind, arguments.crowd_turns, arguments.crowd_rounds, arguments.seed
            )
            print(json.dumps(crowds[kind], indent=2), file=sys.stderr)
            write_report(arguments.out, report)


def main() -> None:
    """Measures and writes JSON."""
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory(prefix="kakeya-sessions-") as folder:
        run(arguments, Path(folder))


if __name__ == "__main__":
    main()
