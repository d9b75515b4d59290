"""Keys of applications: made and revoked by keepers, known to every node."""

from __future__ import annotations

import base64
import hmac
import secrets
from dataclasses import replace

from kakeya_fleet.fleet.errors import KeyAmbiguous, KeyExpired, KeyRevoked, KeyUnknown, TooManyKeys
from kakeya_fleet.fleet.trust.keys import (
    KEY_BYTES,
    KEY_PREFIX,
    MOST_KEYS,
    ApplicationKey,
    digest_of,
    key_called,
)
from kakeya_fleet.fleet.trust.statements import KeyRevocation
from kakeya_fleet.node.trust.trust import Trust


def new_key_text() -> str:
    """A key: 256 random bits in base64url, behind its prefix."""
    secret = base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES))
    return KEY_PREFIX + secret.rstrip(b"=").decode("ascii")


class ApplicationKeys:
    """Those of one node's fleet. Used by one thread at a time, as its `Trust`."""

    def __init__(self, trust: Trust) -> None:
        self._trust = trust

    def in_force(self) -> tuple[ApplicationKey, ...]:
        """Those that are neither revoked nor over, by name."""
        found = [each for each in self.all() if not self.is_revoked(each)]
        return tuple(each for each in found if not each.is_over(self._trust.now_unix()))

    def all(self) -> tuple[ApplicationKey, ...]:
        """All that were ever made, by name."""
        every = self._trust.ledger.keys.values()
        return tuple(sorted(every, key=lambda each: (each.name, each.key_id)))

    def is_revoked(self, key: ApplicationKey) -> bool:
        """Whether the key was put out of force."""
        return key.key_id in self._trust.ledger.revoked_keys

    def holder_of(self, text: str) -> ApplicationKey:
        """What the key allows that a caller shows.

        Raises `KeyUnknown`, `KeyRevoked`, `KeyExpired`.
        """
        digest = digest_of(text)
        # Found by its digest, of which nobody learns anything by how long that takes.
        key = self._trust.ledger.keys.get(digest)
        if key is None or not hmac.compare_digest(key.digest, digest):
            raise KeyUnknown(f"this key is none of the fleet {self._trust.fleet.name}")
        self.check(key)
        return key

    def check(self, key: ApplicationKey) -> None:
        """Raises `KeyRevoked`, `KeyExpired`."""
        if self.is_revoked(key):
            raise KeyRevoked(f"the key {key.name} ({key.key_id}) was revoked", key_id=key.key_id)
        if key.is_over(self._trust.now_unix()):
            raise KeyExpired(
                f"the time of the key {key.name} ({key.key_id}) is over", key_id=key.key_id
            )

    def make(self, key: ApplicationKey) -> tuple[str, ApplicationKey]:
        """Makes a key like `key`, whose digest does not count yet: its text, and what is kept.

        The text is kept nowhere. Raises `NotAKeeper`, `KeyAmbiguous`, `TooManyKeys`,
        `StatementRejected`.
        """
        if any(each.name == key.name for each in self.in_force()):
            raise KeyAmbiguous(f"a key in force is called {key.name!r} already", key=key.name)
        if len(self._trust.ledger.keys) >= MOST_KEYS:
            raise TooManyKeys(f"this fleet has made {MOST_KEYS} keys, as many as it may")
        text = new_key_text()
        made = replace(key, digest=digest_of(text))
        self._trust.say_key(made)
        return text, made

    def revoke(self, wanted: str) -> ApplicationKey:
        """Puts the key with that name or id out of force, also one whose time is over.

        Raises `KeyNotFound`, `KeyAmbiguous`, `NotAKeeper`, `StatementRejected`.
        """
        key = key_called(wanted, [each for each in self.all() if not self.is_revoked(each)])
        self._trust.say_key(KeyRevocation(key.key_id))
        return key
