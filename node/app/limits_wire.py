"""A node's bounds as they travel."""

from __future__ import annotations

from kakeya.v1 import capability_pb2 as wire
from kakeya_fleet.node.admission.allowances import Use
from kakeya_fleet.node.admission.knob import Unit
from kakeya_fleet.node.admission.share import Cause

UNITS: dict[Unit, wire.LimitUnit.ValueType] = {
    Unit.PLACES: wire.LIMIT_UNIT_PLACES,
    Unit.BYTES: wire.LIMIT_UNIT_BYTES,
    Unit.SECONDS: wire.LIMIT_UNIT_SECONDS,
    Unit.TOKENS: wire.LIMIT_UNIT_TOKENS,
    Unit.VALUES: wire.LIMIT_UNIT_VALUES,
    Unit.A_SECOND: wire.LIMIT_UNIT_A_SECOND,
}


def use_to_wire(use: Use) -> wire.LimitUse:
    """One bound, and what is taken of it."""
    return wire.LimitUse(
        name=use.knob.name,
        unit=UNITS[use.knob.unit],
        limit=use.knob.value,
        used=use.used or 0,
        is_counted=use.used is not None,
        refused_full_count=use.refused.get(Cause.FULL, 0),
        refused_share_count=use.refused.get(Cause.SHARE, 0),
        why=use.knob.why,
    )
