"""One step of a training run, and the rows that it draws: functions of (seed, step)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from scripts.eval.recall_task import ANSWER, distant_repeat_row, training_row
from scripts.train.pair_losses import (
    Blocks,
    Written,
    draft_loss,
    draw_blocks,
    read_written,
    restore_loss,
)
from scripts.train.pair_run import Run
from scripts.train.placing import on_device

WARMUP_STEPS = 30
DECAY_SHARE = 0.5
"""The learning rates fall linearly to zero over this share of the steps, the last ones."""
SHORT_SHARE, MIDDLE_SHARE = 0.2, 0.6
MIDDLE_SIZE = 8
DRAWN_TO_CHOOSE = 8
"""Times as many rows are drawn as a step has, to find some of like lengths."""
"""Blocks grow to 8 and to their whole size after these shares of the steps."""
ROWS_READ, ROWS_READ_ON_DEVICE = 8, 64
"""Of those held out, at a time."""
SINK = 4


def draw_rows(run: Run, generator: torch.Generator, count: int) -> list[int]:
    """Random rows of the verifier's own text, those held out left aside."""
    index = torch.randint(len(run.training), (count,), generator=generator)
    rows: list[int] = run.training[index.numpy()].tolist()
    return rows


def draw_alike(run: Run, generator: torch.Generator, count: int) -> list[int]:
    """Random rows of like lengths: what is filled up behind the shorter ones costs as much."""
    rows = draw_rows(run, generator, count * DRAWN_TO_CHOOSE)
    rows.sort(key=lambda row: int(run.rows.lengths[row]))
    first = count * int(torch.randint(DRAWN_TO_CHOOSE, (), generator=generator))
    return rows[first : first + count]


def row_tokens(run: Run, index: list[int]) -> torch.Tensor:
    """Ids of rows, [rows, n], as far as the longest goes."""
    longest = int(run.rows.lengths[index].max())
    return torch.from_numpy(run.rows.tokens[index, :longest].astype(np.int64))


def joined(run: Run, row: int, length: int) -> torch.Tensor:
    """Ids [length]: a row, and what is trained on behind it where it is too short."""
    parts: list[np.ndarray] = []
    first = int(np.searchsorted(run.training, row))
    while sum(map(len, parts)) < length:
        index = run.training[first % len(run.training)]
        parts.append(run.rows.tokens[index, : run.rows.lengths[index]])
        first += 1
    return torch.from_numpy(np.concatenate(parts)[:length].astype(np.int64))


def row_blocks(
    run: Run, generator: torch.Generator, index: list[int], size: int, count: int
) -> Blocks:
    """`count` blocks of `size` in each row, behind its prompt."""
    prompts, lengths = (
        torch.from_numpy(each[index].astype(np.int64))
        for each in (run.rows.prompts, run.rows.lengths)
    )
    return draw_blocks(generator, prompts, lengths, size, count)


def seen_rows(run: Run, index: list[int], tokens: torch.Tensor) -> Written:
    """What the verifier sees in rows; on a processor, which is slow, each is read once."""
    if tokens.device.type != "cpu":
        return read_written(run.target, tokens, run.drafter.shape.taps)
    for row in index:
        if row not in run.seen:
            own = row_tokens(run, [row])
            run.seen[row] = read_written(run.target, own, run.drafter.shape.taps)
    seen = [run.seen[row] for row in index]
    taps = nn.utils.rnn.pad_sequence([each.taps[0] for each in seen], batch_first=True)
    hidden = nn.utils.rnn.pad_sequence([each.hidden[0] for each in seen], batch_first=True)
    return Written(taps, hidden)


def restored_rows(
    run: Run,
    generator: torch.Generator,
    options: argparse.Namespace,
    length: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows [restore_rows, length] to restore, and where an answer is asked for."""
    rng = np.random.Generator(np.random.Philox(key=[options.seed, run.progress.step]))
    count, facts = options.restore_rows, options.recall_facts
    tokens = torch.stack([joined(run, row, length) for row in draw_rows(run, generator, count)])
    answers = torch.zeros(tokens.shape, dtype=torch.bool)
    for row in range(count):
        drawn = rng.random()
        if drawn < options.recall_share:
            asked = int(rng.integers(facts, 3 * facts + 1))
            made = training_row(rng, run.form, run.code, length, facts, asked)
        elif drawn < options.recall_share + options.repeat_share:
            made = distant_repeat_row(rng, run.form, run.code, length)
        else:
            made = None
        if made is not None:
            tokens[row] = torch.from_numpy(made.tokens[:-1])
            answers[row] = torch.from_numpy(made.targets[1:] == ANSWER)
    return tokens, answers


def block_plan(step: int, steps: int, sizes: Sequence[int], *, is_new: bool) -> tuple[int, float]:
    """The size of blocks at `step`, and how far their late guesses count; see `draft_loss`.

    Short blocks first, for a new drafter: it learns to go on from its context before it looks
    ahead. At the end `sizes` take turns: who asks for less than a whole block has it drafted as
    well.
    """
    done, largest = step / steps if is_new else 1.0, max(sizes)
    if done < SHORT_SHARE:
        return min(largest, 4), 1.5
    if done < MIDDLE_SHARE:
        return min(largest, MIDDLE_SIZE), 4.0
    size = sizes[step % len(sizes)]
    return size, 4.0 if size <= MIDDLE_SIZE else 6.0


def rate_factor(step: int, steps: int) -> float:
    """Linear warm-up, 1, linear decay."""
    left = (steps - step) / max(1.0, DECAY_SHARE * steps)
    return min(1.0, (step + 1) / WARMUP_STEPS, left)


def drawn_of(values: Sequence[int], generator: torch.Generator) -> int:
    """One of `values`."""
    return values[int(torch.randint(len(values), (), generator=generator))]


def train_step(
    run: Run, options: argparse.Namespace, steps: int
) -> dict[str, torch.Tensor | float]:
    """One update of what is trained; a function of (seed, step).

    Its figures stay on the device until they are read: reading waits for all of the step.
    """
    step, seed = run.progress.step, options.seed
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    device = options.device
    figures: dict[str, torch.Tensor | float] = {}
    with torch.autocast(torch.device(device).type, torch.bfloat16):
        if options.train != "restorer":
            index = draw_alike(run, generator, options.draft_rows)
            tokens = on_device(row_tokens(run, index), device)
            sizes = options.sizes or [run.drafter.shape.block_size]
            size, late = block_plan(step, steps, sizes, is_new=options.drafter is None)
            count = options.blocks * run.drafter.shape.block_size // size
            blocks = row_blocks(run, generator, index, size, count).to(device)
            draft = draft_loss(
                run.target,
                run.drafter,
                tokens,
                seen_rows(run, index, tokens),
                blocks,
                size=size,
                late_weight=late,
            )
            draft.loss.backward()  # type: ignore[no-untyped-call]
            figures |= {
                "draft_loss": draft.loss.detach(),
                "accepted": draft.accepted,
                "first_guess": draft.first,
            }
            run.progress.tokens += tokens.numel()
        if run.projection is not None and step % options.restore_every == 0:
            late = step >= options.reconstruct_share * steps
            longest = run.rows.tokens.shape[1]
            length = min(longest, drawn_of(options.restore_lengths, generator))
            tokens, answers = restored_rows(run, generator, options, length)
            window = drawn_of(options.windows, generator)
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
def held_out_acceptance(run: Run, device: str, held_out: np.ndarray) -> float:
    """Tokens a verify forward would commit on rows `held_out`, never trained on, mean."""
    generator = torch.Generator().manual_seed(0)
    size = run.drafter.shape.block_size
    together = ROWS_READ if torch.device(device).type == "cpu" else ROWS_READ_ON_DEVICE
    found, counts = [], []
    for first in range(0, len(held_out), together):
        index = held_out[first : first + together].tolist()
        tokens = row_tokens(run, index).to(device)
        blocks = row_blocks(run, generator, index, size, 16).to(device)
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            figures = draft_loss(
                run.target,
                run.drafter,
                tokens,
                seen_rows(run, index, tokens),
                blocks,
                size=size,
                late_weight=6.0,
            )
        found.append(figures.accepted.item())
        counts.append(len(index))
    return float(np.average(found, weights=counts))
