"""How long drafts of each proposer took to come, as this node's own sessions saw it."""

from __future__ import annotations

import statistics
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from kakeya_fleet.engine.contracts.draft import MAX_BLOCK_SIZE, ProposerKey
from kakeya_fleet.fleet.cards.card import StepCost

DRAFTS_KEPT = 16
"""The latest of each size: their median forgets a busy minute within some blocks."""
LEAST_DRAFTS = 4
"""Of a size before it says something: the first of a stream waits until the stream is open."""
MOST_PROPOSERS = 32
"""Those that drafted last: what a plan compares with each claim, some milliseconds for all."""
KEPT_SECONDS = 900.0
"""A proposer that drafted nothing for this long is unknown again, as its acceptance is."""


@dataclass(slots=True)
class _Drafts:
    """Seconds of the latest drafts by drafted tokens, of those that a model made if any."""

    made: bool = False
    seconds: dict[int, deque[float]] = field(default_factory=dict)
    drafted_at: float = 0.0


class DraftTimeLedger:
    """From asking to the answer, the way included: no word of the proposer's own is in it.

    At most `MOST_PROPOSERS` * 64 sizes * `DRAFTS_KEPT` numbers. Times are the caller's
    monotonic seconds.
    """

    def __init__(self) -> None:
        self._drafts: OrderedDict[ProposerKey, _Drafts] = OrderedDict()

    def record(
        self,
        proposer: ProposerKey,
        *,
        drafted_count: int,
        seconds: float,
        now: float,
        found: bool = False,
    ) -> None:
        """Adds a draft that came; one of no token says nothing of what tokens cost.

        One that was `found` in the text says nothing of what those cost that a model makes.
        """
        if not 0 < drafted_count <= MAX_BLOCK_SIZE:
            return
        drafts = self._drafts.setdefault(proposer, _Drafts())
        if not found and not drafts.made:
            drafts.made = True
            drafts.seconds.clear()
        elif found and drafts.made:
            return
        drafts.seconds.setdefault(drafted_count, deque(maxlen=DRAFTS_KEPT)).append(seconds)
        drafts.drafted_at = now
        self._drafts.move_to_end(proposer)
        if len(self._drafts) > MOST_PROPOSERS:
            self._drafts.popitem(last=False)

    def costs(self, now: float) -> dict[ProposerKey, tuple[StepCost, ...]]:
        """Median seconds by drafted tokens, rising; nothing of whom too little was seen."""
        while self._drafts and now - next(iter(self._drafts.values())).drafted_at >= KEPT_SECONDS:
            self._drafts.popitem(last=False)
        found = {proposer: _medians(drafts) for proposer, drafts in self._drafts.items()}
        return {proposer: costs for proposer, costs in found.items() if costs}


def _medians(drafts: _Drafts) -> tuple[StepCost, ...]:
    return tuple(
        StepCost(count, statistics.median(seconds))
        for count, seconds in sorted(drafts.seconds.items())
        if len(seconds) >= LEAST_DRAFTS
    )
