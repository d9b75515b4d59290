"""What a joiner asks for and what it gets: made, bounded and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from kakeya_fleet.fleet.cards.address import parse_address
from kakeya_fleet.fleet.cards.rules import MAX_TEXT_CHARACTERS
from kakeya_fleet.fleet.cards.signed_message import node_id_of
from kakeya_fleet.node.joining.join_messages import MAX_GRANT_BYTES
from kakeya_fleet.node.joining.pake import LABEL
from kakeya_fleet.node.membership.identity import Identity, verifies
from kakeya_fleet.node.rpc.refusals import MalformedMessage

MAX_DER_BYTES = 8192
"""Largest certificate request, and largest certificate."""
MAX_FLEET_ID_CHARACTERS = 128
MAX_STATEMENTS = 1024
MAX_PEERS = 64


@dataclass(frozen=True, slots=True)
class Application:
    """What a joiner asks for: PKCS #10 in DER, its Ed25519 key, its name, and its signature."""

    certificate_request: bytes
    public_key: bytes
    name: str
    signature: bytes


@dataclass(frozen=True, slots=True)
class VerifiedApplication:
    """An application of a joiner that knew the code, has both keys and asked in this exchange.

    `node_id` is the digest of `public_key` (Ed25519, 32 bytes). `certificate_request` is PKCS #10
    in DER, signed by its own key; which kind of key and which names it asks for is not checked
    here. `caller` is where it came from, such as "192.168.1.7"; of IPv6, its network.
    """

    node_id: str
    public_key: bytes
    name: str
    certificate_request: bytes
    caller: str


@dataclass(frozen=True, slots=True)
class JoinGrantContent:
    """What a new member gets: its certificate (X.509 in DER), what keepers signed, whom to meet.

    `peers` are host:port of members.
    """

    certificate: bytes
    statements: tuple[bytes, ...]
    fleet_name: str
    fleet_id: str
    peers: tuple[str, ...]


Grant: TypeAlias = Callable[[VerifiedApplication], JoinGrantContent]
"""Decides. A `NodeError` or `FleetError` reaches the joiner as JOIN_REFUSED with its words."""


def signed_application(
    identity: Identity, name: str, certificate_request: bytes, transcript_hash: bytes
) -> Application:
    """The application of this exchange."""
    message = _signed_message(transcript_hash, certificate_request)
    return Application(certificate_request, identity.public_key, name, identity.sign(message))


def verified(
    application: Application, node_id: str, transcript_hash: bytes, caller: str
) -> VerifiedApplication:
    """The application, if it is of the node that said hello; raises `MalformedMessage`."""
    request = application.certificate_request
    _require(node_id_of(application.public_key) == node_id, "the key is of another node id")
    name = application.name
    _require(
        name and len(name) <= MAX_TEXT_CHARACTERS and name.isprintable(),
        f"a name has 1 to {MAX_TEXT_CHARACTERS} printable characters",
    )
    message = _signed_message(transcript_hash, request)
    _require(
        verifies(application.public_key, message, application.signature),
        "the application is not signed by the node's key for this exchange",
    )
    _require(_is_signed_request(request), "the certificate request is not signed by its own key")
    return VerifiedApplication(node_id, application.public_key, name, request, caller)


def check_grant(grant: JoinGrantContent, certificate_request: bytes) -> None:
    """Raises `MalformedMessage` for a grant past its bounds or for another key."""
    _require(len(grant.certificate) <= MAX_DER_BYTES, "the certificate is too long")
    _require(len(grant.statements) <= MAX_STATEMENTS, f"more than {MAX_STATEMENTS} statements")
    _require(sum(map(len, grant.statements)) <= MAX_GRANT_BYTES, "the statements are too long")
    _require(len(grant.peers) <= MAX_PEERS, f"more than {MAX_PEERS} peers")
    texts = ((grant.fleet_name, MAX_TEXT_CHARACTERS), (grant.fleet_id, MAX_FLEET_ID_CHARACTERS))
    for text, most in texts:
        _require(len(text) <= most and text.isprintable(), "a text is too long or not printable")
    for peer in grant.peers:
        try:
            parse_address(peer)
        except ValueError as error:
            raise MalformedMessage(f"of the peers, {error}") from error
    _require(_is_for(grant.certificate, certificate_request), "the certificate is for another key")


def _signed_message(transcript_hash: bytes, certificate_request: bytes) -> bytes:
    return LABEL + transcript_hash + certificate_request


def _is_signed_request(request: bytes) -> bool:
    if len(request) > MAX_DER_BYTES:
        return False
    try:
        return x509.load_der_x509_csr(request).is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def _is_for(certificate: bytes, request: bytes) -> bool:
    try:
        theirs = x509.load_der_x509_certificate(certificate).public_key()
        return theirs == x509.load_der_x509_csr(request).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def _require(holds: object, message: str) -> None:
    if not holds:
        raise MalformedMessage(message)
