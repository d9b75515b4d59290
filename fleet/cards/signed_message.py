"""The bytes that nodes sign: a prefix tells cards and farewells apart."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

# verify(public_key, message, signature) -> whether the signature is the key's.
Verify = Callable[[bytes, bytes, bytes], bool]

_CARD_PREFIX = b"kakeya.v1.card"
_LEFT_PREFIX = b"kakeya.v1.left"


def node_id_of(public_key: bytes) -> str:
    """The id of the key's owner: SHA-256 of the key, hexadecimal."""
    return hashlib.sha256(public_key).hexdigest()


def card_message(card_bytes: bytes) -> bytes:
    """What the owner of a card signs."""
    return _CARD_PREFIX + card_bytes


def left_message(node_id: str, incarnation: int) -> bytes:
    """What a node signs when it leaves."""
    return b"\n".join((_LEFT_PREFIX, node_id.encode("ascii"), str(incarnation).encode("ascii")))
