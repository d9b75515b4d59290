"""Liveness of nodes, and what is said of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Liveness(IntEnum):
    """What is held of a node; the rank orders statements about one incarnation."""

    ALIVE = 1
    SUSPECT = 2
    DEAD = 3
    LEFT = 4

    @property
    def is_tombstone(self) -> bool:
        """Whether it ends the incarnation: DEAD or LEFT."""
        return self >= Liveness.DEAD


@dataclass(frozen=True, slots=True)
class Rumour:
    """A statement that the node's `incarnation` is `liveness`.

    `signature` is the node's own over `left_message(node_id, incarnation)`
    when `liveness` is LEFT, and empty otherwise.
    """

    node_id: str
    incarnation: int
    liveness: Liveness
    signature: bytes = b""
