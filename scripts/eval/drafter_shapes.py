"""Which layers feed a drafter best, and which version of DFlash: short trainings, all alike else.

    python -m scripts.train.prompts --target MODEL --out PROMPTS.npz
    python -m scripts.train.answers --target MODEL --prompts PROMPTS.npz --out ROWS
    python -m scripts.eval.drafter_shapes --target MODEL --rows ROWS --work WORK

Each shape is trained anew by `scripts.train.pair`, on the same blocks of the same rows in the same
order, and asked behind as many places of rows that are held out: how many tokens a forward of the
verifier would commit. One shape is trained twice, from two seeds: what they differ by says
nothing. A run is much shorter than the shipped drafter's, so that it ranks shapes, and says nothing
of how good they become. Started again, it goes on behind the last shape that was trained.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from scripts.bench.machine import command, machine, write_report
from scripts.train.pair import held_out_figures, parse_options, train
from scripts.train.pair_run import prepare

EVENLY = "evenly, five"
"""What is shipped."""
SHAPES: Mapping[str, str] = {
    EVENLY: "--taps 1 8 15 22 28 --version 2",
    f"{EVENLY}, another seed": "--taps 1 8 15 22 28 --version 2 --seed 2",
    "evenly, three": "--taps 1 15 28 --version 2",
    "evenly, eight": "--taps 1 5 9 13 17 21 25 28 --version 2",
    "the last five": "--taps 24 25 26 27 28 --version 2",
    "the first five": "--taps 1 2 3 4 5 --version 2",
    "the last one": "--taps 28 --version 2",
    f"{EVENLY}, version 1": "--taps 1 8 15 22 28 --version 1",
}
"""By name, what `scripts.train.pair` is told of a verifier of thirty layers."""
ALIKE = (
    "--train drafter --layers 3 --intermediate 1024 --block-size 12 --conv-taps 2 --conv-group 64"
    " --selector-rank 16 --draft-rows 4 --blocks 16"
)
"""What it is told of all."""


def trained(name: str, asked: argparse.Namespace) -> dict[str, float]:
    """What a forward commits on rows held out, of all and by kind, and what the run took."""
    work = asked.work / name.replace(" ", "-").replace(",", "")
    work.mkdir(parents=True, exist_ok=True)
    where = ("--target", str(asked.target), "--rows", str(asked.rows), "--work", str(work))
    length = f"--steps {asked.steps} --save-every {asked.steps} --threads {asked.threads}"
    options = parse_options([*where, *f"{ALIKE} {length} {SHAPES[name]}".split()])
    run = prepare(options)
    train(run, options)
    parameters = sum(each.numel() for each in run.drafter.parameters() if each.requires_grad)
    return {
        "parameters": parameters,
        "minutes": run.progress.wall_seconds / 60,
        **held_out_figures(run, options.device),
    }


def main(words: Sequence[str] | None = None) -> int:
    """Trains them all and writes the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    for name in ("target", "rows", "work"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--out", type=Path, default=Path("benchmarks/drafter_shapes.json"))
    asked = parser.parse_args(words)
    torch.set_num_threads(asked.threads)
    shapes = {}
    for name in SHAPES:
        shapes[name] = trained(name, asked)
        print(name, json.dumps(shapes[name]), flush=True)
    report = {
        # Where these lie is nobody else's matter.
        "command": command(__file__)
        .replace(str(asked.target), "MODEL")
        .replace(str(asked.rows), "ROWS")
        .replace(str(asked.work), "WORK"),
        "machine": machine(),
        "steps": asked.steps,
        "shapes": shapes,
    }
    write_report(asked.out, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
