"""What fits beside a model's weights: each way of keeping keys and values, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from kakeya_fleet.fleet.placement.plan import KvStrategy
from kakeya_fleet.fleet.quantities import bytes_text

LOSSLESS = "lossless"


@dataclass(frozen=True, slots=True)
class MemoryOnPaper:
    """Memory in bytes: all that is free, of that the weights, and the most while they are read.

    A forward computes in `working_bytes`, and the check at a first load takes `checking_bytes` more
    for its time. `budget_bytes` are those that a node gives to all
    sessions' keys and values if nothing is said.
    """

    memory_bytes: int
    weight_bytes: int
    loading_bytes: int
    budget_bytes: int
    working_bytes: int = 0
    checking_bytes: int = 0

    @property
    def needed_bytes(self) -> int:
        """Bytes without which the model cannot be loaded and checked, or compute."""
        checked = self.weight_bytes + self.working_bytes + self.checking_bytes
        return max(checked, self.loading_bytes)

    @property
    def loads(self) -> bool:
        """Whether the model can be loaded, and compute."""
        return self.needed_bytes <= self.memory_bytes

    @property
    def room_bytes(self) -> int:
        """Bytes for keys and values; 0 for a model that cannot be loaded."""
        return self.memory_bytes - self.weight_bytes - self.working_bytes if self.loads else 0


@dataclass(frozen=True, slots=True)
class Way:
    """One way of keeping keys and values.

    Of the asked tokens `resident_bytes` are in the verifier's memory, and `archive_bytes` in
    another's. `longest_tokens` are those of the longest history for which the verifier's memory
    suffices, 0 for none. A number takes `bits` behind the window, and packing has moved the
    choices' distributions by `divergence_nats` where that was measured. `problem` says why the
    model's keys and values cannot be kept so; all else is 0 then.
    """

    strategy: KvStrategy
    quality: str
    resident_bytes: int = 0
    archive_bytes: int = 0
    longest_tokens: int = 0
    bits: float = 0.0
    divergence_nats: float = 0.0
    problem: str = ""

    @property
    def sees_all(self) -> bool:
        """Whether every query attends to all of the history."""
        return self.strategy is not KvStrategy.SINK_WINDOW

    @property
    def name(self) -> str:
        """Such as `full`, `full, packed economy`."""
        packed = "" if self.quality == LOSSLESS else f", packed {self.quality}"
        return f"{self.strategy.value}{packed}"


class Fits(StrEnum):
    """Whether a way's bytes fit."""

    YES = "yes"
    WITH_BUDGET = "with_budget"
    """Beside the weights, but not in the node's own choice of a budget."""
    NO = "no"
    IMPOSSIBLE = "impossible"
    """The model's keys and values cannot be kept so."""


@dataclass(frozen=True, slots=True)
class FitQuestion:
    """A model, the memory, and the ways, each of so many `tokens`.

    `asked_tokens` are those that were asked for, more than `tokens` where the model has not so
    many positions. `other_weights` are the bytes of the same model by other `--weights`.
    """

    model: str
    asked_tokens: int
    tokens: int
    memory: MemoryOnPaper
    ways: tuple[Way, ...]
    others: Mapping[str, MemoryOnPaper] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether all of the asked tokens fit so that every query sees them, and what to do.

    The first of the `sentences` answers; the others say what must be known or done besides.
    """

    fits: bool
    sentences: tuple[str, ...]


def fits(way: Way, memory: MemoryOnPaper) -> Fits:
    """Whether the bytes of `way` fit."""
    if way.problem:
        return Fits.IMPOSSIBLE
    if not memory.loads or way.resident_bytes > memory.room_bytes:
        return Fits.NO
    return Fits.YES if way.resident_bytes <= memory.budget_bytes else Fits.WITH_BUDGET


def with_archives(way: Way, free_bytes: int) -> Way:
    """`way`, which cannot be where archives have `free_bytes` and it needs more."""
    if way.archive_bytes <= free_bytes:
        return way
    free = f"have {bytes_text(free_bytes)} free" if free_bytes else "have no room"
    return Way(
        way.strategy,
        way.quality,
        problem=f"the archives of other machines {free}, and {bytes_text(way.archive_bytes)} are"
        " needed",
    )


def verdict(question: FitQuestion) -> Verdict:
    """The answer: the first way that fits and sees all, of ways in the order of preference."""
    beyond = _beyond(question)
    if not question.memory.loads:
        sentences = (_unloadable(question), *beyond, *filter(None, (_loadable(question),)))
        return Verdict(fits=False, sentences=sentences)
    chosen = next((way for way in question.ways if way.sees_all and _holds(way, question)), None)
    if chosen is None:
        sentences = (_refusal(question), *beyond, *_mends(question))
        return Verdict(fits=False, sentences=sentences)
    sentences = (*beyond, _acceptance(question, chosen), *_budget(chosen, question.memory))
    if chosen.strategy is not KvStrategy.FULL:
        sentences += _without_archive(question)
    return Verdict(fits=not beyond, sentences=sentences)


def _acceptance(question: FitQuestion, chosen: Way) -> str:
    sentence = (
        f"{question.tokens:,} tokens fit: {chosen.name},"
        f" {bytes_text(chosen.resident_bytes)} of K/V beside"
        f" {bytes_text(question.memory.weight_bytes)} of weights"
    )
    if chosen.archive_bytes:
        sentence += f", and {bytes_text(chosen.archive_bytes)} in an archive elsewhere"
    return f"{sentence}."


def _holds(way: Way, question: FitQuestion) -> bool:
    return fits(way, question.memory) in (Fits.YES, Fits.WITH_BUDGET)


def _beyond(question: FitQuestion) -> tuple[str, ...]:
    if question.asked_tokens <= question.tokens:
        return ()
    return (
        f"{question.asked_tokens:,} tokens are beyond the {question.tokens:,} positions of"
        f" {question.model}: no session of it is longer.",
    )


def _unloadable(question: FitQuestion) -> str:
    memory = question.memory
    return (
        f"Nothing fits: {question.model} takes {bytes_text(memory.needed_bytes)} at once, of which"
        f" its weights keep {bytes_text(memory.weight_bytes)}, and"
        f" {bytes_text(memory.memory_bytes)} are there; take a smaller model or more memory."
    )


def _loadable(question: FitQuestion) -> str:
    """The largest of the weights that can be loaded; empty for none."""
    for name, memory in _by_size(question):
        if memory.loads:
            return (
                f"Smaller weights: with --weights {name} it loads,"
                f" {bytes_text(memory.weight_bytes)}, and {bytes_text(memory.room_bytes)} are left"
                " for keys and values."
            )
    return ""


def _by_size(question: FitQuestion) -> list[tuple[str, MemoryOnPaper]]:
    """Smaller weights than those that are asked about, the largest first."""
    own = question.memory.weight_bytes
    smaller = [each for each in question.others.items() if each[1].weight_bytes < own]
    return sorted(smaller, key=lambda each: -each[1].weight_bytes)


def _refusal(question: FitQuestion) -> str:
    memory = question.memory
    possible = [way for way in question.ways if way.sees_all and not way.problem]
    least = min(possible, key=lambda way: way.resident_bytes)
    return (
        f"{question.tokens:,} tokens do not fit: the least is {bytes_text(least.resident_bytes)}"
        f" of K/V ({least.name}), and beside {bytes_text(memory.weight_bytes)} of weights"
        f" {bytes_text(memory.room_bytes)} are left."
    )


def _mends(question: FitQuestion) -> tuple[str, ...]:
    """What would make them fit."""
    ways = [way for way in question.ways if way.sees_all and not way.problem]
    window = [way for way in question.ways if not way.sees_all and _holds(way, question)]
    found = [_fewer_tokens(ways), _smaller_weights(question, ways)]
    if window:
        found.append(
            f"A window: {window[0].name} takes {bytes_text(window[0].resident_bytes)} whatever"
            " the length, and forgets what leaves it."
        )
    return tuple(filter(None, found))


def _without_archive(question: FitQuestion) -> tuple[str, ...]:
    """What would make them fit into the verifier's own memory."""
    ways = [way for way in question.ways if way.strategy is KvStrategy.FULL and not way.problem]
    found = filter(None, (_fewer_tokens(ways), _smaller_weights(question, ways)))
    return tuple(f"Without an archive: {each[0].lower()}{each[1:]}" for each in found)


def _fewer_tokens(ways: Sequence[Way]) -> str:
    """The longest history of one of `ways`; empty where not a token fits."""
    longest = max(ways, key=lambda way: way.longest_tokens)
    if not longest.longest_tokens:
        return ""
    return f"Fewer tokens: {longest.longest_tokens:,} fit, {longest.name}."


def _smaller_weights(question: FitQuestion, ways: Sequence[Way]) -> str:
    """The largest of the other weights beside which one of `ways` fits; empty for none."""
    for name, memory in _by_size(question):
        way = next((way for way in ways if way.resident_bytes <= memory.room_bytes), None)
        if memory.loads and way is not None:
            return (
                f"Smaller weights: with --weights {name}, {bytes_text(memory.weight_bytes)}, they"
                f" fit, {way.name}."
            )
    return ""


def _budget(chosen: Way, memory: MemoryOnPaper) -> tuple[str, ...]:
    if fits(chosen, memory) is not Fits.WITH_BUDGET:
        return ()
    return (
        f"A node gives {bytes_text(memory.budget_bytes)} of such memory to keys and values by"
        f" itself: start it with --kv-budget-bytes {chosen.resident_bytes}, or more for further"
        " sessions.",
    )
