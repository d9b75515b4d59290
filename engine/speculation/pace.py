"""How much to draft, whether to, and whether ahead; from what was measured.

With per-token acceptance a, a block of B drafted tokens commits
    E(B) = 1 + a + a**2 + ... + a**B
tokens in one verify forward on average (Leviathan et al. 2023). A forward reads
the same weights with a draft or without, and is taken to need the same seconds
v, which leaves out what more rows cost. Drafting then pays when E tokens in
v + w seconds, w being the wait for the draft, are faster than one token in v:
    E * v > v + w.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

# Share of the old weight that a block leaves, about its last ten blocks.
DECAY = 0.9
# Before anything is measured: two tokens tried, one and a half accepted.
PRIOR_TRIALS = 2.0
PRIOR_ACCEPTED = 1.5
# A block is as short as still promises this share of the longest one's tokens.
KEPT_SHARE = 0.97
# Blocks that are looked at before drafting is judged.
JUDGED_BLOCKS = 8
# Drafting is dropped when it is slower than alone by more than this share:
# below it the verdict would be noise.
TOLERATED_LOSS = 0.02
FIRST_RETRY_BLOCKS = 32
LONGEST_RETRY_BLOCKS = 1024
# Blocks after which drafting ahead is tried again.
AHEAD_RETRY_BLOCKS = 16
# What a draft's messages take from a verify forward beside it, as
# scripts/bench_remote.py measured on 2 cores (verify_seconds with and without).
HANDLING_SECONDS = 0.2e-3


@dataclass(frozen=True, slots=True)
class BlockMeasurement:
    """One verified block for which a draft was asked, empty ones included.

    `wait_seconds` is what the verifier waited; `round_trip_seconds` the whole
    way of the draft and `compute_seconds` the proposer's part of it.
    """

    drafted_count: int
    accepted_count: int
    committed_count: int
    verify_seconds: float
    wait_seconds: float
    round_trip_seconds: float
    compute_seconds: float

    @property
    def trial_count(self) -> int:
        """Drafted tokens that were compared: those accepted and one mismatch."""
        return min(self.accepted_count + 1, self.drafted_count)


@dataclass(frozen=True, slots=True)
class Pace:
    """What was measured of one pair. A value: events return the next one."""

    trials: float = 0.0
    accepted: float = 0.0
    whole_block_share: float = 0.5
    verify_seconds: float = 0.0
    round_trip_seconds: float = 0.0
    compute_seconds: float = 0.0
    judged: tuple[BlockMeasurement, ...] = field(default=())
    alone_block_count: int = 0
    retry_after_blocks: int = 0
    next_retry_blocks: int = FIRST_RETRY_BLOCKS
    block_count: int = 0

    @property
    def acceptance(self) -> float:
        """Probability that a drafted token whose predecessors were accepted is too."""
        return (self.accepted + PRIOR_ACCEPTED) / (self.trials + PRIOR_TRIALS)

    @property
    def dropped(self) -> bool:
        """Whether drafting was found slower than alone, and it is not yet time to retry."""
        return self.alone_block_count < self.retry_after_blocks

    def block_size(self, most: int) -> int:
        """Tokens to draft, 1 to `most` >= 1: the smallest B with E(B) >= 0.97 E(most)."""
        enough = KEPT_SHARE * expected_tokens(self.acceptance, most)
        expected = 1.0
        for size in range(1, most):
            expected += self.acceptance**size
            if expected >= enough:
                return size
        return most

    def should_draft_ahead(self) -> bool:
        """Whether drafting ahead saves more waiting than its misses cost.

        A hit, which takes a wholly accepted block and the right guess of the
        bonus token, hides min(round trip, verify) seconds; a miss delays the
        next draft by what the proposer still computes, compute - verify. Hit or
        miss, its messages are handled while the verifier computes.
        """
        if self.block_count % AHEAD_RETRY_BLOCKS == 0:
            return True
        hit = self.whole_block_share * self.acceptance
        hidden = min(self.round_trip_seconds, self.verify_seconds)
        delayed = max(0.0, self.compute_seconds - self.verify_seconds)
        return hit * hidden > (1.0 - hit) * delayed + HANDLING_SECONDS

    def after_alone_block(self) -> Pace:
        """A block was decoded without asking for a draft while drafting was dropped."""
        return replace(self, alone_block_count=self.alone_block_count + 1)

    def after_block(self, block: BlockMeasurement) -> Pace:
        """A block was verified for which a draft was asked."""
        first = self.block_count == 0
        measured = replace(
            self,
            trials=self.trials * DECAY + block.trial_count,
            accepted=self.accepted * DECAY + block.accepted_count,
            whole_block_share=_smoothed(
                self.whole_block_share,
                float(0 < block.drafted_count == block.accepted_count),
                first=False,
            ),
            verify_seconds=_smoothed(self.verify_seconds, block.verify_seconds, first=first),
            round_trip_seconds=_smoothed(
                self.round_trip_seconds, block.round_trip_seconds, first=first
            ),
            compute_seconds=_smoothed(self.compute_seconds, block.compute_seconds, first=first),
            judged=(*self.judged, block)[-JUDGED_BLOCKS:],
            block_count=self.block_count + 1,
        )
        return _judged(measured)


def expected_tokens(acceptance: float, block_size: int) -> float:
    """E(B), tokens that a verify forward commits on average."""
    return sum(acceptance**count for count in range(block_size + 1))


def _smoothed(old: float, new: float, *, first: bool) -> float:
    """Exponentially weighted mean; the first value counts whole."""
    return new if first else DECAY * old + (1.0 - DECAY) * new


def _judged(pace: Pace) -> Pace:
    """Drops drafting, keeps on trying, or takes it up again."""
    if len(pace.judged) < JUDGED_BLOCKS:
        return pace
    tokens = sum(block.committed_count for block in pace.judged)
    verify = sum(block.verify_seconds for block in pace.judged)
    wait = sum(block.wait_seconds for block in pace.judged)
    alone_tokens = len(pace.judged)
    if tokens * verify >= (1.0 - TOLERATED_LOSS) * alone_tokens * (verify + wait):
        return replace(
            pace,
            alone_block_count=0,
            retry_after_blocks=0,
            next_retry_blocks=FIRST_RETRY_BLOCKS,
        )
    return replace(
        pace,
        judged=(),
        alone_block_count=0,
        retry_after_blocks=pace.next_retry_blocks,
        next_retry_blocks=min(pace.next_retry_blocks * 2, LONGEST_RETRY_BLOCKS),
    )
