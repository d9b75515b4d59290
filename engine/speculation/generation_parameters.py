"""What a generation is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kakeya_fleet.engine.contracts.guide import Guide
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.engine.sampling.choice import GREEDY, SamplingParameters

MAX_TOKENS = 1 << 20
DEFAULT_DRAFT_DEADLINE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class GenerationParameters:
    """What a generation is asked for.

    `max_tokens` 1 to 2**20. `deadline_seconds` of the whole generation, 0 for
    none. `block_size` tokens are drafted at most, 0 for as many as one forward
    verifies. `draft_deadline_seconds` is the longest wait for one draft.
    `adaptive` lets the measured pace choose smaller blocks and drop drafting. The latest
    `said_count` tokens of the history are this generation's own: it goes on with what it said
    elsewhere. `guide` holds it to a grammar, has taken those tokens, and is used by nobody else.
    Raises `BadParameters`.
    """

    max_tokens: int
    sampling: SamplingParameters = GREEDY
    stop_ids: frozenset[int] = frozenset()
    deadline_seconds: float = 0.0
    block_size: int = 0
    draft_deadline_seconds: float = DEFAULT_DRAFT_DEADLINE_SECONDS
    adaptive: bool = True
    said_count: int = 0
    guide: Guide | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.max_tokens <= MAX_TOKENS:
            raise BadParameters(
                f"max_tokens {self.max_tokens} is not between 1 and {MAX_TOKENS}",
                field="max_tokens",
            )
        if self.block_size < 0:
            raise BadParameters(
                f"block_size {self.block_size} is negative; 0 is automatic", field="block_size"
            )
        if self.said_count < 0:
            raise BadParameters(f"said_count {self.said_count} is negative", field="said_count")
        for field in ("deadline_seconds", "draft_deadline_seconds"):
            seconds = getattr(self, field)
            if not (math.isfinite(seconds) and seconds >= 0.0):
                raise BadParameters(
                    f"{field} {seconds} is not a finite number of seconds from 0 on", field=field
                )
