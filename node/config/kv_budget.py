"""How much of a machine's memory a node gives to keys and values if nothing is said."""

from __future__ import annotations

SHARE = 4
"""One part in so many of what is free when the node starts, before its models are loaded."""


def kv_budget_bytes(available_bytes: int) -> int:
    """K/V bytes of all sessions together, of `available_bytes` of memory."""
    return available_bytes // SHARE
