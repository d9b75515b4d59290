"""The dashboard's bounds, written for its process: they stand in `node.admission.limits`."""

from __future__ import annotations

import textwrap

from kakeya_fleet.node.admission.knob import knobs
from kakeya_fleet.node.admission.limits import DashboardLimits

_HEAD = """\
// Written by scripts/write/stubs.py from node/admission/limits.py; do not edit.

/** What programs of this machine, pages and nodes may have of this process. */
export const LIMITS = {
"""
_WIDTH = 96


def typescript() -> str:
    """The text of `dashboard/shared/limits.ts`: camelCase names, units as there."""
    lines = []
    for knob in knobs("dashboard", DashboardLimits()):
        first, *others = knob.name.removeprefix("dashboard.").split("_")
        name = first + "".join(map(str.capitalize, others))
        lines += textwrap.wrap(knob.why, _WIDTH, initial_indent="  // ", subsequent_indent="  // ")
        lines.append(f"  {name}: {knob.value:_.0f},")
    return _HEAD + "\n".join(lines) + "\n} as const;\n"
