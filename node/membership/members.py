"""Whose cards count in a fleet with an authority: its members', and nobody else's."""

from __future__ import annotations

from kakeya_fleet.fleet.cards.card import Card
from kakeya_fleet.fleet.cards.rules import CardRule
from kakeya_fleet.fleet.errors import CardRejected
from kakeya_fleet.fleet.membership.merge_rules import Usable
from kakeya_fleet.node.errors import BadCertificate
from kakeya_fleet.node.trust.trust import Trust


def members_of(trust: Trust, usable: Usable) -> Usable:
    """`usable`, of members alone: raises `CardRejected` for the card of anybody else.

    A card carries its owner's certificate, so that whoever passes it on need not be trusted.
    """

    def usable_of_member(card: Card, host: str) -> Card | None:
        try:
            member = trust.member_of(card.certificate)
        except BadCertificate as error:
            raise CardRejected(CardRule.NOT_A_MEMBER, error.cause) from error
        if member != card.node_id:
            raise CardRejected(
                CardRule.NOT_A_MEMBER, f"the certificate is of {member[:12]}, not {card.node_id}"
            )
        return usable(card, host)

    return usable_of_member
