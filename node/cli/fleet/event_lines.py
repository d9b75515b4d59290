"""Events as they are listed: what several nodes tell of one node is one line. Pure.

The dashboard's `event_lines.ts` has the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kakeya import NodeEvent

# Nodes learn of the same change within this: gossip takes seconds, and clocks differ.
WINDOW_SECONDS = 15.0

_JOINED = "PEER_JOINED"
# Each of these is one change of one node, which every other node tells.
_MEMBERSHIP = {_JOINED, "PEER_SUSPECT", "PEER_DEAD", "PEER_LEFT"}


@dataclass(slots=True)
class EventLine:
    """An event as the first node told it, and the ids of all nodes that did."""

    event: NodeEvent
    teller_ids: list[str] = field(default_factory=list)


def event_lines(told: Sequence[tuple[str, NodeEvent]]) -> list[EventLine]:
    """The lines of events, each with its teller's node id, in the order of their times.

    A node's change that several nodes tell within the window is one line. So is a node's
    joining for as long as it is not told lost: who comes later tells of all that are there.
    """
    lines: list[EventLine] = []
    by_subject: dict[str, list[EventLine]] = {}
    for teller_id, event in told:
        is_shared = event.kind in _MEMBERSHIP and event.subject_node_id != ""
        own = by_subject.setdefault(event.subject_node_id, []) if is_shared else []
        line = _line_of(own, teller_id, event)
        if line is None:
            line = EventLine(event)
            own.append(line)
            lines.append(line)
        if teller_id not in line.teller_ids:
            line.teller_ids.append(teller_id)
    return lines


def _line_of(own: Sequence[EventLine], teller_id: str, event: NodeEvent) -> EventLine | None:
    """The subject's line that the event repeats."""
    for line in own:
        is_near = event.at_unix - line.event.at_unix <= WINDOW_SECONDS
        if line.event.kind == event.kind and is_near and teller_id not in line.teller_ids:
            return line
    if event.kind == _JOINED and own and own[-1].event.kind == _JOINED:
        return own[-1]
    return None
