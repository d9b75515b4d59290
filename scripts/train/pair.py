"""Train a DFlash drafter and the map that restores its verifier's K/V: either, or both in one loss.

    python -m scripts.train.rows --target engine/shipped/tiny --out ROWS
    python -m scripts.train.pair --target engine/shipped/tiny --rows ROWS --work WORK
    python -m scripts.train.pair --target engine/shipped/tiny --rows ROWS --work WORK \\
        --export engine/shipped/tiny-dflash

`--train drafter` distils the drafter on the verifier's own outputs. `--train restorer` freezes the
drafter of `--drafter FOLDER` and trains f_theta in two stages: the error of restored keys and
values, then with it the logit gap against full attention. `--train both`, the default, does both
in one loss, so that a context vector learns to carry what restoring needs. Started again with the
same work folder, a run goes on from its last checkpoint.

The widest map that benchmarks/restored_text.json calls trained; narrower ones were trained alike,
with `--rank` and `--restorer` for 150 steps from what `scripts.train.cut_restorer` made of it:

    python -m scripts.train.text_rows --target MODEL --out ROWS
    python -m scripts.train.pair --target MODEL --rows ROWS --work WORK --train restorer \\
        --drafter engine/shipped/smollm2-dflash --steps 500 \\
        --restore-rows 1 --restore-every 1 --restore-lengths 768 1024 1280 --windows 256 \\
        --recall-share 0.3 --recall-facts 6 --repeat-share 0.2 --reconstruct-share 0 --gap-weight 4
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch

import scripts.train.python_corpus as python_corpus
from kakeya_fleet.engine.backends.torch_backend.projection import (
    Source,
)
from scripts.train.bar import TrainingBar
from scripts.train.checkpoint import save_checkpoint
from scripts.train.pair_export import export_pair
from scripts.train.pair_run import Run, prepare
from scripts.train.pair_step import held_out_acceptance, train_step
from scripts.train.prompts import KIND_NAMES

PARTS = ("drafter", "restorer", "both")
RESTORE_LENGTHS = (192, 256, 320, 384, 448, 512)
WINDOWS = (32, 64, 64, 96)


def train(run: Run, options: argparse.Namespace) -> None:
    """Run the remaining steps, with checkpoints on the way and at the end."""
    steps = options.steps
    run.progress.begin(steps, 1, options.threads)
    window: list[dict[str, torch.Tensor | float]] = []
    mark = time.monotonic()
    with TrainingBar(steps, run.progress.step) as bar:
        while run.progress.step < min(steps, options.stop_at or steps):
            window.append(train_step(run, options, steps))
            bar.advance()
            step = run.progress.step
            if step % options.log_every == 0 or step == steps:
                elapsed = time.monotonic() - mark
                run.progress.wall_seconds += elapsed
                figures = _means(window)
                figures["seconds_a_step"] = elapsed / len(window)
                if options.train != "restorer" and step % options.save_every == 0:
                    figures |= held_out_figures(run, options.device)
                run.progress.figures = {k: round(v, 4) for k, v in figures.items()}
                line = json.dumps({"step": step, **run.progress.figures})
                with (options.work / "log.jsonl").open("a", encoding="utf-8") as log:
                    log.write(line + "\n")
                bar.say(line)
                window.clear()
                mark = time.monotonic()
            if step % options.save_every == 0 or step == steps:
                save_checkpoint(options.work, run.trained, run.optimizers, run.progress)


def held_out_figures(run: Run, device: str) -> dict[str, float]:
    """What a forward would commit of rows held out: of all, and by what their prompts ask for."""
    kinds = run.rows.kinds[run.held_out]
    found = {"held_out_accepted": held_out_acceptance(run, device, run.held_out)}
    different = np.unique(kinds)
    # Rows of one kind are no answers to prompts: their number stands for nothing.
    for kind in different if len(different) > 1 else ():
        rows = run.held_out[kinds == kind]
        found[f"held_out_{KIND_NAMES[kind]}"] = held_out_acceptance(run, device, rows)
    return found


def _means(window: list[dict[str, torch.Tensor | float]]) -> dict[str, float]:
    names = {name for figures in window for name in figures}
    found = {}
    for name in sorted(names):
        values = [float(f[name]) for f in window if name in f]
        values = [value for value in values if not math.isnan(value)]
        if values:
            found[name] = sum(values) / len(values)
    return found


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    add = parser.add_argument
    add("--target", type=Path, required=True, help="the verifier's folder")
    add("--rows", type=Path, required=True, help="what train_rows.py wrote")
    add("--work", type=Path, required=True, help="folder of checkpoint and log")
    add("--train", choices=PARTS, default="both")
    add("--drafter", type=Path, help="start from the drafter in this folder")
    add("--as-version-1", action="store_true", help="start without what version 2 adds to it")
    add("--corpus", type=Path, default=python_corpus.standard_library())
    add("--seed", type=int, default=1)
    add("--rate-share", type=float, default=1.0, help="of the rates that a new drafter has")
    add("--steps", type=int, default=2000)
    add("--stop-at", type=int, help="pause at this step, to be resumed")
    add("--device", default="cpu")
    add("--target-dtype", choices=("float32", "bfloat16"), default="float32", help="it reads in")
    add("--threads", type=int, default=1)
    add("--log-every", type=int, default=20)
    add("--save-every", type=int, default=100)
    add("--export", type=Path, help="write the folder here, and stop")
    shape = parser.add_argument_group("the drafter")
    shape.add_argument("--layers", type=int, default=2)
    shape.add_argument("--intermediate", type=int, default=512)
    shape.add_argument("--block-size", type=int, default=16)
    shape.add_argument("--taps", type=int, nargs="*", help="the verifier's layers; all by default")
    shape.add_argument("--mask-token", type=int, default=0)
    shape.add_argument("--version", type=int, choices=(1, 2), default=1, help="of DFlash")
    shape.add_argument("--conv-taps", type=int, default=2, help="rows, of version 2")
    shape.add_argument("--conv-group", type=int, default=64, help="numbers, of version 2")
    shape.add_argument("--selector-rank", type=int, default=16, help="of version 2")
    shape.add_argument("--draft-rows", type=int, default=4, help="of a step")
    shape.add_argument(
        "--sizes", type=int, nargs="*", help="of the last blocks, drawn; whole ones by default"
    )
    shape.add_argument("--blocks", type=int, default=32, help="of a row")
    restored = parser.add_argument_group("f_theta")
    restored.add_argument("--source", choices=[*Source], default=Source.FEATURES)
    restored.add_argument("--restorer", type=Path, help="start from the map in this folder")
    restored.add_argument("--rank", type=int, default=0, help="of the map; 0 is a full matrix")
    restored.add_argument("--restore-rows", type=int, default=3, help="of a step")
    restored.add_argument(
        "--restore-lengths", type=int, nargs="+", default=RESTORE_LENGTHS, help="of rows, drawn"
    )
    restored.add_argument("--windows", type=int, nargs="+", default=WINDOWS, help="drawn")
    restored.add_argument(
        "--recall-share", type=float, default=0.5, help="of rows of code with facts and questions"
    )
    restored.add_argument("--recall-facts", type=int, default=1, help="of a row that has some")
    restored.add_argument(
        "--repeat-share", type=float, default=0.0, help="of rows that say a part again"
    )
    restored.add_argument("--restore-every", type=int, default=4, help="steps")
    restored.add_argument("--restore-weight", type=float, default=1.0, help="beside the drafts'")
    restored.add_argument("--gap-weight", type=float, default=1.0, help="beside the K/V error")
    restored.add_argument(
        "--reconstruct-share", type=float, default=0.05, help="steps of the first stage"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Train, or export the last checkpoint."""
    options = parse_options(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(options.threads)
    run = prepare(options)
    if options.export is None:
        train(run, options)
    else:
        export_pair(options, run.target, run.drafter, run.projection, run.progress)


if __name__ == "__main__":
    main()
