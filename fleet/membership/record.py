"""The registers that are held of one node."""

from __future__ import annotations

import hashlib

from kakeya_fleet.fleet.cards.card import Card, SignedCard
from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.membership.digest import DigestEntry, Version, node_key


class Record:
    """A card register and a liveness register at the same incarnation.

    `card` is that of `signed`, with those of its addresses alone that this node may call;
    it came from the IP address `host`, empty where that is not known.

    `seen_at` (last sign of life) and `liveness_at` (last change of liveness) are
    seconds on this node's monotonic clock; they are no part of the registers.
    """

    __slots__ = (
        "card",
        "entry",
        "host",
        "left_signature",
        "liveness",
        "liveness_at",
        "root_line",
        "seen_at",
        "signed",
        "version",
    )

    def __init__(
        self, signed: SignedCard, version: Version, now: float, card: Card, host: str = ""
    ) -> None:
        self.signed = signed
        self.card = card
        self.host = host
        self.version = version
        self.liveness = Liveness.ALIVE
        self.left_signature = b""
        self.seen_at = now
        self.liveness_at = now
        self._describe()

    @property
    def rumour(self) -> Rumour:
        """The liveness register as a statement."""
        return Rumour(
            self.signed.card.node_id, self.version.incarnation, self.liveness, self.left_signature
        )

    def rises_to(self, incarnation: int, liveness: Liveness) -> bool:
        """Whether the statement is above the liveness register."""
        return (incarnation, liveness) > (self.version.incarnation, self.liveness)

    def renew(
        self, signed: SignedCard, version: Version, now: float, card: Card, host: str = ""
    ) -> None:
        """Takes a newer card of the same incarnation; the liveness stays."""
        self.signed = signed
        self.card = card
        self.host = host
        self.version = version
        self.seen_at = now
        self._describe()

    def turn(self, liveness: Liveness, left_signature: bytes, now: float) -> None:
        """Takes a higher liveness of the same incarnation."""
        self.liveness = liveness
        self.left_signature = left_signature if liveness is Liveness.LEFT else b""
        self.liveness_at = now
        self._describe()

    def _describe(self) -> None:
        """Renews the digest's line and the root hash's, which are read far more often."""
        version = self.version
        self.entry = DigestEntry(
            node_key=node_key(self.signed.card.node_id),
            incarnation=version.incarnation,
            sequence=version.sequence,
            card_hash=version.card_hash,
            liveness_incarnation=version.incarnation,
            liveness=self.liveness,
        )
        self.root_line = b"".join(
            (
                bytes.fromhex(self.signed.card.node_id),
                version.incarnation.to_bytes(8, "big"),
                version.sequence.to_bytes(4, "big"),
                version.sha256,
                bytes((self.liveness,)),
            )
        )


def version_of(signed: SignedCard) -> Version:
    """The card's place in its register's order."""
    return Version(
        signed.card.incarnation,
        signed.card.sequence,
        hashlib.sha256(signed.card_bytes).digest(),
    )
