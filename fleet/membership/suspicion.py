"""When a SUSPECT node is DEAD: by this node's own evidence, and after its time.

What others say makes a node SUSPECT at most. Statements carry no author, and where
everybody makes keys for himself, a signature would name one of any number of accusers:
ten accusers are ten only once somebody else has vouched for each of them. Until then
a node is buried by those alone who failed to reach it themselves, also through helpers,
from the first such failure on for (Lifeguard, Dadgar et al. 2018, section IV-B), with C
of K expected confirmations,

    least   = ALPHA * max(1, log10 N) * period * stretch
    most    = BETA * least
    seconds = max(least, most - (most - least) * log(C + 1) / log(K + 1))

A confirmation is a further failed probe of this node's own, in which a helper answered
that it could not reach the suspect either. In fleets of fewer than ALPHA members nobody
is left to confirm, K is 0 and the least time stands. Who only heard of a suspicion looks
for itself after the least time: refutations mostly come before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ALPHA = 4
BETA = 6
EXPECTED_CONFIRMATIONS = ALPHA - 2


def least_seconds(*, node_count: int, period_seconds: float, stretch: float) -> float:
    """The least of `suspicion_seconds`; `stretch` (1 to 8) is this node's own lag."""
    return ALPHA * max(1.0, math.log10(max(node_count, 1))) * period_seconds * stretch


def suspicion_seconds(
    *, node_count: int, confirmation_count: int, period_seconds: float, stretch: float
) -> float:
    """Seconds from suspicion to death; `stretch` (1 to 8) is this node's own lag."""
    least = least_seconds(node_count=node_count, period_seconds=period_seconds, stretch=stretch)
    if node_count < ALPHA:
        return least
    most = BETA * least
    share = math.log(confirmation_count + 1) / math.log(EXPECTED_CONFIRMATIONS + 1)
    return max(least, most - (most - least) * share)


@dataclass(slots=True)
class Suspicion:
    """A running suspicion of one incarnation.

    `is_own` tells whether a probe of this node itself failed, or only others said so:
    hearsay never ends in death. `since` is when the one or the other began, in seconds on
    the monotonic clock.
    """

    incarnation: int
    since: float
    is_own: bool
    confirmation_count: int = 0

    def failed(self, now: float, *, is_confirmed: bool) -> bool:
        """Notes a failed probe of this node's own; whether it turns hearsay into evidence.

        The time to death begins with the first one; `is_confirmed` ones after it shorten it.
        """
        if self.is_own:
            self.confirmation_count += is_confirmed
            return False
        self.is_own, self.since, self.confirmation_count = True, now, 0
        return True

    def answered(self, now: float) -> bool:
        """A sign of life, though no refutation: hearsay is left; whether it was more before."""
        was_own, self.is_own = self.is_own, False
        self.since, self.confirmation_count = now, 0
        return was_own
