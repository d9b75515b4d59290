"""Statements between the wire and the domain.

What travels is the signer's serialized bytes: they are kept as they came.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import DecodeError

from kakeya.v1 import trust_pb2
from kakeya_fleet.fleet.errors import StatementRejected
from kakeya_fleet.fleet.trust.statements import Keeper, Revocation, Statement
from kakeya_fleet.node.errors import BadCertificate
from kakeya_fleet.node.trust.certificates import authority_id

MAX_BODY_BYTES = 65_536


def body_of(fleet_id: str, says: Keeper | Revocation, now_unix: float) -> bytes:
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


def _said(body: trust_pb2.StatementBody) -> Keeper | Revocation:
    match body.WhichOneof("says"):
        case "keeper":
            certificate = body.keeper.certificate
            try:
                return Keeper(body.keeper.node_id, authority_id(certificate), certificate)
            except BadCertificate as error:
                raise StatementRejected(error.cause) from error
        case "revocation":
            return Revocation(body.revocation.node_id, frozenset(body.revocation.upheld))
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
