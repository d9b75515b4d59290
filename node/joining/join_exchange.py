"""The exchange between a joiner and an issuer, without sockets: messages in, messages out.

    joiner                                issuer
    JoinerHello(id, X)            ->
                                  <-      IssuerHello(id, Y, confirmation)
    confirmation, {application}   ->
                                  <-      {grant}

X and Y are of SPAKE2 (`pake.py`), braces are sealed (`join_keys.py`). The issuer confirms first,
so a joiner with a wrong code learns that, and learns whether its one guess was right; that is why
a try counts once the hello is answered. What a side was told wrongly ends the exchange: an object
serves one exchange, and each of its steps happens once.
"""

from __future__ import annotations

import os
from dataclasses import replace

from kakeya_fleet.fleet.cards.card import PROTOCOL_MAX, PROTOCOL_MIN
from kakeya_fleet.fleet.errors import JoinCodeWrong, ProtocolSkew
from kakeya_fleet.fleet.trust.join_code import NAMEPLATE_DIGITS, JoinCode, JoinCodeKind
from kakeya_fleet.node.joining.join_keys import (
    JoinKeys,
    SealedDirection,
    confirmation,
    is_confirmed,
    keys_of,
)
from kakeya_fleet.node.joining.join_messages import IssuerHello, JoinerHello, JoinerProof
from kakeya_fleet.node.joining.pake import PAKE_MESSAGE_BYTES, Entropy, Pake, Side
from kakeya_fleet.node.membership.capability_wire import is_node_id
from kakeya_fleet.node.rpc.refusals import MalformedMessage


def check_hello(hello: JoinerHello) -> None:
    """Raises `MalformedMessage` or `ProtocolSkew` for a hello that no issuer answers."""
    _check_side(hello.node_id, hello.pake_message)
    if len(hello.nameplate) != NAMEPLATE_DIGITS:
        raise MalformedMessage(f"a nameplate has {NAMEPLATE_DIGITS} digits")
    if hello.protocol_min > PROTOCOL_MAX or hello.protocol_max < PROTOCOL_MIN:
        raise ProtocolSkew(
            f"this node speaks protocol {PROTOCOL_MIN} to {PROTOCOL_MAX}, "
            f"the joiner {hello.protocol_min} to {hello.protocol_max}",
            protocol_min=str(PROTOCOL_MIN),
            protocol_max=str(PROTOCOL_MAX),
        )


class JoinerExchange:
    """The side that has a code. `hello` is its first message."""

    def __init__(self, code: JoinCode, node_id: str, entropy: Entropy = os.urandom) -> None:
        self._pake = Pake(Side.JOINER, _password(code.kind, code.secret), node_id, entropy)
        self.hello = JoinerHello(
            protocol_min=PROTOCOL_MIN,
            protocol_max=PROTOCOL_MAX,
            code_kind=code.kind,
            nameplate=code.nameplate,
            node_id=node_id,
            pake_message=self._pake.message,
        )
        self._keys: JoinKeys | None = None
        self.transcript_hash = b""
        """Of this very exchange, 32 bytes; known once the answer was received."""

    def receive(self, answer: IssuerHello) -> None:
        """Takes the issuer's hello.

        Raises `JoinCodeWrong` when the two do not have the same code, or somebody between them
        changed what they said; `MalformedMessage`, `ProtocolSkew`.
        """
        _check_side(answer.node_id, answer.pake_message)
        if answer.node_id == self.hello.node_id:
            raise MalformedMessage("the issuer claims this node's own id")
        if not self.hello.protocol_min <= answer.protocol_version <= self.hello.protocol_max:
            raise ProtocolSkew(f"the issuer goes on with protocol {answer.protocol_version}")
        shared = self._pake.finish(answer.node_id, answer.pake_message)
        keys = keys_of(shared, self.hello, answer)
        if not is_confirmed(keys.issuer_confirms, keys.transcript_hash, answer.confirmation):
            raise JoinCodeWrong("the node that invites does not have this code")
        self._keys = keys
        self.transcript_hash = keys.transcript_hash

    def prove(self, application: bytes) -> JoinerProof:
        """What shows that the code was known, with the application sealed."""
        keys = _known(self._keys)
        sealed = SealedDirection(keys.joiner_seals, keys.transcript_hash).seal(application)
        return JoinerProof(confirmation(keys.joiner_confirms, keys.transcript_hash), sealed)

    def open_grant(self, sealed: bytes) -> bytes:
        """What the issuer gives; raises `MalformedMessage` for what it did not seal here."""
        keys = _known(self._keys)
        return SealedDirection(keys.issuer_seals, keys.transcript_hash).open(sealed)


class IssuerExchange:
    """The side that invited. `hello` answers a hello that `check_hello` has let pass.

    Raises `MalformedMessage` for a hello with this node's own id or a message that is no point.
    """

    def __init__(
        self, theirs: JoinerHello, secret: bytes, node_id: str, entropy: Entropy = os.urandom
    ) -> None:
        if theirs.node_id == node_id:
            raise MalformedMessage("the joiner claims this node's own id")
        pake = Pake(Side.ISSUER, _password(theirs.code_kind, secret), node_id, entropy)
        shared = pake.finish(theirs.node_id, theirs.pake_message)
        version = min(PROTOCOL_MAX, theirs.protocol_max)
        unconfirmed = IssuerHello(version, node_id, pake.message)
        self._keys = keys_of(shared, theirs, unconfirmed)
        self.transcript_hash = self._keys.transcript_hash
        self.hello = replace(
            unconfirmed,
            confirmation=confirmation(self._keys.issuer_confirms, self.transcript_hash),
        )
        self._joiner_sealed = SealedDirection(self._keys.joiner_seals, self.transcript_hash)
        self._issuer_seals = SealedDirection(self._keys.issuer_seals, self.transcript_hash)

    def open_application(self, proof: JoinerProof) -> bytes:
        """The application of a joiner that knows the code.

        Raises `JoinCodeWrong` for one that does not, `MalformedMessage` for a seal that is broken.
        """
        told = proof.confirmation
        if not is_confirmed(self._keys.joiner_confirms, self.transcript_hash, told):
            raise JoinCodeWrong("the joiner does not have this code")
        return self._joiner_sealed.open(proof.sealed_application)

    def seal_grant(self, grant: bytes) -> bytes:
        """The grant, for this joiner alone."""
        return self._issuer_seals.seal(grant)


def _password(kind: JoinCodeKind, secret: bytes) -> bytes:
    """The short code and the long one of an invitation are never each other's."""
    return kind.value.encode("ascii") + b"\0" + secret


def _check_side(node_id: str, pake_message: bytes) -> None:
    if not is_node_id(node_id):
        raise MalformedMessage("node_id is no SHA-256, hexadecimal in lower case")
    if len(pake_message) != PAKE_MESSAGE_BYTES:
        raise MalformedMessage(f"a message of the key exchange has {PAKE_MESSAGE_BYTES} bytes")


def _known(keys: JoinKeys | None) -> JoinKeys:
    if keys is None:
        raise RuntimeError("nothing is sealed before the other side is confirmed")
    return keys
