"""The times of membership."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """All in seconds. Timeouts are multiplied by `Awareness.stretch`, 1 to 8."""

    period_seconds: float = 1.0
    """One exchange and one `Tick` a period."""

    exchange_timeout_seconds: float = 0.5
    """Time for a direct exchange."""

    farewell_seconds: float = 3.0
    """Time for the exchange by which a node leaves, never multiplied. It has no other chance, so a
    busy peer may answer late; a peer that is gone holds up the leave for as long."""

    probe_timeout_seconds: float = 0.5
    """Time that a helper gives the node it probes."""

    helper_count: int = 3
    """Helpers that are asked when a direct exchange failed."""

    dial_seconds: float = 10.0
    """Between calls to a dead or seed peer, so that partitions heal."""

    tombstone_seconds: float = 86400.0
    """How long DEAD and LEFT nodes are remembered."""

    stranger_tombstone_seconds: float = 600.0
    """The same of nodes that never answered this one: longer than all others take to bury them."""
