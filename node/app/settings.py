"""The times of a node that nobody configures."""

from __future__ import annotations

from dataclasses import dataclass, field

from kakeya_fleet.node.http.settings import HealthSettings
from kakeya_fleet.node.roles.settings import CodecSettings


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What `open_node` composes a node with, beside its configuration."""

    ring_trial_seconds: float = 2.0
    """From the start of serving to the trial of a ring, which takes a core for half a second."""

    codec_quiet_seconds: float = CodecSettings().quiet_seconds
    """All sessions are idle for so long before a codec is measured."""

    health: HealthSettings = field(default_factory=HealthSettings)
    """When the node is well."""
