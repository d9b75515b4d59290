"""How long a node stays SUSPECT before it is DEAD.

Lifeguard (Dadgar et al. 2018, section IV-B): with C of K expected
confirmations

    least   = ALPHA * max(1, log10 N) * period * stretch
    most    = BETA * least
    seconds = max(least, most - (most - least) * log(C + 1) / log(K + 1))

A confirmation here is a further failed probe of this node's own, in which a
helper answered that it could not reach the suspect either: rumours carry no
author, so that hearing one again proves nothing. In fleets of fewer than
ALPHA members nobody is left to confirm, K is 0 and the least time stands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

ALPHA = 4
BETA = 6
EXPECTED_CONFIRMATIONS = ALPHA - 2


def suspicion_seconds(
    *, node_count: int, confirmation_count: int, period_seconds: float, stretch: float
) -> float:
    """Seconds from suspicion to death; `stretch` (1 to 8) is this node's own lag."""
    least = ALPHA * max(1.0, math.log10(max(node_count, 1))) * period_seconds * stretch
    if node_count < ALPHA:
        return least
    most = BETA * least
    share = math.log(confirmation_count + 1) / math.log(EXPECTED_CONFIRMATIONS + 1)
    return max(least, most - (most - least) * share)


@dataclass(slots=True)
class Suspicion:
    """A running suspicion of one incarnation.

    `since` is in seconds on the monotonic clock; `is_own` tells whether a probe
    of this node failed, or others said so.
    """

    incarnation: int
    since: float
    is_own: bool
    confirmation_count: int = 0

    def confirm(self) -> None:
        """Counts a further failed probe of this node's own."""
        if self.is_own:
            self.confirmation_count += 1
        self.is_own = True

    def restart(self, now: float) -> None:
        """A sign of life came, but no refutation: the time begins anew."""
        self.since = now
        self.confirmation_count = 0
