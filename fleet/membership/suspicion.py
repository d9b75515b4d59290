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

A confirmation is a further failed round of this node's own, in which a helper answered
that it could not reach the suspect either. However long that took, a node is buried after
ALPHA rounds at least: where messages are lost, a node stretches its own timeouts, and fewer
rounds than that would have the time. In fleets of fewer than ALPHA members nobody is left to
confirm or to help, K is 0, and the least time stands alone. Who only heard of a suspicion
looks for itself after the least time: refutations mostly come before.
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


def rounds_to_suspicion(node_count: int) -> int:
    """Rounds in a row in which nobody reached a node, before this one tells the fleet of it.

    A suspicion costs everybody a rumour and a refutation. With a share L of all messages lost
    and H helpers asked, a round reaches nobody with

        p = (1 - (1 - L)^2)^2 * (1 - (1 - L)^4)^H

    0.11 at L = 0.3 and H = 3. In a fleet of N that tells after r rounds, N p^r suspicions of
    the living arise a second: with one round more for every tenfold of N, a few at any N.
    """
    return 1 + max(1, math.ceil(math.log10(max(node_count, 1))))


def least_rounds(node_count: int) -> int:
    """Rounds in a row in which nobody reached a node, before it is DEAD."""
    return ALPHA if node_count >= ALPHA else 0


@dataclass(slots=True)
class Doubt:
    """Rounds in a row in which nobody reached a node; told to nobody.

    `since` is when the first one ended, in seconds on the monotonic clock.
    `confirmation_count` are the further ones in which a helper answered.
    """

    since: float
    round_count: int = 0
    confirmation_count: int = 0

    def failed(self, *, is_confirmed: bool) -> None:
        """Notes a round."""
        self.confirmation_count += is_confirmed and self.round_count > 0
        self.round_count += 1


@dataclass(slots=True)
class Suspicion:
    """A running suspicion of one incarnation.

    `evidence` is this node's own, None where only others said so: hearsay never ends in
    death. `since` is when the one or the other began, in seconds on the monotonic clock.
    """

    incarnation: int
    since: float
    evidence: Doubt | None

    @property
    def is_own(self) -> bool:
        """Whether this node itself could not reach it."""
        return self.evidence is not None

    def failed(self, now: float, *, is_confirmed: bool) -> bool:
        """Notes a failed round of this node's own; whether it turns hearsay into evidence."""
        turns = self.evidence is None
        if self.evidence is None:
            self.evidence, self.since = Doubt(now), now
        self.evidence.failed(is_confirmed=is_confirmed)
        return turns

    def answered(self, now: float) -> bool:
        """A sign of life, though no refutation: hearsay is left; whether it was more before."""
        was_own, self.evidence, self.since = self.is_own, None, now
        return was_own
