"""What is kept of a generation until it is over: plain values, never a token."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kakeya_fleet.engine.speculation.generation_report import TIMELINE_BLOCKS, BlockTiming

if TYPE_CHECKING:
    from kakeya_fleet.node.roles.verifier.observer import Finished


@dataclass(slots=True)
class TracedPrefill:
    """Computation of appended tokens' keys and values, chunk after chunk.

    From `start_ns` to `end_ns` since 1970, `seconds` of them at work.
    """

    start_ns: int
    end_ns: int
    token_count: int
    seconds: float


@dataclass(slots=True)
class TracedSession:
    """The facts that all generations of a session share."""

    session_id: str
    model_id: str
    kv_strategy: str
    restorer: str


@dataclass(slots=True)
class TracedGeneration:
    """One generation; `traceparent` is its caller's, empty for none.

    `prefills` are those since the generation before. Of its blocks the latest are kept.
    `finished` is None for one that was cancelled or failed. Times are in nanoseconds
    since 1970.
    """

    session: TracedSession
    traceparent: str
    start_ns: int
    prefills: list[TracedPrefill]
    blocks: deque[BlockTiming] = field(default_factory=lambda: deque(maxlen=TIMELINE_BLOCKS))
    block_count: int = 0
    token_count: int = 0
    first_token_ns: int = 0
    end_ns: int = 0
    finished: Finished | None = None
