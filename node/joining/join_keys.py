"""The keys of one exchange, and what they seal.

Everything that both sides have said, in a fixed order and with lengths, is the transcript. Its
hash goes into the keys (HKDF, RFC 5869), the confirmations (HMAC, RFC 2104), each sealed message
(ChaCha20-Poly1305, RFC 8439) and the joiner's signature, so none of them fits another exchange.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from kakeya_fleet.node.joining.join_messages import IssuerHello, JoinerHello
from kakeya_fleet.node.joining.pake import LABEL
from kakeya_fleet.node.rpc.refusals import MalformedMessage

KEY_BYTES = 32
TAG_BYTES = 16
_NONCE_BYTES = 12


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """Four independent keys of 32 bytes, and the transcript's hash."""

    joiner_confirms: bytes = field(repr=False)
    issuer_confirms: bytes = field(repr=False)
    joiner_seals: bytes = field(repr=False)
    issuer_seals: bytes = field(repr=False)
    transcript_hash: bytes


def keys_of(shared: bytes, joiner: JoinerHello, issuer: IssuerHello) -> JoinKeys:
    """The keys that follow from SPAKE2's key and both hellos, the confirmation aside."""
    transcript_hash = hashlib.sha256(b"".join(_transcript(joiner, issuer))).digest()
    expanded = HKDF(
        SHA256(), length=4 * KEY_BYTES, salt=transcript_hash, info=LABEL + b" keys"
    ).derive(shared)
    starts = range(0, len(expanded), KEY_BYTES)
    one, two, three, four = (expanded[start : start + KEY_BYTES] for start in starts)
    return JoinKeys(one, two, three, four, transcript_hash)


def confirmation(key: bytes, transcript_hash: bytes) -> bytes:
    """That one has the key, in 32 bytes."""
    return hmac.digest(key, transcript_hash, "sha256")


def is_confirmed(key: bytes, transcript_hash: bytes, told: bytes) -> bool:
    """Whether the other side has the key; takes as long for every answer."""
    return hmac.compare_digest(confirmation(key, transcript_hash), told)


class SealedDirection:
    """The messages of one side, in order: a nonce is used once, a message taken once."""

    def __init__(self, key: bytes, transcript_hash: bytes) -> None:
        self._cipher = ChaCha20Poly1305(key)
        self._transcript_hash = transcript_hash
        self._count = 0

    def seal(self, message: bytes) -> bytes:
        """The next message, 16 bytes longer."""
        return self._cipher.encrypt(self._next_nonce(), message, self._transcript_hash)

    def open(self, sealed: bytes) -> bytes:
        """The next message; raises `MalformedMessage` for any other."""
        try:
            return self._cipher.decrypt(self._next_nonce(), sealed, self._transcript_hash)
        except InvalidTag as error:
            raise MalformedMessage("a sealed message of the join was changed on its way") from error

    def _next_nonce(self) -> bytes:
        nonce = self._count.to_bytes(_NONCE_BYTES, "big")
        self._count += 1
        return nonce


def _transcript(joiner: JoinerHello, issuer: IssuerHello) -> Iterator[bytes]:
    numbers = (joiner.protocol_min, joiner.protocol_max, issuer.protocol_version)
    parts = (
        LABEL,
        b"".join(number.to_bytes(4, "big") for number in numbers),
        joiner.code_kind.value.encode("ascii"),
        joiner.nameplate.encode("utf-8"),
        joiner.node_id.encode("ascii"),
        issuer.node_id.encode("ascii"),
        joiner.pake_message,
        issuer.pake_message,
    )
    for part in parts:
        yield len(part).to_bytes(4, "big")
        yield part
