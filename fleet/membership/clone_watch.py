"""Tells a past life of this node from a second process under its key.

Every start draws a new boot id and raises the durable incarnation. A newer card
of the own key that this process did not make is therefore of a forgotten past
(the state folder was restored from a copy), or of a clone that lives. The past
does not answer: this process raises its incarnation above the card, and who
answers `MAX_RISES` such rises with a yet higher incarnation is a clone.

Of two clones the one with the lower card yields. Cards only rise and a yielding
process announces none, so at most one of the two yields: had A yielded to B's
card and B to A's, each card would be lower than the other.
"""

from __future__ import annotations

from enum import Enum

from kakeya_fleet.fleet.cards.card import SignedCard
from kakeya_fleet.fleet.membership.record import version_of

MAX_RISES = 3


class Verdict(Enum):
    """What a heard card of the own key means for this process."""

    PAST = "past"
    RISE = "rise"
    YIELD = "yield"


class CloneWatch:
    """Judges cards that carry this node's own id."""

    def __init__(self) -> None:
        self._rises: dict[str, int] = {}
        self._risen_above: dict[str, int] = {}

    def judge(self, own: SignedCard, heard: SignedCard) -> Verdict:
        """What `heard`, properly signed, means to the process that announces `own`."""
        if version_of(heard) <= version_of(own):
            return Verdict.PAST
        boot_id, incarnation = heard.card.boot_id, heard.card.incarnation
        if boot_id == own.card.boot_id:
            return Verdict.RISE
        if incarnation > self._risen_above.get(boot_id, -1):
            self._risen_above[boot_id] = incarnation
            self._rises[boot_id] = self._rises.get(boot_id, 0) + 1
        return Verdict.YIELD if self._rises[boot_id] > MAX_RISES else Verdict.RISE
