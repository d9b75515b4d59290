"""How a generation ended."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.engine.speculation.generation_report import Done, DropReason
from kakeya_fleet.fleet.placement.plan import Placement
from kakeya_fleet.node.links.link_log import LinkChange


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a generation, with what the engine does not know of it.

    `link_changes` are those since the session's generation before; `started_at` is in the
    seconds of the same clock.
    """

    done: Done
    queue_seconds: float
    proposer: Placement | None
    drop_reason: DropReason | None
    restorer_rebuild_count: int = 0
    link_changes: tuple[LinkChange, ...] = ()
    started_at: float = 0.0
