"""The counts of one generation."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace

import numpy as np

from kakeya_fleet.engine.contracts.draft import ProposerKey
from kakeya_fleet.engine.speculation.generation_report import (
    TIMELINE_BLOCKS,
    BlockTiming,
    DropReason,
    ProposerCounts,
    SpeculationStatistics,
)
from kakeya_fleet.engine.speculation.meanwhile import Meanwhile

# Round trips that are kept for the percentiles, the latest.
_ROUND_TRIPS = 1024


class Tally:
    """Adds up blocks, round trips and faults."""

    def __init__(self) -> None:
        self.timeline: deque[BlockTiming] = deque(maxlen=TIMELINE_BLOCKS)
        self.faults: Counter[DropReason] = Counter()
        self.ahead_hit_count = 0
        self.ahead_miss_count = 0
        self.hedge_count = 0
        self.hedge_won_count = 0
        self.token_count = 0
        self._forward_count = 0
        self._block_count = 0
        self._drafted_count = 0
        self._tried_count = 0
        self._accepted_count = 0
        self._forbidden_count = 0
        self._proposers: dict[ProposerKey, ProposerCounts] = {}
        self._wire_seconds: deque[float] = deque(maxlen=_ROUND_TRIPS)

    def add_round_trip(self, wire_seconds: float) -> None:
        """A draft arrived; `wire_seconds` is its round trip less the compute time."""
        self._wire_seconds.append(wire_seconds)

    def add_block(self, timing: BlockTiming, committed_count: int) -> None:
        """A block was verified and committed `committed_count` tokens."""
        self.timeline.append(timing)
        self.token_count += committed_count
        self._forward_count += 1
        self._block_count += timing.drafted_count > 0
        self._drafted_count += timing.drafted_count
        self._tried_count += timing.tried_count
        self._accepted_count += timing.accepted_count
        self._forbidden_count += timing.forbidden_count
        if timing.proposer is not None:
            before = self._proposers.get(timing.proposer, ProposerCounts(timing.proposer))
            self._proposers[timing.proposer] = replace(
                before,
                block_count=before.block_count + 1,
                drafted_count=before.drafted_count + timing.drafted_count,
                accepted_count=before.accepted_count + timing.accepted_count,
                committed_count=before.committed_count + committed_count,
                seconds=before.seconds + timing.wait_seconds + timing.verify_seconds,
            )

    def add_passed(self, proposer: ProposerKey | None, meanwhile: Meanwhile) -> None:
        """Drafted tokens that were compared with what was decoded meanwhile."""
        agreed, dropped = meanwhile.agreed_count, meanwhile.dropped_count
        self._drafted_count += agreed + dropped
        self._tried_count += agreed + (dropped > 0)
        self._accepted_count += agreed
        if proposer is not None:
            before = self._proposers.get(proposer, ProposerCounts(proposer))
            self._proposers[proposer] = replace(
                before,
                drafted_count=before.drafted_count + agreed + dropped,
                accepted_count=before.accepted_count + agreed,
                committed_count=before.committed_count + meanwhile.token_count,
                seconds=before.seconds + meanwhile.seconds,
            )

    def statistics(self, drop_reason: DropReason | None) -> SpeculationStatistics:
        """The sums so far."""
        wire = np.quantile(self._wire_seconds, [0.5, 0.99]) if self._wire_seconds else (0.0, 0.0)
        return SpeculationStatistics(
            block_count=self._block_count,
            drafted_count=self._drafted_count,
            tried_count=self._tried_count,
            accepted_count=self._accepted_count,
            verify_forward_count=self._forward_count,
            acceptance_length=self.token_count / self._forward_count if self._forward_count else 0,
            round_trip_seconds_p50=float(wire[0]),
            round_trip_seconds_p99=float(wire[1]),
            faults=dict(+self.faults),
            drop_reason=drop_reason,
            ahead_hit_count=self.ahead_hit_count,
            ahead_miss_count=self.ahead_miss_count,
            hedge_count=self.hedge_count,
            hedge_won_count=self.hedge_won_count,
            proposers=tuple(self._proposers.values()),
            forbidden_count=self._forbidden_count,
        )
