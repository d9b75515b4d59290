"""What keepers say of a fleet, each sentence signed with an authority's key.

Statements are only ever added. Which of all that are known hold is decided by
`fleet.trust.judgement`, from the statements alone: no clock of anybody orders them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.trust.keys import ApplicationKey

STATEMENT_PREFIX = b"kakeya.v1.statement"

# verify(certificate, message, signature) -> whether the certificate's key signed the message.
VerifyStatement = Callable[[bytes, bytes, bytes], bool]


@dataclass(frozen=True, slots=True)
class Keeper:
    """A node may let others in, with the key of this authority.

    `certificate` is the authority's own, X.509 in DER; `authority_id` is SHA-256 of its public
    key's SubjectPublicKeyInfo, hexadecimal. That of the first keeper is the fleet's id.
    """

    node_id: str
    authority_id: str
    certificate: bytes


@dataclass(frozen=True, slots=True)
class Revocation:
    """A node is no member any more, and never again under this id.

    Of a keeper that is put out, `upheld` are the digests of what it said before and is to hold,
    and of the members' certificates that it signed (SHA-256 of DER), which are good until they
    are renewed elsewhere: whoever has its key can sign more at any time.
    """

    node_id: str
    upheld: frozenset[bytes] = frozenset()


@dataclass(frozen=True, slots=True)
class KeyRevocation:
    """A key of applications is in force no more, and never again."""

    key_id: str


@dataclass(frozen=True, slots=True)
class AllowedRoles:
    """A node may serve these roles for others, and no further ones; None for every role.

    `replaced` are the digests of statements of the same node whose place this one takes. Of
    several that are not replaced, since their keepers knew nothing of each other, holds what
    all of them allow.
    """

    node_id: str
    roles: frozenset[Role] | None
    replaced: frozenset[bytes] = frozenset()


OfKeys = (ApplicationKey, KeyRevocation)
"""What is said of applications' keys, and not of nodes."""
Says: TypeAlias = Keeper | Revocation | ApplicationKey | KeyRevocation | AllowedRoles


@dataclass(frozen=True)
class Statement:
    """One sentence as it travels: `body` is what `signer`, an authority's id, has signed."""

    says: Says
    body: bytes
    signer: str
    signature: bytes

    @cached_property
    def digest(self) -> bytes:
        """Names the sentence, 32 bytes; the same however often its signer signs it."""
        return hashlib.sha256(self.signer.encode("ascii") + b"\n" + self.body).digest()

    @property
    def message(self) -> bytes:
        """What was signed."""
        return statement_message(self.body)


def statement_message(body: bytes) -> bytes:
    """What an authority signs of a body."""
    return STATEMENT_PREFIX + body
