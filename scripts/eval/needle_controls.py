"""What recall of one fact does not show: whether the key is read, or the only fact copied.

Two controls, through the same caches: a key is asked for that is nowhere in the prompt, so that
the value of the one fact there is a copy and no recall; and several facts lie in the prompt, of
which a model that finds facts and does not tell their keys apart answers one of so many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kakeya_fleet.engine.contracts.verifier import Verifier
from scripts.bench.kv_strategies import Caches, Strategy
from scripts.eval.needle_cases import Tally, score_case
from scripts.eval.recall_task import RecallCase, RecallFormat, absent_case, recall_case

ABSENT = "absent key"
FACT_COUNTS = (2, 4)
NOTES = {
    ABSENT: "one fact, and another key is asked for: `hits` are answers that copy the fact's value",
    "several facts": "one of them is asked for; `chance` is what finding facts without telling "
    "their keys apart gives",
}


@dataclass(frozen=True, slots=True)
class Control:
    """One sort of case: the facts of a prompt, and whether the asked one is among them."""

    context_tokens: int
    facts: int
    asked_is_there: bool

    @property
    def name(self) -> str:
        """As the report calls it."""
        return f"{self.facts} facts" if self.asked_is_there else ABSENT

    @property
    def chance(self) -> float:
        """The share of hits of a model that copies any fact's value."""
        return 1.0 / self.facts

    def cases(
        self, form: RecallFormat, code: np.ndarray, seed: int, count: int
    ) -> list[RecallCase]:
        """The first `count`; a longer list begins with the shorter one."""
        rng = np.random.Generator(
            np.random.Philox(key=[seed, 10 * self.context_tokens + self.facts])
        )
        if self.asked_is_there:
            return [
                recall_case(rng, form, code, self.context_tokens, self.facts) for _ in range(count)
            ]
        return [absent_case(rng, form, code, self.context_tokens) for _ in range(count)]


def controls(contexts: Sequence[int]) -> Iterator[Control]:
    """All of them, context by context."""
    for context in contexts:
        yield Control(context, 1, asked_is_there=False)
        yield from (Control(context, facts, asked_is_there=True) for facts in FACT_COUNTS)


def control_figures(
    control: Control,
    cases: Sequence[RecallCase],
    *,
    verifier: Verifier,
    caches: Caches,
    strategies: Sequence[Strategy],
    line_tokens: int,
) -> dict[str, Any]:
    """Hits of every strategy, for JSON; the first strategy is full attention."""
    tallies: dict[str, Tally] = {}
    for case in cases:
        scores: Mapping[str, Any] = score_case(verifier, caches, strategies, case, line_tokens)
        for name, score in scores.items():
            tallies.setdefault(name, Tally()).scores.append(score)
    return {
        "control": control.name,
        "context_tokens": control.context_tokens,
        "facts": control.facts,
        "chance": control.chance,
        "strategies": {name: tally.summary() for name, tally in tallies.items()},
    }
