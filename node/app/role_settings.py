"""Limits of what a node serves, and what serving takes of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kakeya_fleet.node.links.protocol.settings import LinkSettings
from kakeya_fleet.node.roles.archive.session_restorers import RestorerSettings
from kakeya_fleet.node.roles.groups.group_settings import GroupSource


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


@dataclass(frozen=True, slots=True)
class RoleLoad:
    """The numbers of NodeLoad that the roles know; free memory is not theirs."""

    session_count: int
    generating_count: int
    draft_stream_count: int
    kv_bytes: int
    kv_budget_bytes: int
    archive_count: int = 0
    archive_bytes: int = 0
    archive_budget_bytes: int = 0
