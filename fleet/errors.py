"""Errors of the fleet's decisions.

FleetError
├── CardRejected        a card breaks a rule of the contract
├── ModelNotFound       no live node serves the model
├── NoPlacement         a node serves the model, none can take the session
├── NodeNotFound        no node of that id is known
├── FleetMismatch       the other side belongs to another fleet
├── ProtocolSkew        the two sides share no protocol version
├── StatementRejected   what is said of whom the fleet trusts cannot be taken
├── JoinCodeMalformed   a text is no code of a join, or mistyped
├── JoinCodeWrong       the two sides of a join do not have the same code
├── InvitationClosed    expired, locked, used or withdrawn; `cause` says which
├── NoInvitationFound   no node has such an invitation open
├── TooManyInvitations  a node has as many open as it may
├── JoinRefused         the code was right, and the node refuses all the same
├── KeyMissing          an application shows no key
├── KeyUnknown          the key is none of this fleet's
├── KeyRevoked          the key was put out of force
├── KeyExpired          the key's time is over
├── KeyLimitReached     the key has as many sessions or generations as it may
├── KeyTokensSpent      the key has spent its tokens of this minute
├── KeyNotFound         no key has that name or id
├── KeyAmbiguous        a key of that name is in force, or several are
└── TooManyKeys         the fleet has made as many keys as it may

Each has a `reason` in UPPER_SNAKE_CASE, which is the ErrorInfo reason on the
wire, and `metadata` for programs.
"""

from __future__ import annotations

from typing import ClassVar


class FleetError(Exception):
    """Base of all errors of this package."""

    reason: ClassVar[str] = "FLEET_ERROR"

    def __init__(self, message: str, **metadata: str) -> None:
        super().__init__(message)
        self.metadata = metadata


class CardRejected(FleetError):
    """A card breaks a rule; `rule` names it in UPPER_SNAKE_CASE."""

    reason = "CARD_REJECTED"

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message, rule=rule)
        self.rule = rule


class ModelNotFound(FleetError):
    """No live node serves the model."""

    reason = "MODEL_NOT_FOUND"


class NoPlacement(FleetError):
    """A node serves the model, but none can take the session."""

    reason = "NO_PLACEMENT"


class NodeNotFound(FleetError):
    """No node of that id is known."""

    reason = "NODE_NOT_FOUND"


class FleetMismatch(FleetError):
    """The other side belongs to another fleet."""

    reason = "FLEET_MISMATCH"


class ProtocolSkew(FleetError):
    """The two sides share no protocol version."""

    reason = "PROTOCOL_SKEW"


class StatementRejected(FleetError):
    """What is said of whom the fleet trusts cannot be taken."""

    reason = "STATEMENT_REJECTED"


class JoinCodeMalformed(FleetError):
    """A text is no code of a join, or a character of it was mistyped; nothing was sent."""

    reason = "JOIN_CODE_MALFORMED"


class JoinCodeWrong(FleetError):
    """The two sides of a join do not have the same code; metadata may have `tries_left`."""

    reason = "JOIN_CODE_WRONG"


class InvitationClosed(FleetError):
    """The invitation is over; metadata `cause` is EXPIRED, LOCKED, USED or WITHDRAWN."""

    reason = "INVITATION_CLOSED"


class NoInvitationFound(FleetError):
    """No node was found that has such an invitation open."""

    reason = "NO_INVITATION_FOUND"


class TooManyInvitations(FleetError):
    """A node has as many invitations open as it may."""

    reason = "RESOURCE_EXHAUSTED"


class JoinRefused(FleetError):
    """The code was right, and the node refuses all the same; the message has its words."""

    reason = "JOIN_REFUSED"


class KeyMissing(FleetError):
    """An application of a fleet with an authority shows no key."""

    reason = "KEY_MISSING"


class KeyUnknown(FleetError):
    """The key is none of this fleet's, or was not heard of yet."""

    reason = "KEY_UNKNOWN"


class KeyRevoked(FleetError):
    """The key was put out of force."""

    reason = "KEY_REVOKED"


class KeyExpired(FleetError):
    """The key's time is over."""

    reason = "KEY_EXPIRED"


class KeyLimitReached(FleetError):
    """The key has as much as it may; metadata has `limit` and `most`."""

    reason = "KEY_LIMIT_REACHED"


class KeyTokensSpent(FleetError):
    """The key has spent its tokens; metadata has `retry_after_seconds`."""

    reason = "KEY_TOKENS_SPENT"


class KeyNotFound(FleetError):
    """No key of the fleet has that name or id."""

    reason = "KEY_NOT_FOUND"


class KeyAmbiguous(FleetError):
    """A key of that name is in force, or several are."""

    reason = "KEY_AMBIGUOUS"


class TooManyKeys(FleetError):
    """The fleet has made as many keys as it ever may."""

    reason = "TOO_MANY_KEYS"
