"""The verifier's model, its optimizers, its batches and its loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as functional
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from scripts.eval.recall_task import (
    ANSWER,
    REPEATED,
    TEXT,
    RecallFormat,
    distant_repeat_row,
    repeated_row,
    training_row,
)
from scripts.train.presets import Preset, Shape, plan_row
from scripts.train.workers import Team

BatchLoss = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Batch:
    """The rows of one step."""

    tokens: torch.Tensor
    """Ids, int64 of shape (rows, length + 1)."""
    targets: torch.Tensor
    """`recall_task`'s IGNORED, TEXT, ANSWER or REPEATED per predicted token, (rows, length)."""
    answer_weight: float
    """The weight of the answers' mean loss."""


@dataclass(frozen=True)
class StepFigures:
    """What one step measured."""

    text_loss: float
    """Mean nats per code token; NaN where the batch had none."""
    answer_loss: float
    """Mean nats per answer; NaN where the batch had none."""
    answer_accuracy: float
    """The share of answers that were the likeliest token; NaN where the batch had none."""
    repeat_loss: float
    """Mean nats per token of a stretch's second copy; NaN where the batch had none."""


def build_model(shape: Shape, seed: int, end_of_text: int) -> Qwen3ForCausalLM:
    """A randomly initialised model with tied embeddings, float32; the same for the same seed."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.positions,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end_of_text,
        pad_token_id=end_of_text,
        attn_implementation="sdpa",
    )
    return Qwen3ForCausalLM(config)


def build_optimizers(model: nn.Module, preset: Preset) -> list[torch.optim.Optimizer]:
    """Muon for the hidden matrices; AdamW for the embedding, which is the head too, and the norms.

    Each parameter group keeps its peak learning rate under `peak_rate`.
    """
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim == 2 and "embed_tokens" not in name
        (matrices if is_matrix else vectors).append(parameter)
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=preset.matrix_rate, weight_decay=0.0),
        torch.optim.AdamW(vectors, lr=preset.vector_rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_rate"] = group["lr"]
    return optimizers


def make_batch(preset: Preset, form: RecallFormat, code: np.ndarray, seed: int, step: int) -> Batch:
    """The batch of `step`, a function of the arguments alone."""
    rng = np.random.Generator(np.random.Philox(key=[seed, step]))
    stage, _ = preset.place(step)
    length = int(rng.choice(stage.lengths, p=stage.length_weights))
    rows = []
    for _ in range(max(1, preset.tokens_per_step // length)):
        plan = plan_row(rng, stage, length, form.line_tokens)
        if plan.is_repeated and stage.are_repeats_distant:
            rows.append(distant_repeat_row(rng, form, code, length))
        elif plan.is_repeated:
            rows.append(repeated_row(rng, code, length))
        else:
            pool = replace(form, words=form.words[: plan.word_count])
            rows.append(training_row(rng, pool, code, length, plan.facts, plan.questions))
    targets = np.stack([row.targets[1:] for row in rows])
    return Batch(
        tokens=torch.from_numpy(np.stack([row.tokens for row in rows])),
        targets=torch.from_numpy(targets),
        answer_weight=stage.answer_weight,
    )


def token_losses(model: Qwen3ForCausalLM) -> BatchLoss:
    """A function from (inputs, next tokens) to their losses in nats and whether each was likeliest.

    Both of shape (rows, length).
    """

    def losses(inputs: torch.Tensor, following: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = model.model(input_ids=inputs, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden).float()
        flat = functional.cross_entropy(logits.flatten(0, 1), following.flatten(), reduction="none")
        return flat.view_as(following), logits.argmax(-1) == following

    return losses


def train_step(
    losses: BatchLoss,
    optimizers: list[torch.optim.Optimizer],
    batch: Batch,
    rate_factor: float,
    device: torch.device,
    team: Team,
) -> StepFigures:
    """One forward, backward and update at `rate_factor` times the peak learning rates.

    loss = sum(text and repeat losses) / tokens in the batch + answer_weight * mean(answer losses),
    so that a batch with little code does not weigh that code more. Each worker takes its share of
    the rows; the figures are of this worker's share.
    """
    answer_count = int((batch.targets == ANSWER).sum())
    tokens = batch.tokens[team.rank :: team.size].to(device)
    targets = batch.targets[team.rank :: team.size].to(device)
    with torch.autocast(device.type, torch.bfloat16):
        each, is_likeliest = losses(tokens[:, :-1], tokens[:, 1:])
    answers = each[targets == ANSWER]
    text = each[(targets == TEXT) | (targets == REPEATED)]
    loss = text.sum() / batch.targets.numel()
    loss = loss + batch.answer_weight * answers.sum() / max(1, answer_count)
    loss.backward()  # type: ignore[no-untyped-call]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            team.sum_gradients(group["params"])
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak_rate"] * rate_factor
        optimizer.step()
        optimizer.zero_grad()
    each = each.detach()
    return StepFigures(
        text_loss=each[targets == TEXT].mean().item(),
        answer_loss=each[targets == ANSWER].mean().item(),
        answer_accuracy=is_likeliest[targets == ANSWER].float().mean().item(),
        repeat_loss=each[targets == REPEATED].mean().item(),
    )
