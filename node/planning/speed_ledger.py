"""How many times as fast as alone this node's sessions were with each proposer."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from kakeya_fleet.engine.contracts.draft import ProposerKey
from kakeya_fleet.engine.speculation.generation_report import BlockTiming

HALF_LIFE_TOKENS = 512.0
"""Tokens after which what was measured before has half the weight: some answers."""
LEAST_TOKENS = 64.0
"""With a proposer, and alone, before anything is said."""
KEPT_SECONDS = 900.0
"""Who made nothing for this long is unknown again, as its acceptance is."""
MOST_KEPT = 64
"""Pairs, and sessions with a block whose end is not known yet."""

Gains = dict[tuple[str, ProposerKey], float]
"""By verifier model and proposer: above 1 for one that is faster than alone."""


@dataclass(slots=True)
class _Spent:
    tokens: float = 0.0
    seconds: float = 0.0
    at: float = 0.0


class SpeedLedger:
    """Seconds a token from block to block: all that a block costs, as it was, is in it.

    A prediction adds up costs that were measured one by one; what it leaves out, as processors
    that both sides share, texts that are guessed in whole blocks or not at all, is in these.
    Times are the caller's monotonic seconds.
    """

    def __init__(self) -> None:
        self._spent: OrderedDict[tuple[str, ProposerKey | None], _Spent] = OrderedDict()
        self._open: OrderedDict[str, tuple[str, BlockTiming]] = OrderedDict()

    def record(self, session_id: str, verifier: str, block: BlockTiming, now: float) -> None:
        """Adds the session's block before this one, which has ended where this one began."""
        known = self._open.pop(session_id, None)
        self._open[session_id] = (verifier, block)
        if len(self._open) > MOST_KEPT:
            self._open.popitem(last=False)
        if known is None:
            return
        of, before = known
        seconds = block.start_seconds - before.start_seconds
        # Between two generations there is no telling.
        if of != verifier or block.first_index <= before.first_index or seconds <= 0.0:
            return
        spent = self._spent.setdefault((verifier, before.proposer), _Spent())
        kept = 0.5 ** (before.committed_count / HALF_LIFE_TOKENS)
        spent.tokens = spent.tokens * kept + before.committed_count
        spent.seconds = spent.seconds * kept + seconds
        spent.at = now
        self._spent.move_to_end((verifier, before.proposer))
        if len(self._spent) > MOST_KEPT:
            self._spent.popitem(last=False)

    def gains(self, now: float) -> Gains:
        """What is known of each proposer that drafted of late."""
        while self._spent and now - next(iter(self._spent.values())).at >= KEPT_SECONDS:
            self._spent.popitem(last=False)
        paces = {
            pair: spent.seconds / spent.tokens
            for pair, spent in self._spent.items()
            if spent.tokens >= LEAST_TOKENS
        }
        return {
            (verifier, proposer): paces[verifier, None] / pace
            for (verifier, proposer), pace in paces.items()
            if proposer is not None and (verifier, None) in paces
        }
