"""Checkpoints of a run: everything needed to go on as if it had never stopped."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

CHECKPOINT_NAME = "checkpoint.pt"


@dataclass
class Progress:
    """How far a run has come, and what it was told to do."""

    preset: str
    seed: int
    corpus_sha256: str
    planned_steps: int = 0
    """Steps that the run ends at."""
    workers: int = 0
    """Processes that shared the rows, when last started."""
    threads: int = 0
    """Threads of each worker, when last started."""
    step: int = 0
    """Optimizer steps done."""
    tokens: int = 0
    """Tokens trained on."""
    wall_seconds: float = 0.0
    """Seconds spent in training, over all the process's lives."""
    figures: dict[str, float] = field(default_factory=dict)
    """The latest averages of the training log."""
    resumes: list[dict[str, Any]] = field(default_factory=list)
    """One entry per resumption: at which step, and what was asked for from there on."""

    def begin(self, planned_steps: int, workers: int, threads: int) -> None:
        """Note that training starts or goes on now, towards `planned_steps`."""
        self.planned_steps, self.workers, self.threads = planned_steps, workers, threads
        if self.step:
            asked = {"planned_steps": planned_steps, "workers": workers, "threads": threads}
            self.resumes.append({"step": self.step, **asked})

    def require_same_run(self, other: Progress) -> None:
        """Refuse to continue a run of another preset, seed or text.

        Raises:
            ValueError: one of them differs.
        """
        for name in ("preset", "seed", "corpus_sha256"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                message = f"the checkpoint's {name} is {mine!r}, this run's is {theirs!r}"
                raise ValueError(message)


def save_checkpoint(
    work: Path,
    model: nn.Module,
    optimizers: list[torch.optim.Optimizer],
    progress: Progress,
) -> None:
    """Write the checkpoint into `work` whole or not at all."""
    partial = work / f"{CHECKPOINT_NAME}.partial"
    state = {
        "model": model.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "progress": vars(progress),
    }
    torch.save(state, partial)
    os.replace(partial, work / CHECKPOINT_NAME)


def load_checkpoint(
    work: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer]
) -> Progress | None:
    """Restore `model` and `optimizers` from `work`; None where it holds no checkpoint.

    The optimizers keep their own peak learning rates.
    """
    path = work / CHECKPOINT_NAME
    if not path.exists():
        return None
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        peaks = [group["peak_rate"] for group in optimizer.param_groups]
        optimizer.load_state_dict(saved)
        for group, peak in zip(optimizer.param_groups, peaks, strict=True):
            group["peak_rate"] = peak
    return Progress(**state["progress"])
