"""What callers share, with bounds that a test can reach."""

from __future__ import annotations

from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.limits import (
    ArchiveLimits,
    CallLimits,
    DraftLimits,
    HttpLimits,
    JoiningLimits,
    Limits,
    LinkServingLimits,
)
from kakeya_fleet.node.metrics import NodeMetrics

Group = ArchiveLimits | CallLimits | DraftLimits | HttpLimits | JoiningLimits | LinkServingLimits


def allowances_of(metrics: NodeMetrics | None = None, **groups: Group) -> Allowances:
    """allowances_of(links=LinkServingLimits(at_once=3)): everything else as it is by default."""
    limits = Limits(**groups)  # type: ignore[arg-type]  # a group's name is its field
    return Allowances(limits, metrics or NodeMetrics())
