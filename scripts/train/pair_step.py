"""One step of a training run, and the rows that it draws: functions of (seed, step)."""

from __future__ import annotations

import argparse

import numpy as np
import torch

from scripts.eval.recall_task import ANSWER, training_row
from scripts.train.pair_losses import Written, draft_loss, draw_blocks, read_written, restore_loss
from scripts.train.pair_run import Run

HELD_OUT_ROWS = 64
WARMUP_STEPS = 30
DECAY_SHARE = 0.5
"""The learning rates fall linearly to zero over this share of the steps, the last ones."""
SHORT_SHARE, MIDDLE_SHARE = 0.2, 0.6
"""Blocks grow to 8 and to their whole size after these shares of the steps."""
SINK = 4
WINDOWS = (32, 64, 64, 96)
RECALL_SHARE = 0.5
"""Of the restored rows: code with a fact and a question. The others are the verifier's own."""


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
