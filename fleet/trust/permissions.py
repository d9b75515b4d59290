"""Who may call what, in a fleet with an authority: one table.

A caller is what its connection proves. Methods that nobody is named for are nobody's: a new one
has to be thought about.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Caller(StrEnum):
    """What a connection proves of whoever calls."""

    OWNER = "owner"
    """Knows the owner's key, which only the user can read who started the node."""
    KEEPER = "keeper"
    """A member with an authority of its own."""
    MEMBER = "member"
    """Shows a certificate of this fleet that was not revoked."""
    LOCAL = "local"
    """A program of this machine, which shows nothing."""
    GENERATOR = "key that generates"
    """An application with a key whose scope is `generate`."""
    OBSERVER = "key that observes"
    """An application with a key whose scope is `observe`."""


_EVERYONE = frozenset({Caller.OWNER, Caller.KEEPER, Caller.MEMBER, Caller.LOCAL})
_GENERATING = _EVERYONE | {Caller.GENERATOR}
_OBSERVING = _EVERYONE | {Caller.OBSERVER}
_ANYBODY_WITH_A_KEY = _GENERATING | _OBSERVING
_MEMBERS = frozenset({Caller.OWNER, Caller.KEEPER, Caller.MEMBER})
_KEEPERS = frozenset({Caller.KEEPER})
_OWNER = frozenset({Caller.OWNER})
_RESPONSIBLE = _OWNER | _KEEPERS

PERMITTED: Mapping[str, frozenset[Caller]] = MappingProxyType(
    {
        # Applications: those of this machine, those with a key; members for the people at theirs.
        "kakeya.v1.RuntimeService": _GENERATING,
        "kakeya.v1.RuntimeService/ListSessions": _ANYBODY_WITH_A_KEY,
        "kakeya.v1.RuntimeService/WatchSessions": _ANYBODY_WITH_A_KEY,
        "kakeya.v1.PlacementService": _GENERATING,
        "kakeya.v1.CapabilityService/GetNode": _ANYBODY_WITH_A_KEY,
        "kakeya.v1.CapabilityService/ListLimits": _OBSERVING,
        "kakeya.v1.CapabilityService/ListCodecs": _OBSERVING,
        # Names, times and counts of a request whose id the caller knows.
        "kakeya.v1.CapabilityService/GetSpans": _OBSERVING,
        "kakeya.v1.CapabilityService/WatchFleet": _ANYBODY_WITH_A_KEY,
        "kakeya.v1.CapabilityService/WatchNode": _OBSERVING,
        "grpc.health.v1.Health": _ANYBODY_WITH_A_KEY,
        "grpc.reflection.v1alpha.ServerReflection": _EVERYONE,
        # Between nodes.
        "kakeya.v1.CapabilityService/ExchangeCapabilities": _MEMBERS,
        "kakeya.v1.CapabilityService/ProbePeer": _MEMBERS,
        "kakeya.v1.ProposerService": _MEMBERS,
        "kakeya.v1.TensorService": _MEMBERS,
        "kakeya.v1.ArchiveService": _MEMBERS,
        "kakeya.v1.TrustService/ExchangeStatements": _MEMBERS,
        "kakeya.v1.TrustService/RenewCertificate": _MEMBERS,
        "kakeya.v1.TrustService/MakeAuthority": _KEEPERS,
        "kakeya.v1.TrustService/GetTrust": _EVERYONE,
        # What a node serves and has on its disk: whose machine it is, and who keeps the fleet.
        "kakeya.v1.ModelService": _RESPONSIBLE,
        # A model's files, by its name, for the disks of other members.
        "kakeya.v1.ModelService/GetModelFiles": _MEMBERS,
        "kakeya.v1.ModelService/ReadPiece": _MEMBERS,
        "kakeya.v1.ModelService/ListModels": _EVERYONE,
        # Whose machine it is.
        "kakeya.v1.CapabilityService/Leave": _OWNER,
        "kakeya.v1.CapabilityService/ResetCodecs": _OWNER,
        "kakeya.v1.TrustService/Invite": _OWNER,
        "kakeya.v1.TrustService/Revoke": _OWNER,
        "kakeya.v1.TrustService/AddKeeper": _OWNER,
        "kakeya.v1.TrustService/AllowRoles": _OWNER,
        "kakeya.v1.TrustService/CreateKey": _OWNER,
        "kakeya.v1.TrustService/ListKeys": _OWNER,
        "kakeya.v1.TrustService/RevokeKey": _OWNER,
    }
)
"""By service, or by service and method where methods differ."""


def permitted(method: str) -> frozenset[Caller]:
    """Who may call a method such as "/kakeya.v1.RuntimeService/Generate"."""
    full = method.strip("/")
    service = full.partition("/")[0]
    return PERMITTED.get(full, PERMITTED.get(service, frozenset()))
