"""Where the time of the torch back end's single-token steps goes, by hooks on its modules."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from scripts.bench.decode_timer import StepTimer, Ticking

PARTS = ("linears", "head", "attention", "norms", "rest")
"""`attention`: scores, softmax and values, with RoPE and the cache's writes; its four linear
layers count as `linears`. `rest`: activations, sums, embeddings, choosing the token."""


def part_of(module: str, parent: str | None) -> str:
    """The part that a module's own time counts as, by its class and that of its caller.

    A linear layer that no other layer calls is the head.
    """
    if "Linear" in module:
        outside = parent is None or parent.endswith("ForCausalLM")
        return "head" if outside else "linears"
    if "Norm" in module:
        return "norms"
    return "attention" if module.endswith("Attention") else "rest"


@dataclass(slots=True)
class ModuleClock:
    """Seconds of modules' own time, without that of the modules they call, by part."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    _open: list[tuple[str, float, float]] = field(default_factory=list)

    def enter(self, module: str, now: float) -> None:
        """A module begins."""
        self._open.append((module, now, 0.0))

    def leave(self, now: float) -> None:
        """The latest module that began ends."""
        module, began, inner = self._open.pop()
        parent = None
        if self._open:
            parent, parent_began, parent_inner = self._open.pop()
            self._open.append((parent, parent_began, parent_inner + now - began))
        self.seconds[part_of(module, parent)] += now - began - inner

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listens to every module of this process."""

        def before(module: nn.Module, _inputs: object) -> None:
            self.enter(type(module).__name__, time.perf_counter())

        def after(_module: nn.Module, _inputs: object, _output: object) -> None:
            self.leave(time.perf_counter())

        handles = (register_module_forward_pre_hook(before), register_module_forward_hook(after))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def split(steps: list[dict[str, float]], totals: list[float]) -> dict[str, float]:
    """Median seconds a step of each part and of the whole; what no module took is `rest`."""
    parts = {part: statistics.median(step[part] for step in steps) for part in PARTS}
    total = statistics.median(totals)
    parts["rest"] = total - sum(seconds for part, seconds in parts.items() if part != "rest")
    return {"step": total, **parts}


class SplitTimer:
    """As `decode_timer.StepTimer`, and splits each counted step into `PARTS`."""

    def __init__(self, timer: StepTimer, clock: ModuleClock) -> None:
        self._timer = timer
        self._clock = clock
        self._seen = dict(clock.seconds)
        self._steps: list[dict[str, float]] = []

    @property
    def most_steps(self) -> int:
        """See `StepTimer`."""
        return self._timer.most_steps

    def tick(self) -> bool:
        """See `StepTimer`."""
        now = dict(self._clock.seconds)
        self._steps.append({part: now[part] - self._seen[part] for part in PARTS})
        self._seen = now
        return self._timer.tick()

    def split(self) -> dict[str, float]:
        """Median seconds of a counted step and of its parts."""
        return split(self._steps[-len(self._timer.seconds) :], self._timer.seconds)


def time_split(
    decode: Callable[[Ticking], None], *, new_tokens: int, limit_seconds: float
) -> dict[str, float]:
    """Median seconds of a step of `decode` and of its parts, hooks and all."""
    clock = ModuleClock()
    timer = SplitTimer(StepTimer(new_tokens, limit_seconds, time.perf_counter), clock)
    with clock.listening():
        decode(timer)
    return timer.split()
