"""How often the drafted tokens at each place of a block are accepted.

A diffusion drafter guesses all tokens of a block at once, so that those far behind
the last certain one are right less often. With r(i) the share of blocks accepted up
to place i - 1 whose place i is accepted too, a block of B tokens commits
    E(B) = 1 + r(1) + r(1) r(2) + ... + r(1) ... r(B)
tokens on average. Places between two counts of rows that a forward can have share one r.
"""

from __future__ import annotations

from dataclasses import dataclass

# The last place of each group but the endless last one: 4, 8 and 16 rows with the
# committed token in front.
GROUP_ENDS = (3, 7, 15)
# Share of the old weight that a block leaves of a group that it tried, and of one that
# it did not: what nobody tries is forgotten in the end, and tried again.
DECAY = 0.9
UNTRIED_DECAY = 0.97
# Before anything is measured: two tokens tried, one and a half accepted; of a later
# group, two tried that were accepted as often as those of the group before.
PRIOR_RATE = 0.75
PRIOR_TRIALS = 2.0
# Share of the old weight that a text leaves of those before, about the last five.
TEXT_DECAY = 0.8
# Tokens of a group that other texts' rates count as: its own first blocks outweigh them.
REMEMBERED_TRIALS = 8.0

_GROUPS = len(GROUP_ENDS) + 1
_NOTHING = (0.0,) * _GROUPS


@dataclass(frozen=True, slots=True)
class PlaceRates:
    """Decayed counts of tokens compared and accepted, by group. A value."""

    trials: tuple[float, ...] = _NOTHING
    accepted: tuple[float, ...] = _NOTHING

    def after(self, drafted_count: int, accepted_count: int) -> PlaceRates:
        """A block of `drafted_count` tokens was verified, and the first so many were accepted."""
        compared = min(accepted_count + 1, drafted_count)
        trials, accepted = [], []
        begin = 0
        for group, end in enumerate((*GROUP_ENDS, compared)):
            tried = max(0, min(end, compared) - begin)
            kept = DECAY if tried else UNTRIED_DECAY
            trials.append(self.trials[group] * kept + tried)
            right = max(0, min(end, accepted_count) - begin)
            accepted.append(self.accepted[group] * kept + right)
            begin = end
        return PlaceRates(tuple(trials), tuple(accepted))

    @classmethod
    def assuming(cls, rate: float) -> PlaceRates:
        """As if a few tokens had been right at this rate."""
        rest = _NOTHING[1:]
        return cls((REMEMBERED_TRIALS, *rest), (REMEMBERED_TRIALS * rate, *rest))

    def and_those_of(self, text: PlaceRates) -> PlaceRates:
        """Those of texts so far, and of one more: each counts less with every one behind it."""
        return PlaceRates(
            tuple(
                TEXT_DECAY * old + new for old, new in zip(self.trials, text.trials, strict=True)
            ),
            tuple(
                TEXT_DECAY * old + new
                for old, new in zip(self.accepted, text.accepted, strict=True)
            ),
        )

    def remembered(self) -> PlaceRates:
        """What another text begins with: the same rates, of no more than a few tokens."""
        trials = tuple(min(each, REMEMBERED_TRIALS) for each in self.trials)
        accepted = tuple(
            right * kept / tried if tried else 0.0
            for right, kept, tried in zip(self.accepted, trials, self.trials, strict=True)
        )
        return PlaceRates(trials, accepted)

    def expected(self, most: int, *, hopeful: bool = False) -> list[float]:
        """E(1) to E(`most`); a `hopeful` one has no rate below that assumed at first."""
        rates: list[float] = []
        rate = PRIOR_RATE
        for trials, accepted in zip(self.trials, self.accepted, strict=True):
            rate = (accepted + PRIOR_TRIALS * rate) / (trials + PRIOR_TRIALS)
            rates.append(max(rate, PRIOR_RATE) if hopeful else rate)
        found: list[float] = []
        expected = reached = 1.0
        begin = 0
        for rate, end in zip(rates, (*GROUP_ENDS, most), strict=True):
            for _ in range(begin, min(end, most)):
                reached *= rate
                expected += reached
                found.append(expected)
            begin = end
        return found


NOTHING_TRIED = PlaceRates()
"""The rates before anything is measured."""
