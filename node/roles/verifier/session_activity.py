"""What one session did since it was opened, and its latest blocks."""

from __future__ import annotations

from collections import deque

from kakeya_fleet.engine.speculation.generation_report import (
    TIMELINE_BLOCKS,
    BlockTiming,
    DropReason,
    StopReason,
)
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.watch.latest_rate import LatestRate

RATE_SECONDS = 2.0


class SessionActivity:
    """Adds up. `now` is in the monotonic seconds of the node's clock."""

    def __init__(self, session: OpenSession) -> None:
        self.session = session
        self.generation_count = 0
        self.generated_token_count = 0
        self.prefilled_token_count = 0
        self.prefill_seconds = 0.0
        self.drafted_count = 0
        self.accepted_count = 0
        self.verify_forward_count = 0
        self.draft_seconds = 0.0
        self.wire_seconds = 0.0
        self.wait_seconds = 0.0
        self.verify_seconds = 0.0
        self.stop_reason: StopReason | None = None
        self.drop_reason: DropReason | None = None
        """As it was when somebody looked last."""
        self.told_idle = True
        """Whether those who watch were last told that nothing runs on it."""
        self.told_block_count = 0
        """Blocks that `new_blocks` gave in all."""
        self.generation_began_at = 0.0
        self._blocks: deque[tuple[int, BlockTiming]] = deque(maxlen=TIMELINE_BLOCKS)
        self._untold = 0
        self._running = False
        self._rate = LatestRate(RATE_SECONDS)
        self._last_rate = 0.0

    def prefilled(self, token_count: int, seconds: float) -> None:
        """Keys and values of appended tokens were computed."""
        self.prefilled_token_count += token_count
        self.prefill_seconds += seconds

    def began(self, now: float) -> None:
        """A generation has its turn."""
        self.generation_count += 1
        self.generation_began_at = now
        self._running = True
        self._rate = LatestRate(RATE_SECONDS)
        self._last_rate = 0.0

    def committed(self, token_count: int, now: float) -> None:
        """A block's tokens were committed."""
        self.generated_token_count += token_count
        self._rate.reached(self.generated_token_count, now)

    def block(self, block: BlockTiming) -> None:
        """A block was verified, whose tokens are committed next."""
        if not self._blocks or self._blocks[-1][0] != self.generation_count:
            # Decoding began with this block: what was before it, prefill, is no part of the rate.
            began = self.generation_began_at + block.start_seconds
            self._rate.reached(self.generated_token_count, began)
        self._blocks.append((self.generation_count, block))
        self._untold = min(self._untold + 1, TIMELINE_BLOCKS)
        self.verify_forward_count += 1
        self.drafted_count += block.drafted_count
        self.accepted_count += block.accepted_count
        self.draft_seconds += block.draft_seconds
        self.wire_seconds += block.wire_seconds
        self.wait_seconds += block.wait_seconds
        self.verify_seconds += block.verify_seconds

    def over(self, stop_reason: StopReason | None, rate: float | None, now: float) -> None:
        """The generation ended at `rate` tokens a second; None where nobody measured the whole."""
        self._last_rate = self._rate.rate(now) if rate is None else rate
        self._running = False
        self.stop_reason = stop_reason

    def tokens_per_second(self, now: float) -> float:
        """Of the latest seconds of the generation that runs, or of the whole of the latest."""
        return self._rate.rate(now) if self._running else self._last_rate

    def told_blocks(self, most: int) -> list[tuple[int, BlockTiming]]:
        """The latest (generation, block) that were given by `new_blocks`, oldest first."""
        told = len(self._blocks) - self._untold
        return list(self._blocks)[max(0, told - most) : told]

    def new_blocks(self) -> list[tuple[int, BlockTiming]]:
        """Those that were not given before, oldest first."""
        told = len(self._blocks) - self._untold
        self.told_block_count += self._untold
        self._untold = 0
        return list(self._blocks)[told:]
