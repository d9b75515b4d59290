"""Which node of a fleet a model is loaded on where nobody names one, and why not the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kakeya_fleet.fleet.errors import NoPlacement
from kakeya_fleet.fleet.placement.candidates import listed
from kakeya_fleet.fleet.placement.fit import MemoryOnPaper
from kakeya_fleet.fleet.quantities import bytes_text

AS_FAST = 1.25
"""Times as long as the fastest one's steps that count as equal: less decides nothing that people
feel, and steps that were measured once differ by as much."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that could be asked to load the model.

    `problem` says why it cannot, as the end of a sentence, and is empty for one that can. `memory`
    is its machine's with the model, None where nobody knows. `step_seconds`, above 0, are its steps
    of one token by the verifiers that it serves, which are named alike on every node that serves
    the same numbers. One that `is_near` runs on the machine of whoever asks.
    """

    node_id: str
    name: str
    problem: str = ""
    memory: MemoryOnPaper | None = None
    is_accelerated: bool = False
    is_near: bool = False
    step_seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def hindrance(self) -> str:
        """Why it cannot load the model, as the end of a sentence; empty where it can."""
        if self.problem or self.memory is None or self.memory.loads:
            return self.problem
        needed, there = self.memory.needed_bytes, self.memory.memory_bytes
        return f"the model takes {bytes_text(needed)}, {bytes_text(there)} are free"

    @property
    def room_bytes(self) -> int:
        """What is left beside the weights; 0 where nobody knows."""
        return 0 if self.memory is None else self.memory.room_bytes


@dataclass(frozen=True, slots=True)
class Home:
    """The node that is chosen, what speaks for it, and of each other one what speaks against it."""

    chosen: Candidate
    reason: str
    against: tuple[tuple[str, str], ...]
    """(name, why not), in the order of the candidates."""

    @property
    def sentence(self) -> str:
        """`mini-2: 11.2 GiB are left beside the weights; not mini-1: 3.1 GiB are left there`."""
        others = listed((f"not {name}: {why}" for name, why in self.against), "; ")
        told = f"{self.chosen.name}: {self.reason}"
        return f"{told}; {others}" if others else told


def model_home(model: str, candidates: Sequence[Candidate]) -> Home:
    """Where the model of that name is loaded.

    Of the nodes that can: those as fast as the fastest, by a model that all of them serve; else
    those with an accelerator; then that with the most room beside the weights, and the one that is
    near. Raises `NoPlacement`, with the reasons, where none can.
    """
    able = [each for each in candidates if not each.hindrance]
    if not able:
        told = listed((f"{each.name}: {each.hindrance}" for each in candidates), "; ")
        raise NoPlacement(
            f"no node of the fleet can load {model}: {told or 'none is alive'}", model_id=model
        )
    pace = _pace(able)
    chosen = min(able, key=lambda each: _rank(each, pace))
    against = tuple(
        (each.name, each.hindrance or _worse(each, chosen, pace))
        for each in candidates
        if each is not chosen
    )
    return Home(chosen, _reason(chosen, able, pace), against)


@dataclass(frozen=True, slots=True)
class _Pace:
    """The fastest node's step of a model that all of them serve; no model where there is none."""

    model: str = ""
    fastest: float = 0.0

    def ratio(self, each: Candidate) -> float:
        """How many times as long its step is; 1 where nothing can be compared."""
        return each.step_seconds[self.model] / self.fastest if self.model else 1.0


def _pace(able: Sequence[Candidate]) -> _Pace:
    """By the model whose steps take longest: they tell most of what a node can do."""
    shared = set.intersection(*(set(each.step_seconds) for each in able))
    paces = [_Pace(model, min(each.step_seconds[model] for each in able)) for model in shared]
    return max(paces, key=lambda pace: (pace.fastest, pace.model), default=_Pace())


def _rank(each: Candidate, pace: _Pace) -> tuple[object, ...]:
    """The smallest is chosen."""
    is_slower = pace.ratio(each) > AS_FAST if pace.model else not each.is_accelerated
    return is_slower, -each.room_bytes, not each.is_near, each.name, each.node_id


def _reason(chosen: Candidate, able: Sequence[Candidate], pace: _Pace) -> str:
    if len(able) == 1:
        return "the only node that can load it"
    room = f"{bytes_text(chosen.room_bytes)} are left beside the weights"
    if pace.model:
        return f"as fast as any, by {pace.model}, and {room}"
    return f"it has an accelerator, and {room}" if chosen.is_accelerated else room


def _worse(each: Candidate, chosen: Candidate, pace: _Pace) -> str:
    """Why one that could load it was not chosen."""
    if pace.model:
        if pace.ratio(each) > AS_FAST:
            return f"a step takes {pace.ratio(each):.1f} times as long as the fastest one's"
    elif chosen.is_accelerated and not each.is_accelerated:
        return "it has no accelerator"
    if each.room_bytes < chosen.room_bytes:
        return f"{bytes_text(each.room_bytes)} are left there"
    return "as good, and farther" if chosen.is_near and not each.is_near else "as good"
