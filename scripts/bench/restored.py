"""Memory and throughput of a verifier that restores what it evicts.

    python -m scripts.bench.restored --out benchmarks/restored.json

Three parts, each with its own model: `memory`, a toy with random weights and
positions to spare, by the length of the history; `speed`, random weights at a real
model's shape, full attention against `restored` with the archive in another
process, by context, and the context from which restoring is the faster; `shipped`,
the shipped verifier with its learned map too. Histories are random keys and values
written into each cache and its store: that changes no times and no bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import torch

from kakeya_fleet.engine.backends import load_verifier
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.models.model_folder import ModelFolder, resolve
from kakeya_fleet.engine.verifiers.exactness import settle
from scripts.bench.decode_models import DTYPES, SHAPES, checkpoint_folder, random_checkpoint
from scripts.bench.kv_strategies import EXACT, FULL, SINK_WINDOW, STRATEGIES, Caches, Strategy
from scripts.bench.machine import command, machine, write_report
from scripts.bench.restored_memory import MEMORY_IS, measure_memory
from scripts.bench.restored_steps import crossing, measure_steps
from scripts.eval.restorers import Restoring

GOAL = 0.6
"""Speed of `restored` over that of full attention, at every context."""
ARCHIVE = STRATEGIES["restored archive"]
PROJECTION = STRATEGIES["restored projection"]
TOY = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 256,
}
SPARE_BYTES = 3 << 30
"""What must stay free beside the caches."""


def memory_part(arguments: argparse.Namespace, folders: Path) -> dict[str, Any]:
    """Bytes and peaks by length."""
    lengths = [length for length in arguments.lengths if length <= arguments.longest]
    folder = random_checkpoint(
        arguments.model, "float32", folders, **TOY, max_position_embeddings=arguments.longest + 64
    )
    verifier = load_verifier(ModelFolder(folder, "toy"), backend="torch")
    with closing(Restoring(verifier, "", arguments.archive)) as restoring:
        caches = Caches(verifier, arguments.sink, arguments.window, restoring.restorers)
        found = measure_memory(verifier, caches, [FULL, SINK_WINDOW, EXACT, ARCHIVE], lengths)
    slopes = {name: cells["slopes"].get("kv_bytes") for name, cells in found.items()}
    return {
        "model": "toy of random weights",
        "lengths": lengths,
        "strategies": found,
        "figures_are": MEMORY_IS,
        "verifier_bytes_constant": all(
            slope == 0.0 for name, slope in slopes.items() if name.startswith("restored")
        ),
    }


def speed_part(
    arguments: argparse.Namespace, verifier: Verifier, model: str, restorer: str, most: int
) -> dict[str, Any]:
    """Steps by context, up to `most` tokens, and the crossing."""
    cells: list[dict[str, Any]] = []
    skipped = []
    with closing(
        Restoring(verifier, restorer, arguments.archive, threads=arguments.threads)
    ) as restoring:
        caches = Caches(verifier, arguments.sink, arguments.window, restoring.restorers)
        strategies = [FULL, SINK_WINDOW, EXACT, ARCHIVE, *([PROJECTION] if restorer else [])]
        for context in (context for context in arguments.contexts if context <= most):
            if not fits(verifier, context, len(strategies) - 1):
                skipped.append(context)
                continue
            cells += measure_steps(
                verifier,
                caches,
                strategies,
                context,
                block_sizes=arguments.block_sizes,
                rounds=arguments.rounds,
                seed=arguments.seed,
            )
    return {
        "model": model,
        "dtype": verifier.info.dtype,
        "cells": cells,
        "contexts_skipped_for_memory": skipped,
        **conclusions(cells, strategies, arguments.block_sizes),
    }


def fits(verifier: Verifier, context: int, copies: int) -> bool:
    """Whether memory holds the K/V of so many caches and stores of `context` positions."""
    needed = copies * context * verifier.info.kv_bytes_per_token
    return needed + SPARE_BYTES < psutil.virtual_memory().available


def conclusions(
    cells: Sequence[Mapping[str, Any]], strategies: Sequence[Strategy], sizes: Sequence[int]
) -> dict[str, Any]:
    """The least speed over full attention, and from which context on restoring is faster."""
    restored = [strategy.name for strategy in strategies if strategy.restorer is not None]
    ratios = {
        name: [cell["strategies"][name]["over_full"]["median"] for cell in cells]
        for name in restored
    }
    least = {name: min(found) for name, found in ratios.items() if found}
    return {
        "least_over_full": least,
        "crossing_tokens": {
            name: {str(size): crossing(cells, name, size) for size in sizes} for name in restored
        },
        "goal_met": {name: ratio >= GOAL for name, ratio in least.items()},
    }


def run(arguments: argparse.Namespace, folders: Path) -> None:
    """The parts that are asked for; the report is written after each."""
    report: dict[str, Any] = {
        "command": command(__file__),
        "machine": machine(),
        "sink_tokens": arguments.sink,
        "window_tokens": arguments.window,
        "goal_over_full": GOAL,
        "rounds": arguments.rounds,
        "method": "Random weights and random K/V but in the part `shipped`, whose weights are "
        "real. The archive is another process on this machine.",
    }
    if "memory" in arguments.parts:
        print("memory", file=sys.stderr)
        report["memory"] = memory_part(arguments, folders)
        write_report(arguments.out, report)
    if "speed" in arguments.parts:
        print("speed", file=sys.stderr)
        config = TOY if arguments.quick else {}
        folder = random_checkpoint(arguments.model, arguments.dtype, folders, **config)
        verifier = load_verifier(
            ModelFolder(folder, folder.name), backend="torch", dtype=arguments.dtype
        )
        settle(verifier)
        name = "toy" if arguments.quick else f"{arguments.model} shape, random weights"
        report["speed"] = speed_part(
            arguments, verifier, name, "", verifier.info.context_length - 64
        )
        del verifier
        write_report(arguments.out, report)
    if "shipped" in arguments.parts:
        print("shipped", file=sys.stderr)
        verifier = load_verifier(resolve(arguments.verifier), backend="torch")
        settle(verifier)
        report["shipped"] = speed_part(
            arguments,
            verifier,
            arguments.verifier,
            arguments.restorer,
            verifier.info.context_length - 64,
        )
        write_report(arguments.out, report)
    show(report)


def show(report: Mapping[str, Any]) -> None:
    """The figures that the goals are about."""
    for name, found in report.get("memory", {}).get("strategies", {}).items():
        print(f"memory {name:<20} {found['slopes']}")
    for part in ("speed", "shipped"):
        for cell in report.get(part, {}).get("cells", []):
            speeds = "  ".join(
                f"{name} {found['steps_per_second_median']:.3g}"
                for name, found in cell["strategies"].items()
            )
            print(f"{part} {cell['context_tokens']:>6} x{cell['tokens_a_step']:<2} {speeds}")
        if part in report:
            ratios = report[part]["least_over_full"]
            print(part, {name: round(ratio, 3) for name, ratio in ratios.items()})
            print(part, "crossing", report[part]["crossing_tokens"])


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parts = ("memory", "speed", "shipped")
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--model", choices=sorted(SHAPES), default="Qwen3-0.6B")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="bfloat16")
    parser.add_argument("--verifier", default="tiny", help="of the part `shipped`")
    parser.add_argument("--restorer", default="tiny-dflash", help="whose learned map; none: ''")
    lengths = [256, 512, 1024, 2048, 4096, 8192, 16_384, 24_576, 32_768]
    parser.add_argument("--lengths", nargs="+", type=int, default=lengths, help="of `memory`")
    contexts = [128, 256, 512, 1024, 1980, 4096, 8192, 16_384]
    parser.add_argument("--contexts", nargs="+", type=int, default=contexts)
    parser.add_argument("--block-sizes", nargs="+", type=int, default=[1, 16])
    parser.add_argument("--sink", type=int, default=4)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1, help="of either process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--archive", default="4GiB", help="bytes, or the address of a running one")
    parser.add_argument("--checkpoints", type=Path, help="keeps the random checkpoints there")
    parser.add_argument("--quick", action="store_true", help="toys and short histories")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/restored.json"))
    arguments = parser.parse_args(words)
    if arguments.quick:
        arguments.lengths, arguments.contexts, arguments.rounds = [128, 256, 384], [96, 256], 2
    arguments.longest = max(arguments.lengths)
    return arguments


def main(words: Sequence[str] | None = None) -> None:
    """Measures and writes JSON."""
    arguments = parse(words)
    torch.set_num_threads(arguments.threads)
    with checkpoint_folder(arguments.checkpoints) as folder:
        run(arguments, folder)


if __name__ == "__main__":
    main()
