"""What carried links, and when and why that changed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

from kakeya_fleet.node.links.protocol.contract import LinkPurpose, RoadKind

MOST_CHANGES = 64


class ChangeCause(StrEnum):
    """Why a link's transport changed; a label of its metric."""

    OPENED = "opened"
    FASTER = "faster"
    FORCED = "forced"
    PEER = "peer"
    SLOWER = "slower"
    FAULT = "fault"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class LinkChange:
    """A link carries its tensors by another road from `at`, in monotonic seconds, on."""

    at: float
    peer_node_id: str
    purpose: LinkPurpose
    kind: RoadKind
    generation: int
    cause: ChangeCause
    reason: str


class LinkLog:
    """The latest changes of one session's links, oldest first."""

    def __init__(self, most: int = MOST_CHANGES) -> None:
        self._changes: deque[LinkChange] = deque(maxlen=most)
        self._untold = 0

    def add(self, change: LinkChange) -> None:
        """Notes a change."""
        self._changes.append(change)
        self._untold = min(self._untold + 1, len(self._changes))

    def news(self) -> tuple[LinkChange, ...]:
        """The changes that it has not given before."""
        untold, self._untold = self._untold, 0
        return tuple(self._changes)[len(self._changes) - untold :]

    def latest(self, most: int) -> tuple[LinkChange, ...]:
        """The latest changes, at most `most`, oldest first, given before or not."""
        return tuple(self._changes)[-most:]

    def since(self, at: float) -> tuple[LinkChange, ...]:
        """The changes from `at`, in monotonic seconds, on."""
        return tuple(change for change in self._changes if change.at >= at)
