"""How much a node's roles have to do now."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoleLoad:
    """The numbers of NodeLoad that the roles know; free memory is not theirs."""

    session_count: int = 0
    generating_count: int = 0
    draft_stream_count: int = 0
    kv_bytes: int = 0
    kv_budget_bytes: int = 0
    archive_count: int = 0
    archive_bytes: int = 0
    archive_budget_bytes: int = 0
