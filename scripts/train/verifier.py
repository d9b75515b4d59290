"""Train the shipped verifier on the Python standard library, with recall tasks mixed in.

    python -m scripts.train.verifier --preset tiny --work WORK
    python -m scripts.train.verifier --preset tiny --work WORK --export engine/shipped/tiny

Started again with the same work folder, a run goes on from its last checkpoint and ends with the
weights that it would have had without the interruption. `--finish-at STEP` brings the end forward:
the stages before the last are cut short, and the manifest records it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

import scripts.train.python_corpus as python_corpus
from scripts.eval.recall_measure import greedy_hits
from scripts.eval.recall_task import RecallFormat, recall_case, recall_format
from scripts.train.bar import TrainingBar
from scripts.train.checkpoint import Progress, load_checkpoint, save_checkpoint
from scripts.train.export import export
from scripts.train.model import (
    StepFigures,
    build_model,
    build_optimizers,
    make_batch,
    token_losses,
    train_step,
)
from scripts.train.presets import PRESETS, Preset
from scripts.train.workers import Team, run_team

QUICK_LENGTHS = (128, 256, 512, 1000)
QUICK_CASES = 16
# The running recall test draws from a stream of its own, apart from any training step.
QUICK_SEED = 2**40


@dataclass(frozen=True)
class Text:
    """The tokenised corpus."""

    tokenizer: PreTrainedTokenizerFast
    form: RecallFormat
    training: np.ndarray
    held_out: np.ndarray
    summary: dict[str, object]
    """File counts and digests, for the manifest."""


@dataclass
class Run:
    """A training run in memory."""

    preset: Preset
    model: Qwen3ForCausalLM
    optimizers: list[torch.optim.Optimizer]
    text: Text
    progress: Progress
    device: torch.device
    team: Team


def read_text(root: Path, vocabulary_size: int) -> Text:
    """Read, split and tokenise the corpus below `root`."""
    files = python_corpus.read_corpus(root)
    training, held_out = python_corpus.split(files)
    tokenizer = python_corpus.train_tokenizer(training, vocabulary_size)
    return Text(
        tokenizer=tokenizer,
        form=recall_format(tokenizer),
        training=python_corpus.encode(tokenizer, training),
        held_out=python_corpus.encode(tokenizer, held_out or training[:1]),
        summary={
            "training_files": len(training),
            "held_out_files": [file.name for file in held_out],
            "training_bytes": sum(len(file.text.encode()) for file in training),
            "sha256": python_corpus.digest(files),
        },
    )


def prepare(options: argparse.Namespace, team: Team) -> Run:
    """Build the run that `options` ask for, from its checkpoint where there is one."""
    preset = PRESETS[options.preset]
    if options.finish_at is not None:
        preset = preset.shortened(options.finish_at)
    text = read_text(options.corpus, preset.shape.vocabulary)
    device = torch.device(options.device)
    model = build_model(preset.shape, options.seed, text.tokenizer.eos_token_id)
    torch.nn.Module.to(model, device)
    optimizers = build_optimizers(model, preset)
    fresh = Progress(
        preset=options.preset,
        seed=options.seed,
        corpus_sha256=str(text.summary["sha256"]),
    )
    progress = load_checkpoint(options.work, model, optimizers)
    if progress is not None:
        progress.require_same_run(fresh)
    return Run(preset, model, optimizers, text, progress or fresh, device, team)


def quick_recall(run: Run) -> dict[str, float]:
    """The share of a few one-fact cases answered, by context length."""
    rng = np.random.Generator(np.random.Philox(key=[run.progress.seed, QUICK_SEED]))
    shares = {}
    run.model.eval()
    for length in QUICK_LENGTHS:
        cases = [
            recall_case(rng, run.text.form, run.text.held_out, length) for _ in range(QUICK_CASES)
        ]
        shares[f"recall_{length}"] = float(greedy_hits(run.model, cases).mean())
    run.model.train()
    return shares


def averages(window: list[StepFigures]) -> dict[str, float]:
    """The means of each figure over `window`, steps without that figure left out."""
    names = [entry.name for entry in dataclasses.fields(StepFigures)]
    result = {}
    for name in names:
        values = [getattr(figures, name) for figures in window]
        known = [value for value in values if not math.isnan(value)]
        if known:
            result[name] = round(sum(known) / len(known), 4)
    return result


def report(run: Run, log: Path, figures: dict[str, float], bar: TrainingBar) -> None:
    """Append `figures` to the log file, and show them."""
    line = {"step": run.progress.step, "tokens": run.progress.tokens, **figures}
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    bar.say(" ".join(f"{name}={value:g}" for name, value in line.items()))


def train(run: Run, options: argparse.Namespace) -> None:
    """Run the remaining steps, or until `--stop-at`, with checkpoints on the way and at the end."""
    run.progress.begin(run.preset.steps, options.workers, options.threads)
    plain = token_losses(run.model)
    compiled = torch.compile(plain, dynamic=False) if options.compile_up_to else plain
    last = min(run.preset.steps, options.stop_at or run.preset.steps)
    window: list[StepFigures] = []
    mark = time.monotonic()
    marked_tokens = run.progress.tokens
    with TrainingBar(run.preset.steps, run.progress.step, is_shown=run.team.leads) as bar:
        while run.progress.step < last:
            step = run.progress.step
            batch = make_batch(run.preset, run.text.form, run.text.training, options.seed, step)
            factor = run.preset.rate_factor(step)
            losses = compiled if batch.targets.shape[1] <= options.compile_up_to else plain
            window.append(train_step(losses, run.optimizers, batch, factor, run.device, run.team))
            run.progress.step += 1
            run.progress.tokens += batch.targets.numel()
            bar.advance()
            if not run.team.leads:
                continue
            is_last = run.progress.step == last
            if is_last or run.progress.step % options.log_every == 0:
                elapsed = time.monotonic() - mark
                run.progress.wall_seconds += elapsed
                figures = averages(window)
                figures["tokens_per_second"] = round(
                    (run.progress.tokens - marked_tokens) / elapsed
                )
                if is_last or run.progress.step % options.recall_every == 0:
                    figures |= quick_recall(run)
                run.progress.figures = figures
                report(run, options.work / "log.jsonl", figures, bar)
                window.clear()
                mark, marked_tokens = time.monotonic(), run.progress.tokens
            if is_last or run.progress.step % options.save_every == 0:
                save_checkpoint(options.work, run.model, run.optimizers, run.progress)


def parse_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--preset", choices=sorted(PRESETS), default="tiny")
    parser.add_argument("--work", type=Path, required=True, help="folder of checkpoint and log")
    parser.add_argument("--corpus", type=Path, default=python_corpus.standard_library())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the rows")
    parser.add_argument("--threads", type=int, default=2, help="per worker")
    parser.add_argument("--finish-at", type=int, help="bring the end forward to this step")
    parser.add_argument("--stop-at", type=int, help="pause at this step, to be resumed")
    parser.add_argument("--save-every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--recall-every", type=int, default=100)
    parser.add_argument("--export", type=Path, help="write the model folder here, and stop")
    parser.add_argument(
        "--compile-up-to",
        type=int,
        default=512,
        help="compile the step for rows of at most this many tokens, each length on its own",
    )
    return parser.parse_args(arguments)


def work_on(team: Team, arguments: list[str]) -> None:
    """Train, or export the last checkpoint, as one worker of `team`."""
    options = parse_options(arguments)
    torch.set_num_threads(options.threads)
    # Compiled scatters would otherwise add in the order in which threads arrive.
    torch.use_deterministic_algorithms(mode=True)
    run = prepare(options, team)
    if options.export is None:
        train(run, options)
    else:
        export(
            options.export,
            run.model,
            run.text.tokenizer,
            run.preset,
            run.progress,
            run.text.summary,
        )


def main(arguments: list[str] | None = None) -> None:
    """Start the workers, one alone for an export."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parse_options(given)
    options.work.mkdir(parents=True, exist_ok=True)
    run_team(1 if options.export else options.workers, options.work, work_on, given)


if __name__ == "__main__":
    main()
