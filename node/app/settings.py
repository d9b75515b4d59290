"""The times of a node that nobody configures."""

from __future__ import annotations

from dataclasses import dataclass, field

from kakeya_fleet.node.http.health_checks import HealthSettings


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What `open_node` composes a node with, beside its configuration."""

    ring_trial_seconds: float = 2.0
    """From the start of serving to the trial of a ring, which takes a core for half a second."""

    health: HealthSettings = field(default_factory=HealthSettings)
    """When the node is well."""
