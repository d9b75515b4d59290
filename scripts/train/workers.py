"""Worker processes that share each step's rows and add up their gradients.

On a machine that others use too, threads lose time at every barrier of every kernel, whenever one
of them is not scheduled. Processes of one thread each meet once a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import distributed, multiprocessing


@dataclass(frozen=True)
class Team:
    """One worker's place among the workers of a run."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this worker logs and writes the checkpoints."""
        return self.rank == 0

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace each gradient by its sum over the workers, the same bits in all of them."""
        if self.size == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        offset = 0
        for gradient in gradients:
            gradient.copy_(flat[offset : offset + gradient.numel()].view_as(gradient))
            offset += gradient.numel()


def run_team(
    size: int, work: Path, task: Callable[[Team, list[str]], None], arguments: list[str]
) -> None:
    """Run `task(team, arguments)` in `size` processes, in this one where `size` is 1.

    `task` must be importable by name. A failure in one worker ends them all.
    """
    if size == 1:
        task(Team(), arguments)
        return
    meeting = (work / "rendezvous").resolve()
    meeting.unlink(missing_ok=True)
    multiprocessing.spawn(  # type: ignore[attr-defined, no-untyped-call]
        _join, args=(size, meeting, task, arguments), nprocs=size
    )


def _join(
    rank: int,
    size: int,
    meeting: Path,
    task: Callable[[Team, list[str]], None],
    arguments: list[str],
) -> None:
    distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size
    )
    try:
        task(Team(rank, size), arguments)
    finally:
        distributed.destroy_process_group()
