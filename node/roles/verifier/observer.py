"""What a node's sessions tell those who watch, measure or trace them."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kakeya_fleet.engine.speculation.generation_report import BlockTiming
    from kakeya_fleet.node.roles.verifier.finished import Finished
    from kakeya_fleet.node.roles.verifier.open_session import OpenSession


class Outcome(Enum):
    """How a session came to its end; the values are labels of metrics."""

    CLOSED = "closed"
    EVICTED = "evicted"
    INVARIANT_VIOLATED = "invariant_violated"
    GROUP_LOST = "group_lost"
    DRAINED = "drained"


class SessionObserver(Protocol):
    """Hears of every session of a node, in order, on the event loop's thread.

    Calls must return at once and raise nothing. Between `began` and the `finished` or
    `left` that follows it, no other generation of that session begins.
    """

    def opened(self, session: OpenSession) -> None:
        """A session was opened or forked; it is asked for its state later."""

    def prefilled(self, session_id: str, token_count: int, seconds: float) -> None:
        """Keys and values of appended tokens were computed."""

    def began(self, session_id: str) -> None:
        """A generation has its turn."""

    def committed(self, session_id: str, token_count: int) -> None:
        """Tokens were committed; at least one."""

    def block(self, session_id: str, block: BlockTiming) -> None:
        """A block was verified."""

    def finished(self, session_id: str, finished: Finished) -> None:
        """A generation came to its own end."""

    def left(self, session_id: str) -> None:
        """A generation was cancelled by its client, or failed."""

    def idle(self, session_id: str) -> None:
        """An append or a generation has given up its turn, however it ended."""

    def ended(self, session_id: str, outcome: Outcome) -> None:
        """The session is no more."""
