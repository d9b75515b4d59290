"""Errors of the node, each one sentence of cause and one of mend.

NodeError
├── BadConfig          a key, value, flag or file of the configuration
├── InsecureBind       another interface than loopback without `insecure`
├── LoopbackBind       bound to loopback, with a peer on another machine
├── PortInUse          the address cannot be bound
├── StateUnwritable    a state file cannot be made durable
├── StateLocked        another agent uses the same state
├── StateExposed       others can read the private key
├── IdentityCorrupt    the private key cannot be read; never regenerated
├── IncarnationCorrupt the durable counter cannot be read; never guessed
├── CloneYields        another process announces this node's identity
├── BadCertificate     a certificate that makes nobody a member here
├── TrustCorrupt       what is kept of the fleet's authority cannot be read
├── NoAuthority        the fleet has no authority: who is in it is not checked
├── NotAKeeper         only a keeper can do that
├── LastKeeper         nobody could let machines in any more
└── AlreadyMember      the node belongs to a fleet with an authority

Each has a `reason` in UPPER_SNAKE_CASE and `metadata` for programs.
"""

from __future__ import annotations

from typing import ClassVar


class NodeError(Exception):
    """Base of the errors that stop a node; the message is meant for people."""

    reason: ClassVar[str] = "NODE_ERROR"

    def __init__(self, cause: str, mend: str, **metadata: str) -> None:
        super().__init__(f"{cause}: {mend}")
        self.cause = cause
        self.mend = mend
        self.metadata = metadata


class BadConfig(NodeError):
    """A key, value, flag or file of the configuration is wrong."""

    reason = "BAD_CONFIG"


class InsecureBind(NodeError):
    """The bind address is not loopback, and nobody said that this is wanted."""

    reason = "INSECURE_BIND"


class LoopbackBind(NodeError):
    """The node would announce an address at which its peers cannot answer."""

    reason = "LOOPBACK_BIND"


class PortInUse(NodeError):
    """The address cannot be bound."""

    reason = "PORT_IN_USE"


class StateUnwritable(NodeError):
    """A state file cannot be made durable."""

    reason = "STATE_UNWRITABLE"


class StateLocked(NodeError):
    """Another agent uses the same state directory."""

    reason = "STATE_LOCKED"


class StateExposed(NodeError):
    """Others than the owner can read the private key."""

    reason = "STATE_EXPOSED"


class IdentityCorrupt(NodeError):
    """The private key cannot be read. It is never regenerated silently."""

    reason = "IDENTITY_CORRUPT"


class IncarnationCorrupt(NodeError):
    """The durable incarnation cannot be read.

    A guess could repeat an incarnation that the fleet has seen.
    """

    reason = "INCARNATION_CORRUPT"


class CloneYields(NodeError):
    """Another process announces this node's identity, and it is the one that stays."""

    reason = "CLONE_YIELDS"


class BadGroup(NodeError):
    """The hostfile cannot be used on this node, or for these roles."""

    reason = "BAD_GROUP"


class GroupNotStarted(NodeError):
    """The ranks did not come, or one of them ended before all were ready."""

    reason = "GROUP_NOT_STARTED"


class BadCertificate(NodeError):
    """A certificate makes nobody a member here; `metadata["fault"]` may say why."""

    reason = "BAD_CERTIFICATE"


class TrustCorrupt(NodeError):
    """What is kept of the fleet's authority cannot be read; it is never made anew."""

    reason = "TRUST_CORRUPT"


class NoAuthority(NodeError):
    """The fleet has no authority: whoever is on its network is in it."""

    reason = "NO_AUTHORITY"


class NotAKeeper(NodeError):
    """Only a keeper has the key of an authority."""

    reason = "NOT_A_KEEPER"


class LastKeeper(NodeError):
    """Nobody could let machines in, or renew certificates, any more."""

    reason = "LAST_KEEPER"


class AlreadyMember(NodeError):
    """The node belongs to a fleet with an authority, and is to join another."""

    reason = "ALREADY_A_MEMBER"
