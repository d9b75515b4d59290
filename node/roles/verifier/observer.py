"""What a node's sessions tell those who watch, measure or trace them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kakeya_fleet.engine.speculation.generation_report import BlockTiming, Done, DropReason
    from kakeya_fleet.fleet.placement.codec_ladder import PackedQuality
    from kakeya_fleet.fleet.placement.plan import Placement
    from kakeya_fleet.node.links.protocol.changes import LinkChange
    from kakeya_fleet.node.roles.verifier.open_session import OpenSession


class Outcome(Enum):
    """How a session came to its end; the values are labels of metrics."""

    CLOSED = "closed"
    EVICTED = "evicted"
    INVARIANT_VIOLATED = "invariant_violated"
    GROUP_LOST = "group_lost"
    DRAINED = "drained"


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a generation, with what the engine does not know of it.

    `proposer` is whom the session is paired with, `drop_reason` why it decodes alone all the
    same. `link_changes` are those since the session's generation before; `started_at` is in the
    seconds of the same clock.
    """

    done: Done
    queue_seconds: float
    proposer: Placement | None
    drop_reason: DropReason | None
    restorer_rebuild_count: int = 0
    recomputed_count: int = 0
    link_changes: tuple[LinkChange, ...] = ()
    started_at: float = 0.0
    quality: PackedQuality | None = None
    """How exactly the session was kept behind its window at the end; None for as it lies."""


class SessionObserver:
    """Hears of every session of a node, in order, on the event loop's thread; here, to no effect.

    Calls must return at once and raise nothing. Between `began` and the `finished` or
    `left` that follows it, no other generation of that session begins.
    """

    def opened(self, session: OpenSession) -> None:
        """A session was opened or forked."""

    def prefilled(self, session: OpenSession, token_count: int, seconds: float) -> None:
        """Keys and values of appended tokens were computed."""

    def began(self, session: OpenSession) -> None:
        """A generation has its turn."""

    def committed(self, session: OpenSession, token_count: int) -> None:
        """Tokens were committed; at least one."""

    def block(self, session: OpenSession, block: BlockTiming) -> None:
        """A block was verified."""

    def finished(self, session: OpenSession, finished: Finished) -> None:
        """A generation came to its own end."""

    def left(self, session: OpenSession) -> None:
        """A generation was cancelled by its client, or failed."""

    def idle(self, session: OpenSession) -> None:
        """An append or a generation has given up its turn, however it ended."""

    def rested(self, session: OpenSession) -> None:
        """It gave its memory to another session, and stays open."""

    def ended(self, session: OpenSession, outcome: Outcome) -> None:
        """The session is no more."""
