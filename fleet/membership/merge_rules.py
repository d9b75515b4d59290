"""What is believed of what others send: the rules of cards and rumours, against what is held."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from kakeya_fleet.fleet.cards.card import Card, SignedCard
from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.cards.rules import MAX_CARD_BYTES, CardRule, check_card
from kakeya_fleet.fleet.cards.signed_message import Verify, card_message, left_message
from kakeya_fleet.fleet.errors import CardRejected
from kakeya_fleet.fleet.membership.digest import Version
from kakeya_fleet.fleet.membership.events import Source
from kakeya_fleet.fleet.membership.record import Record, version_of

# The card with what of it may be called, when it comes from a host; None when nothing may.
Usable = Callable[[Card, str], Card | None]


class RumourRule(StrEnum):
    """Why a rumour was not merged."""

    UNKNOWN_NODE = "UNKNOWN_NODE"
    AHEAD_OF_CARD = "AHEAD_OF_CARD"
    BAD_SIGNATURE = "BAD_SIGNATURE"


class MergeRules:
    """The rules of one node, which verifies signatures itself and calls near addresses alone.

    `verify(public_key, message, signature)` is called only for a card that is
    newer than the one held or betrays a clone, and for a LEFT statement that
    would be merged.
    """

    def __init__(self, verify: Verify, usable: Usable) -> None:
        self._verify = verify
        self._usable = usable

    def checked_version(
        self, signed: SignedCard, held: Record | None, fleet_name: str, now_unix: float
    ) -> Version | None:
        """The version of a card that has to be looked at, None for an old one.

        Raises `CardRejected`.
        """
        card = signed.card
        if len(signed.card_bytes) > MAX_CARD_BYTES:
            size = len(signed.card_bytes)
            raise CardRejected(CardRule.OVERSIZE, f"{size} bytes are more than {MAX_CARD_BYTES}")
        version = version_of(signed)
        if held is not None and version == held.version:
            return None
        check_card(card, now_unix=now_unix)
        if card.fleet_name != fleet_name:
            raise CardRejected(
                CardRule.WRONG_FLEET, f"fleet {card.fleet_name!r} is not {fleet_name!r}"
            )
        if held is not None and version <= held.version and not is_clone(held, signed):
            return None
        if not self._verify(card.public_key, card_message(signed.card_bytes), signed.signature):
            raise CardRejected(
                CardRule.BAD_SIGNATURE, f"the signature is not that of {card.node_id}"
            )
        return version

    def usable_card(self, card: Card, source: Source) -> Card:
        """The card with what of it may be called. Raises `CardRejected` when nothing may."""
        usable = self._usable(card, source.host)
        if usable is None:
            raise CardRejected(
                CardRule.FOREIGN_ADDRESS, f"no address of {card.node_id} is one to call from here"
            )
        return usable

    def broken_by(self, rumour: Rumour, held: Record) -> RumourRule | None:
        """The rule that a rumour of a node that is known breaks, if it breaks one."""
        if rumour.incarnation > held.version.incarnation:
            return RumourRule.AHEAD_OF_CARD
        if rumour.liveness is Liveness.LEFT and held.rises_to(rumour.incarnation, rumour.liveness):
            message = left_message(rumour.node_id, rumour.incarnation)
            if not self._verify(held.signed.card.public_key, message, rumour.signature):
                return RumourRule.BAD_SIGNATURE
        return None


def believed(liveness: Liveness) -> Liveness:
    """What is made of a statement: only this node's own evidence makes a node DEAD."""
    return Liveness.SUSPECT if liveness is Liveness.DEAD else liveness


def is_clone(held: Record, signed: SignedCard) -> bool:
    """Whether two processes announce one incarnation, which each start raises."""
    mine, other = held.signed.card, signed.card
    return mine.incarnation == other.incarnation and mine.boot_id != other.boot_id
