"""How much of what speculation could give the loop around it keeps.

An ideal loop takes, for each block, one verify step and what of the draft no
loop could hide:

    a fresh draft            the proposer's seconds and the added round trip: it
                             continues tokens that the last step has just decided
    a draft made ahead       what these exceed the verify step by, beside which it ran
    a block without a draft  nothing

The efficiency is the ideal's seconds over the measured ones, for the same blocks
and tokens, and so measured tokens a second over
`acceptance length / (verify step + draft time not hidden)`. What the loop itself
adds (messages, event loop, choosing tokens, bookkeeping) is the loss.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kakeya import GenerationDone
from kakeya_fleet.engine.speculation.generation_report import BlockTiming


@dataclass(frozen=True, slots=True)
class Delays:
    """What a draft takes whatever the loop does, in seconds.

    `compute` is the proposer's own time, `round_trip` what the network adds.
    """

    compute: float
    round_trip: float

    @property
    def whole(self) -> float:
        """The way of a fresh draft."""
        return self.compute + self.round_trip


def rows_of(block: BlockTiming, row_counts: Sequence[int]) -> int:
    """Rows of the forward that verified `block`."""
    return next(rows for rows in row_counts if rows > block.drafted_count)


def exposed_seconds(block: BlockTiming, step_seconds: float, delays: Delays) -> float:
    """Draft time of `block` that no loop hides; `step_seconds` is a verify step of its size."""
    if block.drafted_count == 0:
        return 0.0
    if block.drafted_ahead:
        return max(0.0, delays.whole - step_seconds)
    return delays.whole


def ideal_seconds(
    blocks: Sequence[BlockTiming], steps: Mapping[int, float], delays: Delays
) -> float:
    """Seconds that an ideal loop takes for `blocks`; `steps` are those of a forward by rows."""
    row_counts = sorted(steps)
    total = 0.0
    for block in blocks:
        step = steps[rows_of(block, row_counts)]
        total += step + exposed_seconds(block, step, delays)
    return total


def hidden_seconds(blocks: Sequence[BlockTiming], steps: Mapping[int, float]) -> float:
    """Seconds of the verify steps alone: a proposer that takes no time, beside the verifier."""
    return ideal_seconds(blocks, steps, Delays(0.0, 0.0))


def timeline_efficiency(done: GenerationDone) -> float:
    """The same of a client's generation, by what its node told of each block.

    A verify step is the block's own, timed within the loop: what two processes that share
    cores take from each other is not counted as the loop's loss. Raises `ValueError` when the
    timeline does not have all blocks.
    """
    told = done.speculation.verify_forward_count
    if told != len(done.timeline):
        raise ValueError(f"{len(done.timeline)} blocks of {told} are in the timeline")
    ideal = 0.0
    for block in done.timeline:
        hidden = block.verify_seconds if block.drafted_ahead else 0.0
        exposed = max(0.0, block.draft_seconds - hidden) if block.drafted_count else 0.0
        ideal += block.verify_seconds + exposed
    timings = done.timings
    return ideal / (timings.total_seconds - timings.queue_seconds - timings.prefill_seconds)


def waits(blocks: Sequence[BlockTiming]) -> dict[str, float]:
    """Medians of what drafted blocks waited, and the share of drafts made ahead."""
    drafted = [block for block in blocks if block.drafted_count]
    if not drafted:
        return {"ahead_share": 0.0}
    return {
        "ahead_share": sum(block.drafted_ahead for block in drafted) / len(drafted),
        "wait_seconds_p50": statistics.median(block.wait_seconds for block in drafted),
        "wire_seconds_p50": statistics.median(block.wire_seconds for block in drafted),
        "drafted_tokens_mean": statistics.fmean(block.drafted_count for block in drafted),
    }
