"""Who answers in the benchmark of the shipped pair, and what their answers sum to."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.bench.fleet_answers import Measured
from scripts.bench.intervals import summary

REMOTE, IN_PROCESS, ALONE = "remote", "in_process", "alone"
TRANSFORMERS, TRANSFORMERS_STATIC = "transformers", "transformers_static"
LIBRARY_CACHES = {TRANSFORMERS: "dynamic", TRANSFORMERS_STATIC: "static"}
"""transformers' sides, by the library's names of their caches."""
FULL = "full"


@dataclass(frozen=True, slots=True)
class Side:
    """Who answers, and how the K/V are kept: `full`, `sink_window` or `restored:RESTORER`.

    `proposer` is empty for the pair's own.
    """

    place: str
    kv: str
    proposer: str = ""

    @property
    def name(self) -> str:
        """As the report calls it."""
        if self.place in LIBRARY_CACHES:
            return self.place
        return " ".join(word for word in (self.place, self.kv, self.proposer) if word)

    @property
    def plain(self) -> bool:
        """Whether nothing is drafted."""
        return self.place == ALONE or self.place in LIBRARY_CACHES

    def session_options(self, sink: int, window: int) -> dict[str, object]:
        """Arguments of `create_session`."""
        strategy, _, restorer = self.kv.partition(":")
        options: dict[str, object] = {"kv_strategy": strategy}
        if strategy != FULL:
            options |= {"sink_tokens": sink, "window_tokens": window}
        return options | ({"restorer": restorer} if restorer else {})


def sides(kv_kinds: Sequence[str], beside: Sequence[str] = ()) -> list[Side]:
    """All that answer; the proposers `beside` the pair's own draft with the first K/V only."""
    found = [Side(place, kv) for kv in kv_kinds for place in (REMOTE, IN_PROCESS, ALONE)]
    found += [
        Side(place, kv_kinds[0], proposer) for proposer in beside for place in (REMOTE, IN_PROCESS)
    ]
    return [*found, Side(ALONE, FULL), *(Side(place, FULL) for place in LIBRARY_CACHES)]


@dataclass(slots=True)
class Cell:
    """One kind of prompts, greedy or sampled: every side's answers in the same order.

    `prompts` numbers the prompt of each answer of a side, `repeated` gives by K/V the share of
    each prompt's answer that repeats.
    """

    measured: dict[Side, Measured] = field(default_factory=dict)
    prompts: list[int] = field(default_factory=list)
    repeated: dict[str, list[float]] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """For JSON: figures by side, and ratios of drafting sides to the fastest plain one."""
        plain = fastest_plain(self.measured)
        ratios = {}
        for side, figures in self.measured.items():
            if side.plain:
                continue
            alone = self.measured[Side(ALONE, side.kv)]
            ratios[side.name] = {
                "over_fastest_plain": summary(self._ratios(figures, self.measured[plain])),
                "over_alone_with_the_same_kv": summary(self._ratios(figures, alone)),
            }
        return {
            "sides": {side.name: figures.summary() for side, figures in self.measured.items()},
            "fastest_plain": plain.name,
            "ratios": ratios,
            "repeated_share": {kv: summary(shares) for kv, shares in self.repeated.items()},
        }

    def _ratios(self, one: Measured, other: Measured) -> list[float]:
        """By prompt, the median over its rounds: answers to one prompt are no two cases."""
        found: dict[int, list[float]] = {}
        pairs = zip(one.tokens_per_second, other.tokens_per_second, strict=True)
        for prompt, (mine, theirs) in zip(self.prompts, pairs, strict=True):
            found.setdefault(prompt, []).append(mine / theirs)
        return [statistics.median(values) for values in found.values()]


def fastest_plain(measured: Mapping[Side, Measured]) -> Side:
    """The plain side with the most tokens a second in the middle of its answers."""

    def speed(side: Side) -> float:
        ordered = sorted(measured[side].tokens_per_second)
        return ordered[len(ordered) // 2]

    return max((side for side in measured if side.plain), key=speed)


def repeated_share(prompt: Sequence[int], answer: Sequence[int], gram: int = 8) -> float:
    """The share of the answer's tokens that end `gram` tokens which were there before.

    Prompt lookup drafts such tokens for nothing. Raises `ValueError` for an empty answer.
    """
    if not answer:
        raise ValueError("an empty answer repeats nothing")
    tokens = [*prompt, *answer]
    grams = [tuple(tokens[end - gram : end]) for end in range(gram, len(tokens) + 1)]
    seen: set[tuple[int, ...]] = set()
    repeats = 0
    for end, found in enumerate(grams, gram):
        repeats += found in seen and end > len(prompt)
        seen.add(found)
    return repeats / len(answer)
