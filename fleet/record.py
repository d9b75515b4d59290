"""The registers that are held of one node."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from fleet.card import SignedCard
from fleet.digest import DigestEntry, Version, node_key
from fleet.liveness import Liveness, Rumour


@dataclass(slots=True)
class Record:
    """The registers of one node, and when this node last had a sign of life.

    `seen_at` and `liveness_at` are seconds on this node's monotonic clock.
    """

    signed: SignedCard
    version: Version
    liveness: Liveness
    left_signature: bytes
    seen_at: float
    liveness_at: float

    @property
    def rumour(self) -> Rumour:
        """The liveness register as a statement."""
        return Rumour(
            self.signed.card.node_id, self.version.incarnation, self.liveness, self.left_signature
        )

    @property
    def entry(self) -> DigestEntry:
        """The registers as a line of a digest."""
        version = self.version
        return DigestEntry(
            node_key=node_key(self.signed.card.node_id),
            incarnation=version.incarnation,
            sequence=version.sequence,
            card_hash=version.card_hash,
            liveness_incarnation=version.incarnation,
            liveness=self.liveness,
        )


def version_of(signed: SignedCard) -> Version:
    """The card's place in its register's order."""
    return Version(
        signed.card.incarnation,
        signed.card.sequence,
        hashlib.sha256(signed.card_bytes).digest(),
    )
