"""Statements between the wire and the domain.

What travels is the signer's serialized bytes: they are kept as they came.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import DecodeError

from kakeya.v1 import model_pb2, trust_pb2
from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.errors import StatementRejected
from kakeya_fleet.fleet.trust.keys import (
    KEY_ID_DIGITS,
    MAX_NAME_CHARACTERS,
    ApplicationKey,
    Scope,
)
from kakeya_fleet.fleet.trust.statements import (
    AllowedRoles,
    Keeper,
    KeyRevocation,
    Revocation,
    Says,
    Statement,
)
from kakeya_fleet.node.errors import BadCertificate
from kakeya_fleet.node.trust.certificates import authority_id

MAX_BODY_BYTES = 65_536


SCOPES = {
    Scope.GENERATE: trust_pb2.KEY_SCOPE_GENERATE,
    Scope.OBSERVE: trust_pb2.KEY_SCOPE_OBSERVE,
}
ROLES = {
    Role.VERIFIER: model_pb2.ROLE_VERIFIER,
    Role.PROPOSER: model_pb2.ROLE_PROPOSER,
    Role.ARCHIVE: model_pb2.ROLE_ARCHIVE,
}
_DIGEST_BYTES = 32


def scopes_from_wire(scopes: Iterable[trust_pb2.KeyScope.ValueType]) -> frozenset[Scope]:
    """Those that this version knows: of others it grants nothing."""
    told = set(scopes)
    return frozenset(scope for scope, number in SCOPES.items() if number in told)


def roles_from_wire(roles: Iterable[model_pb2.Role.ValueType]) -> frozenset[Role]:
    """Those that this version knows: it serves no others."""
    told = set(roles)
    return frozenset(role for role, number in ROLES.items() if number in told)


def body_of(fleet_id: str, says: Says, now_unix: float) -> bytes:
    """What an authority signs."""
    body = trust_pb2.StatementBody(fleet_id=fleet_id)
    match says:
        case Keeper():
            body.keeper.node_id = says.node_id
            body.keeper.certificate = says.certificate
        case Revocation():
            body.revocation.node_id = says.node_id
            body.revocation.upheld.extend(sorted(says.upheld))
            body.revocation.revoked_at_unix = now_unix
        case ApplicationKey():
            body.key.name = says.name
            body.key.secret_sha256 = says.digest
            body.key.scopes.extend(sorted(SCOPES[each] for each in says.scopes))
            body.key.session_limit = says.session_limit
            body.key.tokens_per_minute = says.tokens_per_minute
            body.key.generation_limit = says.generation_limit
            body.key.expires_at_unix = says.expires_at_unix
            body.key.made_at_unix = says.made_at_unix
        case KeyRevocation():
            body.key_revocation.key_id = says.key_id
            body.key_revocation.revoked_at_unix = now_unix
        case AllowedRoles():
            body.allowed_roles.node_id = says.node_id
            body.allowed_roles.any = says.roles is None
            body.allowed_roles.roles.extend(sorted(ROLES[each] for each in says.roles or ()))
            body.allowed_roles.replaced.extend(sorted(says.replaced))
            body.allowed_roles.said_at_unix = now_unix
    return body.SerializeToString(deterministic=True)


def statement_to_wire(statement: Statement) -> trust_pb2.Statement:
    """The message of a statement."""
    return trust_pb2.Statement(
        body=statement.body, signer=statement.signer, signature=statement.signature
    )


def statement_from_wire(message: trust_pb2.Statement, fleet_id: str) -> Statement:
    """Decodes a statement; the ledger checks who signed it.

    Raises `StatementRejected` for one of another fleet, and for what is none.
    """
    if len(message.body) > MAX_BODY_BYTES:
        raise StatementRejected(f"a statement of {len(message.body)} bytes is none")
    try:
        body = trust_pb2.StatementBody.FromString(message.body)
    except DecodeError as error:
        raise StatementRejected("the bytes are no statement") from error
    if body.fleet_id != fleet_id:
        raise StatementRejected("the statement is of another fleet")
    return Statement(_said(body), message.body, message.signer, message.signature)


def statement_from_bytes(content: bytes, fleet_id: str) -> Statement:
    """Decodes a serialized statement. Raises `StatementRejected`."""
    try:
        message = trust_pb2.Statement.FromString(content)
    except DecodeError as error:
        raise StatementRejected("the bytes are no statement") from error
    return statement_from_wire(message, fleet_id)


def _key_of(key: trust_pb2.KeyStatement) -> ApplicationKey:
    if len(key.secret_sha256) != _DIGEST_BYTES or len(key.name) > MAX_NAME_CHARACTERS:
        raise StatementRejected("the statement is of no key")
    return ApplicationKey(
        name=key.name,
        digest=key.secret_sha256,
        scopes=scopes_from_wire(key.scopes),
        session_limit=key.session_limit,
        tokens_per_minute=key.tokens_per_minute,
        generation_limit=key.generation_limit,
        expires_at_unix=key.expires_at_unix,
        made_at_unix=key.made_at_unix,
    )


def _said(body: trust_pb2.StatementBody) -> Says:
    match body.WhichOneof("says"):
        case "keeper":
            certificate = body.keeper.certificate
            try:
                return Keeper(body.keeper.node_id, authority_id(certificate), certificate)
            except BadCertificate as error:
                raise StatementRejected(error.cause) from error
        case "revocation":
            return Revocation(body.revocation.node_id, frozenset(body.revocation.upheld))
        case "key":
            return _key_of(body.key)
        case "key_revocation" if len(body.key_revocation.key_id) == KEY_ID_DIGITS:
            return KeyRevocation(body.key_revocation.key_id)
        case "allowed_roles":
            said = body.allowed_roles
            roles = None if said.any else roles_from_wire(said.roles)
            return AllowedRoles(said.node_id, roles, frozenset(said.replaced))
        case _:
            raise StatementRejected("the statement says nothing that this version knows")


def pack(statements: Iterable[Statement]) -> bytes:
    """Statements as one file keeps them."""
    kept = trust_pb2.ExchangeStatementsResponse(statements=map(statement_to_wire, statements))
    return kept.SerializeToString()


def unpack(content: bytes, fleet_id: str) -> list[Statement]:
    """What `pack` made. Raises `StatementRejected`."""
    try:
        kept = trust_pb2.ExchangeStatementsResponse.FromString(content)
    except DecodeError as error:
        raise StatementRejected("the bytes are no statements") from error
    return [statement_from_wire(each, fleet_id) for each in kept.statements]
