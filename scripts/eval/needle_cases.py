"""Needle cases through a verifier's caches: was the fact recalled, and how far off were the logits.

Only the greedy choice counts, and only if it is the answer exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kakeya_fleet.engine.contracts.verifier import Logits, Verifier
from scripts.bench.kv_strategies import Caches, Strategy
from scripts.eval.recall_measure import wilson_interval
from scripts.eval.recall_task import RecallCase
from scripts.eval.restoration_error import LogitGap, logit_gap
from scripts.eval.teacher_forced import logits_of, read

LAST_POSITIONS = 16
"""Positions at the end of each prompt on which logits are compared; one forward."""


@dataclass(frozen=True, slots=True)
class Score:
    """One case under one strategy; `gap` is None for full attention itself."""

    hit: bool
    evicted: bool
    gap: LogitGap | None


@dataclass(slots=True)
class Tally:
    """All cases of one strategy at one context."""

    scores: list[Score] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Counts with the Wilson 95 % interval, and the mean gap, for JSON."""
        hits = sum(score.hit for score in self.scores)
        evicted = [score for score in self.scores if score.evicted]
        gaps = [score.gap for score in self.scores if score.gap is not None]
        return {
            "cases": len(self.scores),
            "hits": hits,
            "recall": hits / len(self.scores),
            "wilson_95": list(wilson_interval(hits, len(self.scores))),
            "fact_evicted": {
                "cases": len(evicted),
                "share": len(evicted) / len(self.scores),
                "hits": sum(score.hit for score in evicted),
            },
            "kl_nats_mean": float(np.mean([gap.kl for gap in gaps])) if gaps else 0.0,
            "argmax_agreement": float(np.mean([gap.agreement for gap in gaps])) if gaps else 1.0,
        }


def last_logits(verifier: Verifier, caches: Caches, strategy: Strategy, case: RecallCase) -> Logits:
    """What the strategy says behind the last positions of a prompt, [n, vocabulary_size]."""
    with caches.opened(strategy, case.prompt.size) as cache:
        read(verifier, cache, case.prompt[:-LAST_POSITIONS])
        return logits_of(verifier, cache, case.prompt[-LAST_POSITIONS:])


def is_evicted(case: RecallCase, line_tokens: int, sink: int, window: int) -> bool:
    """Whether the last query of the prompt sees the asked value through neither sink nor window.

    A fact's line has `line_tokens`, the value last.
    """
    value = case.fact_start + line_tokens - 1
    return sink <= value <= case.prompt.size - 1 - window


def score_case(
    verifier: Verifier,
    caches: Caches,
    strategies: Sequence[Strategy],
    case: RecallCase,
    line_tokens: int,
) -> Mapping[str, Score]:
    """One case under every strategy, the first of which is full attention."""
    evicted = is_evicted(case, line_tokens, caches.sink, caches.window)
    full: Logits | None = None
    scores = {}
    for strategy in strategies:
        logits = last_logits(verifier, caches, strategy, case)
        gap = None if full is None else logit_gap(full, logits)
        full = logits if full is None else full
        hit = int(logits[-1].argmax()) == int(case.answer[0])
        scores[strategy.name] = Score(hit, evicted, gap)
    return scores
