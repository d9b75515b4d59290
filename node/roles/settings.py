"""Limits of what a node serves."""

from __future__ import annotations

from dataclasses import dataclass, field

from kakeya_fleet.node.links.protocol.settings import LinkSettings
from kakeya_fleet.node.roles.groups.group_settings import GroupSource


@dataclass(frozen=True, slots=True)
class RestorerSettings:
    """Limits of the sessions' restorers, in seconds.

    `deadline` is the longest wait for one answer, `rebuild` that for another
    archive when one was lost, `lease` what an archive lies unused.
    """

    deadline: float = 2.0
    rebuild: float = 15.0
    lease: float = 3600.0


@dataclass(frozen=True, slots=True)
class RoleSettings:
    """Limits of the roles."""

    kv_budget_bytes: int = 1 << 30
    """K/V bytes of all sessions; divided evenly among the node's verifiers."""
    session_ttl_seconds: float = 1800.0
    """Idle seconds after which a session is evicted."""
    draft_stream_limit: int = 256
    """Draft streams served at once."""
    draft_deadline_seconds: float = 0.25
    """Longest wait of a verifier for one draft."""
    dtype: str = "float32"
    """Number format of the computation of verifiers and proposers."""
    backend: str = "auto"
    """What computes: torch, mlx or auto."""
    links: str = "auto"
    """What carries tensors between nodes: grpc, local, ring or auto."""
    link_settings: LinkSettings = field(default_factory=LinkSettings)
    """When links take roads and leave them, and how long they wait for what."""
    host: str = "127.0.0.1"
    """Where an archive listens, at a port of its own."""
    group: GroupSource | None = None
    """The hostfile of the ranks that serve the verifier; None for this process."""
    restorers: RestorerSettings = field(default_factory=RestorerSettings)
    """Limits of what restores the sessions' evicted positions."""
