"""Digests: which versions of the registers a node holds, 24 bytes a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kakeya_fleet.fleet.cards.liveness import Liveness

NODE_KEY_BYTES = 8
LAST_KEY = (1 << 8 * NODE_KEY_BYTES) - 1
MAX_DIGEST_LINES = 1024
"""Of one message: 25 ms of work for who reads it. Larger fleets tell theirs in parts, in turn."""
CARD_HASH_BYTES = 4


class Version(NamedTuple):
    """Place of a card in its register's order, field by field; `sha256` is 32 bytes."""

    incarnation: int
    sequence: int
    sha256: bytes

    @property
    def card_hash(self) -> int:
        """The first 4 bytes of the SHA-256 as a number; keeps the order."""
        return int.from_bytes(self.sha256[:CARD_HASH_BYTES], "big")


class DigestEntry(NamedTuple):
    """The registers of one node, as another is told of them.

    `node_key` is the first 8 bytes of the node id, `card_hash` the first 4 of
    the SHA-256 of the card's signed bytes, both big-endian.
    """

    node_key: int
    incarnation: int
    sequence: int
    card_hash: int
    liveness_incarnation: int
    liveness: Liveness

    @property
    def card_order(self) -> tuple[int, int, int]:
        """What card registers are compared by."""
        return self.incarnation, self.sequence, self.card_hash

    @property
    def liveness_order(self) -> tuple[int, int]:
        """What liveness registers are compared by."""
        return self.liveness_incarnation, self.liveness.value


@dataclass(frozen=True, slots=True)
class DigestPart:
    """All lines of the nodes whose keys are in `first_key` to `last_key`, both included."""

    lines: tuple[DigestEntry, ...]
    first_key: int = 0
    last_key: int = LAST_KEY


def node_key(node_id: str) -> int:
    """The first 8 bytes of a hexadecimal node id."""
    return int(node_id[: 2 * NODE_KEY_BYTES], 16)
