"""Who connects: a rank proves to the leader that it knows the group's nonce, and the leader too.

The nonce never travels. Each end sends 32 random bytes and answers the other's
with HMAC-SHA-256 (RFC 2104) over both, the sender's part in the group, and what
the connection is for. So neither a stranger on the port, nor the rank of an
earlier start, nor an echo of the other's own bytes is taken for a member.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

NONCE_BYTES = 32
CHALLENGE_BYTES = 32
DIGEST_BYTES = 32
PROTOCOL = b"kakeya group 1"

_CLAIM = struct.Struct("<BH")
REPLY_BYTES = _CLAIM.size + CHALLENGE_BYTES + DIGEST_BYTES

Read = Callable[[int], bytes]
Write = Callable[[bytes], None]


class Purpose(IntEnum):
    """What one of a rank's two connections is for."""

    COMMANDS = 1
    PULSE = 2


class NotProven(Exception):
    """The other end does not know the nonce, or is no member of a group at all."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a rank says that it is, and what the connection is for."""

    purpose: Purpose
    rank: int


def prove_to_leader(nonce: bytes, claim: Claim, challenge: bytes, read: Read, write: Write) -> None:
    """The rank's side; `challenge` is random. Raises `NotProven`, and what `read` raises."""
    theirs = read(CHALLENGE_BYTES)
    head = _CLAIM.pack(claim.purpose, claim.rank)
    write(head + challenge + _proof(nonce, b"rank", head, theirs, challenge))
    if not hmac.compare_digest(
        read(DIGEST_BYTES), _proof(nonce, b"leader", head, challenge, theirs)
    ):
        raise NotProven("whoever answers there is not the leader of this group")


def prove_to_rank(
    nonce: bytes, rank_count: int, challenge: bytes, read: Read, write: Write
) -> Claim:
    """The leader's side: what the rank proved. Raises `NotProven`, and what `read` raises."""
    write(challenge)
    reply = read(REPLY_BYTES)
    head, rest = reply[: _CLAIM.size], reply[_CLAIM.size :]
    theirs, proof = rest[:CHALLENGE_BYTES], rest[CHALLENGE_BYTES:]
    if not hmac.compare_digest(proof, _proof(nonce, b"rank", head, challenge, theirs)):
        raise NotProven("a stranger connected")
    purpose, rank = _CLAIM.unpack(head)
    if purpose not in tuple(Purpose) or rank >= rank_count:
        raise NotProven(f"rank {rank} of {rank_count} connected for {purpose}")
    write(_proof(nonce, b"leader", head, theirs, challenge))
    return Claim(Purpose(purpose), rank)


def _proof(nonce: bytes, who: bytes, head: bytes, first: bytes, second: bytes) -> bytes:
    message = b"\0".join((PROTOCOL, who, head)) + first + second
    return hmac.new(nonce, message, hashlib.sha256).digest()
