"""What the two sides of a join say before anything is sealed, and the bounds of all messages."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.fleet.trust.join_code import JoinCodeKind

MAX_REQUEST_BYTES = 1 << 16
"""Largest message that an issuer takes; gRPC refuses more before it is parsed."""
MAX_GRANT_BYTES = 1 << 20
"""Largest message that a joiner takes."""


@dataclass(frozen=True, slots=True)
class JoinerHello:
    """The joiner's first message. `node_id` is hexadecimal, `pake_message` has 33 bytes."""

    protocol_min: int
    protocol_max: int
    code_kind: JoinCodeKind
    nameplate: str
    node_id: str
    pake_message: bytes


@dataclass(frozen=True, slots=True)
class IssuerHello:
    """The issuer's answer. `confirmation` has 32 bytes."""

    protocol_version: int
    node_id: str
    pake_message: bytes
    confirmation: bytes = b""


@dataclass(frozen=True, slots=True)
class JoinerProof:
    """That the joiner has the key, in 32 bytes, and its sealed application."""

    confirmation: bytes
    sealed_application: bytes
