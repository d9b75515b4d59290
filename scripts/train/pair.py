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
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

import scripts.train.python_corpus as python_corpus
from kakeya_fleet.engine.backends.torch_backend.projection import (
    Projection,
    ProjectionConfig,
    RestoredLayer,
    Source,
)
from kakeya_fleet.engine.models.digests import weights_digest
from scripts.eval.recall_task import ANSWER, RecallFormat, recall_format, training_row
from scripts.train.bar import TrainingBar
from scripts.train.checkpoint import Progress, load_checkpoint, save_checkpoint
from scripts.train.drafter_model import Drafter, DrafterShape
from scripts.train.drafter_start import start_context, start_from, start_projection
from scripts.train.pair_export import export_pair, load_drafter
from scripts.train.pair_losses import Written, draft_loss, draw_blocks, read_written, restore_loss
from scripts.train.rows import RowBatch, read_rows

PARTS = ("drafter", "restorer", "both")
HELD_OUT_ROWS = 64
START_ROWS = 48
MATRIX_RATE = 0.012
VECTOR_RATE = 3e-3
CODE_RATE = 2e-3
"""Of what starts as a regression, `fc` and f_theta, times the root mean square of its weights."""
WARMUP_STEPS = 30
DECAY_SHARE = 0.5
"""The learning rates fall linearly to zero over this share of the steps, the last ones."""
SHORT_SHARE, MIDDLE_SHARE = 0.2, 0.6
"""Blocks grow to 8 and to their whole size after these shares of the steps."""
SINK = 4
WINDOWS = (32, 64, 64, 96)
RECALL_SHARE = 0.5
"""Of the restored rows: code with a fact and a question. The others are the verifier's own."""


@dataclass
class Run:
    """A training run in memory."""

    target: PreTrainedModel
    drafter: Drafter
    projection: Projection | None
    optimizers: list[torch.optim.Optimizer]
    rows: RowBatch
    code: np.ndarray
    form: RecallFormat
    progress: Progress
    trained: nn.ModuleDict
    seen: dict[int, Written] = field(default_factory=dict)
    """Rows that the verifier has read, by index: reading them again costs as much as drafting."""


def drafter_shape(options: argparse.Namespace, target: PreTrainedModel) -> DrafterShape:
    """The drafter's shape beside `target`."""
    config = target.config
    taps = options.taps or list(range(config.num_hidden_layers))
    return DrafterShape(
        hidden=config.hidden_size,
        intermediate=options.intermediate,
        layers=options.layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        block_size=options.block_size,
        taps=tuple(taps),
        mask_token=options.mask_token,
        rope_theta=config.rope_parameters["rope_theta"],
        norm_eps=config.rms_norm_eps,
    )


def new_projection(
    options: argparse.Namespace, target: PreTrainedModel, drafter: Drafter
) -> Projection:
    """f_theta for `target`, untrained."""
    config, shape = target.config, drafter.shape
    source = Source(options.source)
    layers = target.model.layers
    normed = hasattr(layers[0].self_attn, "k_norm")
    made = Projection(
        ProjectionConfig(
            source=source,
            width=shape.hidden,
            rank=options.rank,
            layers=tuple(
                RestoredLayer(config.num_key_value_heads, config.head_dim, normed) for _ in layers
            ),
            norm_eps=config.rms_norm_eps,
            rotary_scaling=float(target.model.rotary_emb.attention_scaling),
            verifier_model_id=options.target.name,
            verifier_digest=weights_digest(options.target),
            encoder_digest="",
            drafter_layers=shape.layers if source is Source.KEYS_VALUES else 0,
            drafter_kv_heads=shape.kv_heads if source is Source.KEYS_VALUES else 0,
            drafter_head_dim=shape.head_dim if source is Source.KEYS_VALUES else 0,
        )
    )
    made.inverse_frequencies.copy_(target.model.rotary_emb.inv_freq)
    if normed:
        made.key_norms.copy_(torch.stack([layer.self_attn.k_norm.weight for layer in layers]))
    return made


def build_optimizers(trained: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the drafter's layers, AdamW for the rest; each group keeps its peak rate."""
    matrices, vectors, code = [], [], list[dict[str, object]]()
    for name, parameter in trained.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.ndim < 2:
            vectors.append(parameter)
        elif name.startswith("drafter.layers"):
            matrices.append(parameter)
        else:
            rate = CODE_RATE * parameter.detach().square().mean().sqrt().item()
            code.append({"params": [parameter], "lr": rate})
    groups = [{"params": vectors, "lr": VECTOR_RATE}, *code]
    adam = torch.optim.AdamW(
        [group for group in groups if group["params"]], betas=(0.9, 0.98), weight_decay=0.0
    )
    optimizers: list[torch.optim.Optimizer] = [adam]
    if matrices:
        optimizers.append(torch.optim.Muon(matrices, lr=MATRIX_RATE, weight_decay=0.0))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_rate"] = group["lr"]
    return optimizers


def first_rows(rows: RowBatch) -> torch.Tensor:
    """A few of the verifier's own rows, [rows, n], to start from."""
    return torch.from_numpy(rows.tokens[:: len(rows.tokens) // START_ROWS].astype(np.int64))


def prepare(options: argparse.Namespace) -> Run:
    """Build the run that `options` ask for, from its checkpoint where there is one."""
    device = torch.device(options.device)
    target = AutoModelForCausalLM.from_pretrained(options.target, dtype=torch.float32)
    target = target.to(device).eval().requires_grad_(requires_grad=False)
    tokenizer = AutoTokenizer.from_pretrained(options.target)
    files = python_corpus.read_corpus(options.corpus)
    training, _ = python_corpus.split(files)
    torch.manual_seed(options.seed)
    rows = read_rows(options.rows)
    if options.drafter is None:
        drafter = Drafter(drafter_shape(options, target)).to(device)
        start_from(drafter, target)
        start_context(drafter, target, first_rows(rows))
    else:
        drafter = load_drafter(options.drafter).to(device)
    if options.train == "restorer":
        drafter.requires_grad_(requires_grad=False)
    projection = None
    if options.train != "drafter":
        projection = new_projection(options, target, drafter).to(device)
        for name, parameter in projection.named_parameters():
            # Those of the drafter inside the map are the drafter's own; see restored_forward.
            parameter.requires_grad_("drafter" not in name)
        if projection.config.source is Source.FEATURES and not options.rank:
            start_projection(projection, drafter, target, first_rows(rows))
    trained = nn.ModuleDict({"drafter": drafter})
    if projection is not None:
        trained["projection"] = projection
    optimizers = build_optimizers(trained)
    fresh = Progress(options.train, options.seed, python_corpus.digest(files))
    progress = load_checkpoint(options.work, trained, optimizers)
    if progress is not None:
        progress.require_same_run(fresh)
    return Run(
        target,
        drafter,
        projection,
        optimizers,
        rows,
        python_corpus.encode(tokenizer, training),
        recall_format(tokenizer),
        progress or fresh,
        trained,
    )


def draw_rows(run: Run, generator: torch.Generator, count: int) -> list[int]:
    """Random rows of the verifier's own text, those held out left aside."""
    size = len(run.rows.tokens) - HELD_OUT_ROWS
    return torch.randint(size, (count,), generator=generator).tolist()


def row_tokens(run: Run, index: list[int]) -> torch.Tensor:
    """Ids of rows, [rows, n]."""
    return torch.from_numpy(run.rows.tokens[index].astype(np.int64))


def row_prompts(run: Run, index: list[int]) -> torch.Tensor:
    """Tokens of the rows' prompts, [rows]."""
    return torch.from_numpy(run.rows.prompts[index].astype(np.int64))


def seen_rows(run: Run, index: list[int], device: str) -> Written:
    """What the verifier sees in rows; each is read once."""
    for row in index:
        if row not in run.seen:
            tokens = row_tokens(run, [row]).to(device)
            run.seen[row] = read_written(run.target, tokens, run.drafter.shape.taps)
    return Written(
        torch.cat([run.seen[row].taps for row in index]),
        torch.cat([run.seen[row].hidden for row in index]),
    )


def restored_rows(
    run: Run, generator: torch.Generator, seed: list[int], count: int, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows [count, length] to restore, and where an answer is asked for."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    tokens = row_tokens(run, draw_rows(run, generator, count))[:, :length].clone()
    answers = torch.zeros(tokens.shape, dtype=torch.bool)
    for row in range(count):
        if rng.random() < RECALL_SHARE:
            made = training_row(rng, run.form, run.code, length, 1, int(rng.integers(1, 4)))
            tokens[row] = torch.from_numpy(made.tokens[:-1])
            answers[row] = torch.from_numpy(made.targets[1:] == ANSWER)
    return tokens, answers


def block_plan(step: int, steps: int, block_size: int) -> tuple[int, float]:
    """The size of blocks at `step`, and how far their late guesses count; see `draft_loss`.

    Short blocks first: a drafter learns to go on from its context before it looks ahead.
    """
    done = step / steps
    if done < SHORT_SHARE:
        return min(block_size, 4), 1.5
    if done < MIDDLE_SHARE:
        return min(block_size, 8), 4.0
    return block_size, 6.0


def rate_factor(step: int, steps: int) -> float:
    """Linear warm-up, 1, linear decay."""
    left = (steps - step) / max(1.0, DECAY_SHARE * steps)
    return min(1.0, (step + 1) / WARMUP_STEPS, left)


def train_step(run: Run, options: argparse.Namespace, steps: int) -> dict[str, float]:
    """One update of what is trained; a function of (seed, step)."""
    step, seed = run.progress.step, options.seed
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    device = options.device
    figures: dict[str, float] = {}
    with torch.autocast(torch.device(device).type, torch.bfloat16):
        if options.train != "restorer":
            index = draw_rows(run, generator, options.draft_rows)
            tokens, prompts = row_tokens(run, index), row_prompts(run, index)
            size, late = block_plan(step, steps, run.drafter.shape.block_size)
            count = options.blocks * run.drafter.shape.block_size // size
            blocks = draw_blocks(generator, prompts, tokens.shape[1], size, count)
            draft = draft_loss(
                run.target,
                run.drafter,
                tokens.to(device),
                seen_rows(run, index, device),
                blocks,
                size=size,
                late_weight=late,
            )
            draft.loss.backward()  # type: ignore[no-untyped-call]
            figures |= {
                "draft_loss": draft.loss.item(),
                "accepted": draft.accepted,
                "first_guess": draft.first,
            }
            run.progress.tokens += tokens.numel()
        if run.projection is not None and step % options.restore_every == 0:
            late = step >= options.reconstruct_share * steps
            longest = run.rows.tokens.shape[1]
            length = min(longest, int(torch.randint(3, 9, (), generator=generator)) * 64)
            tokens, answers = restored_rows(
                run, generator, [seed, step], options.restore_rows, length
            )
            window = WINDOWS[int(torch.randint(len(WINDOWS), (), generator=generator))]
            restored = restore_loss(
                run.target,
                run.drafter,
                run.projection,
                tokens.to(device),
                answers.to(device),
                sink=SINK,
                window=window,
                gap_weight=options.gap_weight if late else 0.0,
            )
            (options.restore_weight * restored.loss).backward()
            run.progress.tokens += tokens.numel()
            figures |= {
                "key_error": restored.key_error.mean().item(),
                "value_error": restored.value_error.mean().item(),
            }
            if late:
                figures |= {
                    "gap": restored.gap.item(),
                    "agreement": restored.agreement,
                    "answers": restored.answers,
                }
    factor = rate_factor(step, steps)
    for optimizer in run.optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak_rate"] * factor
        optimizer.step()
        optimizer.zero_grad()
    run.progress.step += 1
    return figures


@torch.no_grad()
def held_out_acceptance(run: Run, device: str) -> float:
    """Tokens a verify forward would commit on rows never trained on, mean."""
    generator = torch.Generator().manual_seed(0)
    held_out = range(len(run.rows.tokens) - HELD_OUT_ROWS, len(run.rows.tokens))
    size = run.drafter.shape.block_size
    found = []
    for first in range(0, HELD_OUT_ROWS, 8):
        index = list(held_out[first : first + 8])
        tokens = row_tokens(run, index)
        blocks = draw_blocks(generator, row_prompts(run, index), tokens.shape[1], size, 16)
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            figures = draft_loss(
                run.target,
                run.drafter,
                tokens.to(device),
                seen_rows(run, index, device),
                blocks,
                size=size,
                late_weight=6.0,
            )
        found.append(figures.accepted)
    return float(np.mean(found))


def train(run: Run, options: argparse.Namespace) -> None:
    """Run the remaining steps, with checkpoints on the way and at the end."""
    steps = options.steps
    run.progress.begin(steps, 1, options.threads)
    window: list[dict[str, float]] = []
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
                    figures["held_out_accepted"] = held_out_acceptance(run, options.device)
                run.progress.figures = {k: round(v, 4) for k, v in figures.items()}
                line = json.dumps({"step": step, **run.progress.figures})
                with (options.work / "log.jsonl").open("a", encoding="utf-8") as log:
                    log.write(line + "\n")
                bar.say(line)
                window.clear()
                mark = time.monotonic()
            if step % options.save_every == 0 or step == steps:
                save_checkpoint(options.work, run.trained, run.optimizers, run.progress)


def _means(window: list[dict[str, float]]) -> dict[str, float]:
    names = {name for figures in window for name in figures}
    found = {}
    for name in sorted(names):
        values = [f[name] for f in window if name in f and not math.isnan(f[name])]
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
    add("--corpus", type=Path, default=python_corpus.standard_library())
    add("--seed", type=int, default=1)
    add("--steps", type=int, default=2000)
    add("--stop-at", type=int, help="pause at this step, to be resumed")
    add("--device", default="cpu")
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
    shape.add_argument("--draft-rows", type=int, default=4, help="of a step")
    shape.add_argument("--blocks", type=int, default=32, help="of a row")
    restored = parser.add_argument_group("f_theta")
    restored.add_argument("--source", choices=[*Source], default=Source.FEATURES)
    restored.add_argument("--rank", type=int, default=0, help="of the map; 0 is a full matrix")
    restored.add_argument("--restore-rows", type=int, default=3, help="of a step")
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
