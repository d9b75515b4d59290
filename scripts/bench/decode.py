"""Single-token decoding at the shapes of real models, against libraries and the memory's speed.

    python -m scripts.bench.decode --out benchmarks/decode.json
    python -m scripts.bench.decode --models Qwen3-0.6B --dtypes bfloat16 --contexts 256 --add

Random weights. The sides are this engine on torch and on MLX, transformers'
`generate` with its dynamic cache, which is its default, and with its static one,
and mlx-lm's `generate_step`; each decodes greedily behind the same context, in an
order shuffled anew every round, in one process. `over_fastest_rival` is what
counts: over whichever library was the fastest in that cell. The bound is the
bytes of the weights and of the K/V that a step reads, over the bandwidth
measured between the rounds. Threads wait as an agent has them (OMP_WAIT_POLICY, which is read
once): the libraries, whose threads are the same, are no slower so. `--add` replaces the same cells
of an existing report and keeps its others.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch

from scripts.bench.asked_process import WAITING
from scripts.bench.decode_bandwidth import Bandwidth, measure
from scripts.bench.decode_models import (
    DTYPES,
    SHAPES,
    checkpoint_folder,
    head_bytes,
    kv_geometry,
    weight_bytes,
)
from scripts.bench.decode_profile import time_split
from scripts.bench.decode_sides import (
    SIDES,
    Checkpoint,
    Side,
    free_memory,
    make_checkpoint,
    step_seconds,
)
from scripts.bench.machine import command, machine, step_summary, write_report

CONTEXTS = (256, 2048, 8192, 32_768)
NEW_TOKENS = {256: 48, 2048: 32, 8192: 16, 32_768: 8}
"""Counted steps a round; long contexts take long steps, whose times differ little."""
WORKING_BYTES = 2 << 30
"""What interpreters, libraries and temporary tensors take besides weights and K/V."""
METHOD = (
    "Random weights. The context's K/V are random numbers written into each side's cache, not "
    "prefilled: that changes no times. Then greedy single-token steps; the first ones are dropped."
)
RIVALS = ("transformers", "transformers_static", "mlx_lm")
COMPARISONS = (
    ("torch", "transformers"),
    ("torch", "transformers_static"),
    ("mlx", "mlx_lm"),
    ("torch", "mlx_lm"),
    ("mlx", "transformers"),
)


@dataclass(slots=True)
class Cell:
    """What was measured for one model, dtype and context."""

    model: str
    dtype: str
    context: int
    steps: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, dict[str, object]] = field(default_factory=dict)
    time_split: dict[str, float] = field(default_factory=dict)

    def summary(self, folder: Path, bandwidth: Bandwidth) -> dict[str, Any]:
        """For JSON. The bound counts the positions of the middle of the counted steps."""
        weights, head = weight_bytes(folder), head_bytes(folder)
        geometry = kv_geometry(folder, self.dtype)
        longest = max((len(steps) for steps in self.steps.values()), default=0)
        kv_bytes = geometry.bytes_per_token * (self.context + longest // 2)
        bound = bandwidth.bound / (weights + kv_bytes)
        sides = {side: step_summary(steps) for side, steps in self.steps.items()}
        for figures in sides.values():
            figures["share_of_bound"] = figures["tokens_per_second_median"] / bound
        return {
            "model": self.model,
            "dtype": self.dtype,
            "context": self.context,
            "weight_bytes": weights,
            "kv_bytes": kv_bytes,
            "bound_tokens_per_second": bound,
            "sides": sides,
            "notes": self.notes,
            "ratios": ratios(sides),
            "torch_step_seconds": self.time_split,
            "torch_read_bytes_per_second": read_rates(
                self.time_split, weights=weights, head=head, kv_bytes=kv_bytes
            ),
            "bandwidth": bandwidth.summary(),
        }


def ratios(sides: Mapping[str, Mapping[str, float | int]]) -> dict[str, float]:
    """Tokens a second of one side over another's, where both were measured.

    `torch_over_fastest_rival` is over the fastest library's fastest configuration.
    """
    speeds = {name: side["tokens_per_second_median"] for name, side in sides.items()}
    found = {
        f"{one}_over_{other}": speeds[one] / speeds[other]
        for one, other in COMPARISONS
        if one in speeds and other in speeds
    }
    rivals = [speeds[name] for name in RIVALS if name in speeds]
    if "torch" in speeds and rivals:
        found["torch_over_fastest_rival"] = speeds["torch"] / max(rivals)
    return found


def read_rates(
    split: Mapping[str, float], *, weights: int, head: int, kv_bytes: int
) -> dict[str, float]:
    """Bytes a second at which each part of a step reads what it must."""
    reads = {"linears": weights - head, "head": head, "attention": kv_bytes}
    return {part: count / split[part] for part, count in reads.items() if split.get(part)}


def schedule(
    sides: Sequence[str],
    contexts: Sequence[int],
    rounds: int,
    rng: random.Random,
    *,
    resident: bool,
) -> Iterator[tuple[int, str]]:
    """(context, side) in the order of measurement.

    With `resident` all sides stay loaded and alternate at each context; without,
    each side is loaded once a round and runs all contexts before the next.
    """
    for _ in range(rounds):
        if resident:
            for context in contexts:
                yield from ((context, side) for side in rng.sample(sides, len(sides)))
        else:
            for side in rng.sample(sides, len(sides)):
                yield from ((context, side) for context in contexts)


def merged(
    old: Sequence[Mapping[str, object]], new: Sequence[Mapping[str, object]]
) -> list[Mapping[str, object]]:
    """Cells of both, `new` ones in the place of those for the same model, dtype and context."""

    def key(cell: Mapping[str, object]) -> tuple[object, ...]:
        return cell["model"], cell["dtype"], cell["context"]

    fresh = {key(cell): cell for cell in new}
    kept = [fresh.pop(key(cell), cell) for cell in old]
    return [*kept, *fresh.values()]


class LoadedSides:
    """The sides in memory; one at a time unless `resident`."""

    def __init__(self, checkpoint: Checkpoint, dtype: str, *, resident: bool) -> None:
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._resident = resident
        self._loaded: dict[str, Side] = {}

    def get(self, name: str) -> Side:
        """The side `name`, loaded if it is not."""
        if name not in self._loaded:
            if not self._resident:
                self._loaded.clear()
                free_memory()
            print(f"    loading {name}", file=sys.stderr)
            self._loaded[name] = SIDES[name](self._checkpoint, self._dtype)
        return self._loaded[name]


def measure_group(
    arguments: argparse.Namespace, checkpoint: Checkpoint, model: str, dtype: str
) -> list[dict[str, object]]:
    """All contexts of one model in one dtype."""
    folder = checkpoint.folder
    weights, geometry = weight_bytes(folder), kv_geometry(folder, dtype)
    largest = geometry.bytes_per_token * max(arguments.contexts)
    needed = weights * len(arguments.sides) + largest + WORKING_BYTES
    resident = needed < psutil.virtual_memory().available
    print(f"  sides {'stay loaded' if resident else 'are loaded in turn'}", file=sys.stderr)
    cells = {context: Cell(model, dtype, context) for context in arguments.contexts}
    bandwidth = Bandwidth()
    loaded = LoadedSides(checkpoint, dtype, resident=resident)
    rng = random.Random(arguments.seed)
    last = ""
    for context, name in schedule(
        arguments.sides, arguments.contexts, arguments.rounds, rng, resident=resident
    ):
        if resident or name != last:
            measure(bandwidth, DTYPES[dtype])
        last = name
        side = loaded.get(name)
        cells[context].notes[name] = side.notes()
        count = arguments.new_tokens or NEW_TOKENS.get(context, min(NEW_TOKENS.values()))
        seconds = step_seconds(
            side, context, new_tokens=count, limit_seconds=arguments.limit_seconds
        )
        cells[context].steps.setdefault(name, []).extend(seconds)
        print(
            f"    {context:>6} {name:<13} {1 / statistics.median(seconds):8.2f} tokens/s",
            file=sys.stderr,
        )
        if name == "torch" and not cells[context].time_split:
            cells[context].time_split = time_split(
                partial(side.decode, context),
                new_tokens=count,
                limit_seconds=arguments.limit_seconds,
            )
    return [cell.summary(folder, bandwidth) for cell in cells.values()]


def run(arguments: argparse.Namespace, folders: Path) -> None:
    """Measures group by group; the report is written after each."""
    cells: list[Mapping[str, object]] = []
    if arguments.add and arguments.out.is_file():
        cells = json.loads(arguments.out.read_text())["cells"]
    for model in arguments.models:
        for dtype in arguments.dtypes:
            print(f"{model} {dtype}", file=sys.stderr)
            checkpoint = make_checkpoint(model, dtype, folders, arguments.sides)
            cells = merged(cells, measure_group(arguments, checkpoint, model, dtype))
            write_report(
                arguments.out,
                {
                    "command": command(__file__),
                    "machine": machine(),
                    "method": METHOD,
                    "threads": THREADS | {"torch": torch.get_num_threads()},
                    "rounds": arguments.rounds,
                    "cells": cells,
                },
            )


THREADS: dict[str, int | str] = {
    "mlx": "MLX's own choice: one thread a CPU stream, and those of its BLAS",
}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", choices=sorted(SHAPES), default=list(SHAPES))
    parser.add_argument("--dtypes", nargs="+", choices=sorted(DTYPES), default=list(DTYPES))
    parser.add_argument("--contexts", nargs="+", type=int, default=list(CONTEXTS))
    parser.add_argument("--sides", nargs="+", choices=sorted(SIDES), default=list(SIDES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--new-tokens", type=int, help="counted steps a round; by context if unset")
    parser.add_argument("--limit-seconds", type=float, default=40.0, help="a side, context, round")
    parser.add_argument("--threads", type=int, default=psutil.cpu_count(logical=False))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoints", type=Path, help="keeps the random checkpoints there")
    parser.add_argument("--add", action="store_true", help="keep the other cells of --out")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/decode.json"))
    return parser.parse_args()


def main() -> None:
    """Measures and writes JSON."""
    arguments = parse()
    if WAITING not in os.environ:
        again = [sys.executable, "-m", "scripts.bench.decode", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, WAITING: "PASSIVE"})
    torch.set_num_threads(arguments.threads)
    with checkpoint_folder(arguments.checkpoints) as folder:
        run(arguments, folder)


if __name__ == "__main__":
    main()
