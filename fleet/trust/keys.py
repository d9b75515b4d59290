"""Keys of applications: what a holder may do, and how much; the key itself nobody keeps.

A key is 256 random bits, so its plain SHA-256 tells nothing of it, and a table of these digests is
all that a node needs: whoever steals it cannot call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kakeya_fleet.fleet.errors import KeyAmbiguous, KeyNotFound

KEY_PREFIX = "kky_"
"""By which people and scanners of sources know one."""
KEY_BYTES = 32
KEY_ID_DIGITS = 16
MAX_NAME_CHARACTERS = 64
MOST_KEYS = 1024
"""That a fleet ever makes: each is a statement, and one more when it is revoked."""


class Scope(StrEnum):
    """What a key is for."""

    GENERATE = "generate"
    """Sessions of its own, plans, models and their tokenizers."""
    OBSERVE = "observe"
    """Watching the fleet, its metrics, and how much all sessions do; no token of them."""


@dataclass(frozen=True, slots=True)
class ApplicationKey:
    """What keepers say of a key. 0 stands for no limit, and for no end.

    Limits are those of one node: each counts for itself. Times are in seconds since 1970.
    """

    name: str
    digest: bytes
    """SHA-256 of the key's text, 32 bytes."""
    scopes: frozenset[Scope] = frozenset({Scope.GENERATE})
    session_limit: int = 0
    tokens_per_minute: int = 0
    generation_limit: int = 0
    expires_at_unix: float = 0.0
    made_at_unix: float = 0.0

    @property
    def key_id(self) -> str:
        """Names it; no secret, and the same at every node."""
        return self.digest.hex()[:KEY_ID_DIGITS]

    def is_over(self, now_unix: float) -> bool:
        """Whether its time is."""
        return 0 < self.expires_at_unix <= now_unix


def digest_of(key: str) -> bytes:
    """What is kept of a key."""
    return hashlib.sha256(key.encode("utf-8")).digest()


def key_called(wanted: str, keys: Iterable[ApplicationKey]) -> ApplicationKey:
    """The one of `keys` with that name or id. Raises `KeyNotFound`, `KeyAmbiguous`."""
    every = list(keys)
    found = [each for each in every if each.key_id == wanted]
    found = found or [each for each in every if each.name == wanted]
    if not found:
        raise KeyNotFound(f"no key in force is called {wanted[:64]!r}", key=wanted[:64])
    if len(found) > 1:
        told = ", ".join(sorted(each.key_id for each in found))
        raise KeyAmbiguous(f"several keys are called {wanted[:64]!r}: {told}", key=wanted[:64])
    return found[0]
