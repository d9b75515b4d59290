"""How much to draft, whether to, and whether ahead; from what was measured.

A block of B drafted tokens commits E(B) tokens in one verify forward on average
(Leviathan et al. 2023; `engine.speculation.place_rates`). It takes
    V(B + 1) + W(B) + O
seconds, V(n) being a verify forward of n rows, W(B) the wait for the draft and O all
other work, such as handling messages and handing out tokens. How
V and a draft grow with their size was measured when the models were loaded; how
fast they are now is the ratio of what a block took to that, smoothed. So the block
is the one with the best E(B) / (V(B + 1) + W(B) + O), and drafting pays when that is
above one token in what a block alone takes. That is measured by blocks alone, a
little after the start: V(1) from blocks with drafts would say too much, since what
else runs beside them slows their forwards too. So does what the first of them finds:
a proposer that still computes, and caches full of other weights. It counts for nothing.
While even V(1) from blocks with drafts promises much, nobody asks how much.

Whether it pays is judged by adding up, block by block, the tokens that the
verifier would have made alone in the same time, less those that were committed:
a cumulative sum (Page, 1954) that drops drafting when too many were lost, and
whose credit for what was won is bounded. One block then tries again, after ever
longer times while it fails. Where the session has another proposer that was faster than
decoding alone (`engine.speculation.contest`), the sum counts what that one would have
made: one judgement, whatever the rival is.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kakeya_fleet.engine.speculation.block_measurement import BlockMeasurement
from kakeya_fleet.engine.speculation.overlap import NOTHING_MEASURED, Overlap
from kakeya_fleet.engine.speculation.place_rates import NOTHING_TRIED, PRIOR_RATE, PlaceRates
from kakeya_fleet.engine.speculation.steps import FLAT, MeasuredSteps

# Share of the old weight that a block leaves, about its last ten blocks.
DECAY = 0.9
# Tokens that count as tried before anything is measured.
PRIOR_TRIALS = 2.0
# A block is as short as still promises this share of the best one's speed.
KEPT_SHARE = 0.98
# Tokens lost against decoding alone at which drafting is dropped, and the most that
# count as won before.
LOST_TOKENS = 3.0
WON_TOKENS = 6.0
# A loss below this share of a block's time is noise.
TOLERATED_LOSS = 0.02
FIRST_RETRY_BLOCKS = 16
LONGEST_RETRY_BLOCKS = 1024
# Drafts after which so many blocks are decoded alone, to know what that takes, and all blocks
# after which that is done at the latest.
PROBED_AT = 6
LATEST_PROBE_AT = 16
PROBE_BLOCKS = 3
# Times as fast as alone, by what is known so far, beyond which that can wait: it may be wrong by
# what slows a forward beside drafts, half as much again.
SURE_GAIN = 2.0
# Times as fast as alone, from which on a draft of another machine is waited for.
WAITED_GAIN = 1.25
# What a clock that did not move is taken to have measured.
LEAST_SECONDS = 1e-9
# Blocks after which drafting ahead is tried the other way at the earliest, and the share of the
# time that such trials may cost.
AHEAD_RETRY_BLOCKS = 16
AHEAD_RETRY_SHARE = 0.02
# What a draft's messages take from a verify forward beside it,
# measured on 2 cores (verify_seconds of scripts/bench/speculation.py, with and without).
HANDLING_SECONDS = 0.2e-3


@dataclass(frozen=True, slots=True)
class Pace:
    """What was measured of one pair. A value: events return the next one.

    `verify_steps` (by rows) and `draft_steps` (by drafted tokens) are those of the
    loaded models; `verify_scale` and `draft_scale` how much slower they are now. A proposer that
    `ends_drafts` by itself is asked for as many tokens as there can be.
    `lost_tokens` is the cumulative sum, negative for tokens won; `other_seconds` are a
    block's besides verifying and waiting, `alone_seconds` all of one that was decoded alone,
    as the mean of the first `alone_told_count` and smoothed then, of others' before the first,
    `rival_seconds` those of a token with another proposer, 0 without one. `committed` tokens
    took `spent_seconds`, both decayed. Blocks have gained `untold_tokens` over decoding alone, or
    lost, since that was last `told`. Drafts of `made_count` blocks were made, and of
    `found_count` found in the text, for which it waited `found_wait_seconds`. Before any is told
    it is `expected_gain` times as fast as decoding alone, 0 where nobody expects anything.
    """

    verify_steps: MeasuredSteps = FLAT
    draft_steps: MeasuredSteps = FLAT
    ends_drafts: bool = False
    trials: float = 0.0
    accepted: float = 0.0
    places: PlaceRates = NOTHING_TRIED
    whole_block_share: float = 0.5
    verify_scale: float = 1.0
    draft_scale: float = 1.0
    wait_share: float = 1.0
    verify_seconds: float = 0.0
    round_trip_seconds: float = 0.0
    compute_seconds: float = 0.0
    other_seconds: float = 0.0
    alone_seconds: float = 0.0
    alone_told_count: int = 0
    rival_seconds: float = 0.0
    committed: float = 0.0
    spent_seconds: float = 0.0
    lost_tokens: float = 0.0
    untold_tokens: float = 0.0
    alone_block_count: int = 0
    retry_after_blocks: int = 0
    next_retry_blocks: int = FIRST_RETRY_BLOCKS
    block_count: int = 0
    made_count: int = 0
    found_count: int = 0
    found_wait_seconds: float = 0.0
    overlap: Overlap = NOTHING_MEASURED
    expected_gain: float = 0.0

    @property
    def acceptance(self) -> float:
        """Probability that a drafted token whose predecessors were accepted is too."""
        return (self.accepted + PRIOR_RATE * PRIOR_TRIALS) / (self.trials + PRIOR_TRIALS)

    @property
    def dropped(self) -> bool:
        """Whether drafting was found slower than alone, and it is not yet time to retry."""
        return self.rest_blocks > 0

    @property
    def rest_blocks(self) -> int:
        """Blocks that are decoded alone before drafting is tried again."""
        return max(0, self.retry_after_blocks - self.alone_block_count)

    @property
    def given_up(self) -> bool:
        """Whether drafting was found slower, and does not merely pause to measure alone."""
        return self.dropped and self.retry_after_blocks > PROBE_BLOCKS

    @property
    def waits(self) -> bool:
        """Whether a draft that is made on another machine is waited for.

        What is decoded meanwhile is won where the draft is wrong, and else made twice: it costs the
        half of a forward that is under way when the draft comes, and whatever both machines share.
        So where drafts win `WAITED_GAIN` by what is measured, nobody decodes beside them; nor where
        one comes sooner than a token. Before a first draft its source is opened, which may take
        long; one that would not have paid makes nobody expect anything.
        """
        if not self.made_count + self.found_count:
            return False
        alone = self.decoding_seconds
        gain = alone / self.token_seconds if self.token_seconds else self.expected_gain
        return self.round_trip_seconds < alone or gain > WAITED_GAIN

    @property
    def decoding_seconds(self) -> float:
        """Of a token that is decoded alone: as measured, or as blocks with drafts promise."""
        return self.alone_seconds or self.verify_scale * self.verify_steps.seconds(1)

    @property
    def token_seconds(self) -> float:
        """Measured seconds a committed token, of about the last ten blocks; 0 before one."""
        return self.spent_seconds / self.committed if self.committed else 0.0

    def on_trial(self, rival_seconds: float, *, tokens: float) -> Pace:
        """To be judged anew, against `rival_seconds` a token: `tokens` may be lost.

        Blocks are as long as the acceptance that was assumed at first is worth.
        """
        return replace(
            self,
            rival_seconds=rival_seconds,
            lost_tokens=LOST_TOKENS - tokens,
            alone_block_count=1,
            retry_after_blocks=1,
            next_retry_blocks=FIRST_RETRY_BLOCKS,
        )

    def resting(self, blocks: int, next_retry_blocks: int) -> Pace:
        """As one that was dropped, and is tried again after `blocks` that are decoded alone."""
        return replace(
            self,
            lost_tokens=LOST_TOKENS,
            alone_block_count=0,
            retry_after_blocks=blocks,
            next_retry_blocks=next_retry_blocks,
        )

    def against(self, rival_seconds: float) -> Pace:
        """Judged from now on against `rival_seconds` a token; 0 for decoding alone."""
        return replace(self, rival_seconds=rival_seconds)

    def told(self) -> Pace:
        """What was gained so far is known elsewhere."""
        return replace(self, untold_tokens=0.0)

    def knowing_alone(self, seconds: float) -> Pace:
        """Others found that a token takes so long alone, which counts until it finds out itself."""
        return replace(self, alone_seconds=seconds) if not self.alone_told_count else self

    def taken_up(self) -> Pace:
        """Used again, with nothing lost so far."""
        return replace(self, rival_seconds=0.0, lost_tokens=0.0, retry_after_blocks=0)

    def block_size(self, most: int, longest_seconds: float = math.inf) -> int:
        """Tokens to draft, 1 to `most` >= 1: the smallest B within `KEPT_SHARE` of the best speed.

        Fewer where a draft of so many would not be there in `longest_seconds`.
        A retry hopes for the acceptance that was assumed at first: a block as short
        as the last failures suggest could not show that drafting pays again.
        """
        if self.ends_drafts:
            return self._in_time(most, longest_seconds)
        # `block_seconds` of each size, spelt out: this is between a block and its draft.
        verify, draft, wire = self._factors
        steps = zip(
            self.expected_tokens(most),
            self.verify_steps.rising(most + 1)[1:],
            self.draft_steps.rising(most),
            strict=True,
        )
        speeds = [
            tokens / (verify * verify_step + draft * draft_step + wire)
            for tokens, verify_step, draft_step in steps
        ]
        enough = KEPT_SHARE * max(speeds)
        size = next(size for size, speed in enumerate(speeds, start=1) if speed >= enough)
        return self._in_time(size, longest_seconds)

    def expected_tokens(self, most: int) -> list[float]:
        """E(1) to E(`most`)."""
        return self.places.expected(most, hopeful=self.retry_after_blocks > 0)

    def should_draft_ahead(self) -> bool:
        """Whether drafting ahead saves more waiting than its misses cost, and now and then if not.

        A hit, which takes a wholly accepted block and the right guess of the bonus token, saves
        the round trip of a draft that is made apart, less what is still waited for one that was
        made beside a forward, round trip - verify. A miss delays the next draft by what the
        proposer still computes, compute - verify, but no more than a token's time. Hit or miss,
        its messages are handled while the verifier computes. Where both share a machine, both are
        slower side by side (`engine.speculation.overlap`): to know that, every few blocks the
        other way is tried, as often as takes no more than `AHEAD_RETRY_SHARE` of the time.
        """
        won = self._seconds_won_ahead
        if won > 0.0:
            return self.overlap.since_apart < AHEAD_RETRY_BLOCKS
        block = self.verify_seconds + self.wait_share * self.round_trip_seconds + self.other_seconds
        rest = -won / (AHEAD_RETRY_SHARE * max(block, LEAST_SECONDS))
        return self.overlap.since_beside >= max(AHEAD_RETRY_BLOCKS, math.ceil(rest))

    def after_alone(
        self,
        verify_seconds: Sequence[float],
        other_seconds: float = 0.0,
        *,
        beside_opening: bool = False,
        behind_draft: bool = False,
    ) -> Pace:
        """Tokens were decoded without asking for a draft while drafting was dropped.

        Each took so long, and all of them `other_seconds` besides. Those `beside_opening`, while a
        proposer's source read the history, on the same machine perhaps, say what decoding alone
        takes only where nothing else does; the first `behind_draft`s says nothing.
        """
        count = self.alone_block_count + len(verify_seconds)
        told = verify_seconds[behind_draft:]
        if not told or (beside_opening and self.alone_seconds):
            return replace(self, alone_block_count=count)
        # Once for all that are told of: to make a pace anew takes as long as many of these.
        scale, alone, first = self.verify_scale, self.alone_seconds, self.block_count == 0
        step = self.verify_steps.seconds(1)
        for known, seconds in enumerate(told, start=self.alone_told_count + 1):
            scale = _smoothed(scale, max(seconds, LEAST_SECONDS) / step, first=first)
            weight = max(1.0 - DECAY, 1.0 / known)
            alone += weight * (seconds + other_seconds / len(verify_seconds) - alone)
        return replace(
            self,
            verify_scale=scale,
            alone_seconds=alone,
            alone_told_count=self.alone_told_count + len(told),
            alone_block_count=count,
        )

    def after_block(self, block: BlockMeasurement) -> Pace:
        """A block was verified for which a draft was asked."""
        first = self.block_count == 0
        # Beside the opening of its source hardly anything is drafted.
        opens = block.went_on and not self.made_count + self.found_count
        verify_seconds = max(block.verify_seconds, LEAST_SECONDS)
        verify_scale = verify_seconds / self.verify_steps.seconds(block.rows)
        measured = replace(
            _draft_told(_forward_told(self, block), block),
            trials=self.trials * DECAY + block.trial_count,
            accepted=self.accepted * DECAY + block.accepted_count,
            places=self.places.after(block.drafted_count, block.accepted_count),
            committed=0.0 if opens else self.committed * DECAY + block.committed_count,
            spent_seconds=0.0
            if opens
            else self.spent_seconds * DECAY
            + block.verify_seconds
            + block.wait_seconds
            + block.other_seconds,
            whole_block_share=_smoothed(
                self.whole_block_share,
                float(0 < block.drafted_count == block.accepted_count),
                first=False,
            ),
            verify_scale=_smoothed(self.verify_scale, verify_scale, first=first),
            verify_seconds=_smoothed(self.verify_seconds, block.verify_seconds, first=first),
            other_seconds=_smoothed(
                self.other_seconds, block.other_seconds, first=self.other_seconds == 0.0
            ),
            block_count=self.block_count + 1,
        )
        if opens and not _would_have_paid(measured, block, self.draft_scale):
            measured = replace(measured, expected_gain=0.0)
        return _judged(measured, block)

    def block_seconds(self, size: int, *, is_found: bool = False, rows: int = 0) -> float:
        """Expected seconds of a block of `size` drafted tokens: V(size + 1) + W(size) + O.

        Or V(`rows`), where its forward has fewer. One that `is_found` is waited for as those of its
        kind were, whatever its proposer says.
        """
        verify, draft, wire = self._factors
        seconds = verify * self.verify_steps.seconds(rows or size + 1)
        if is_found:
            return seconds + self.found_wait_seconds + self.other_seconds
        return seconds + wire + (draft * self.draft_steps.seconds(size) if size else 0.0)

    @property
    def _seconds_won_ahead(self) -> float:
        """By drafting one block ahead, on average; negative for seconds lost."""
        hit = self.whole_block_share * self.acceptance
        overlap = self.overlap
        slowed = overlap.slowed_forward * self.verify_seconds / self.verify_scale
        apart = overlap.forward_apart.mean or self.verify_scale
        forward = apart * self.verify_seconds / self.verify_scale + slowed
        step = self.compute_seconds / self.draft_scale if self.draft_scale else 0.0
        draft = (overlap.draft_apart.mean or self.draft_scale) * step
        draft_beside = draft + overlap.slowed_draft * step
        wire = max(0.0, self.round_trip_seconds - self.compute_seconds)
        hidden = wire + draft - max(0.0, wire + draft_beside - forward)
        # Who makes a token at a time ends with the next one when its draft is taken back.
        token = self.draft_scale * self.draft_steps.seconds(1)
        delayed = min(max(0.0, draft_beside - forward), token)
        return hit * hidden - (1.0 - hit) * delayed - slowed - HANDLING_SECONDS

    def _in_time(self, size: int, longest_seconds: float) -> int:
        """As much of `size` as is drafted in that time, by what drafts take now.

        Where not even one token is: one, if that takes much less than all, else `size`.
        """
        wire = max(0.0, self.round_trip_seconds - self.compute_seconds)
        steps = self.draft_steps.rising(size)
        most = (longest_seconds - wire) / max(self.draft_scale, LEAST_SECONDS)
        in_time = bisect_right(steps, most)
        if in_time:
            return in_time
        return 1 if 2.0 * steps[0] <= steps[-1] else size

    @property
    def _factors(self) -> tuple[float, float, float]:
        """What a verify step and a draft step count in a block, and its other seconds."""
        # Flat steps say nothing of a draft before one was measured.
        known = self.made_count + self.found_count > 0 or self.draft_steps is not FLAT
        draft = self.wait_share * self.draft_scale if known else 0.0
        wire = self.wait_share * max(0.0, self.round_trip_seconds - self.compute_seconds)
        return self.verify_scale, draft, wire + self.other_seconds


def _smoothed(old: float, new: float, *, first: bool) -> float:
    """Exponentially weighted mean; the first value counts whole."""
    return new if first else DECAY * old + (1.0 - DECAY) * new


def _forward_told(pace: Pace, block: BlockMeasurement) -> Pace:
    """What the forward took, and all that the verifier does meanwhile: a draft slows both."""
    if not block.drafted_count:
        # Who drafts nothing reads the history meanwhile.
        return pace
    seconds = max(block.verify_seconds + block.other_seconds, LEAST_SECONDS)
    scale = seconds / pace.verify_steps.seconds(block.rows)
    return replace(pace, overlap=pace.overlap.after_forward(scale, beside=block.beside_draft))


def _draft_told(pace: Pace, block: BlockMeasurement) -> Pace:
    """What the draft took; one that no model made says that of a proposer without one alone."""
    if not block.drafted_count:
        return pace
    if block.is_found:
        first = pace.found_count == 0
        wait = _smoothed(pace.found_wait_seconds, block.wait_seconds, first=first)
        pace = replace(pace, found_count=pace.found_count + 1, found_wait_seconds=wait)
        if pace.made_count:
            return pace
    elif block.reads and pace.draft_steps is not FLAT:
        return pace
    made_count = max(block.made_count, block.drafted_count)
    draft_scale = block.compute_seconds / pace.draft_steps.seconds(made_count)
    waited = min(block.wait_seconds, block.round_trip_seconds)
    wait_share = waited / block.round_trip_seconds if block.round_trip_seconds > 0.0 else 0.0
    first = pace.found_count == 1 if block.is_found else not pace.made_count
    return replace(
        pace,
        # How fast a model of known steps is now is told by what it makes.
        draft_scale=pace.draft_scale
        if block.is_found and pace.draft_steps is not FLAT
        else _smoothed(pace.draft_scale, draft_scale, first=first),
        wait_share=_smoothed(pace.wait_share, wait_share, first=first),
        round_trip_seconds=_smoothed(
            pace.round_trip_seconds, block.round_trip_seconds, first=first
        ),
        compute_seconds=_smoothed(pace.compute_seconds, block.compute_seconds, first=first),
        made_count=pace.made_count + (not block.is_found),
        overlap=pace.overlap
        if block.is_found
        else pace.overlap.after_draft(draft_scale, beside=block.made_ahead),
    )


def _would_have_paid(pace: Pace, first: BlockMeasurement, draft_scale: float) -> bool:
    """Whether a first draft would have, had it come from an open source that had read all.

    What of its time went into that is unknown; a model of known steps was `draft_scale` times as
    slow before.
    """
    scale = pace.draft_scale if pace.draft_steps is FLAT else draft_scale
    at_hand = replace(pace, draft_scale=scale, round_trip_seconds=0.0, compute_seconds=0.0)
    seconds = at_hand.block_seconds(first.drafted_count)
    return first.accepted_count + 1 > seconds / pace.decoding_seconds


def _should_probe(pace: Pace, alone: float) -> bool:
    """Whether blocks alone are to say what that takes, which seems to be `alone`.

    Before its first drafts a proposer reads the history, which slows them.
    """
    if pace.block_count == LATEST_PROBE_AT:
        return True
    # Flat steps take a forward alone for one of a whole block.
    is_sure = pace.verify_steps is not FLAT and pace.token_seconds * SURE_GAIN < alone
    return pace.made_count + pace.found_count == PROBED_AT and not is_sure


def _judged(pace: Pace, block: BlockMeasurement) -> Pace:
    """Drops drafting, keeps on trying, or takes it up again.

    Judged by the smoothed seconds: one hiccup of the machine is no verdict.
    """
    alone = pace.decoding_seconds
    seconds = pace.block_seconds(block.drafted_count, is_found=block.is_found, rows=block.rows)
    if block.went_on:
        # How long the draft was on its way is no matter, but what that slowed.
        seconds = block.verify_seconds + block.wait_seconds + block.other_seconds
    gained = block.committed_count - seconds / alone
    pace = replace(pace, untold_tokens=pace.untold_tokens + gained)
    if pace.alone_told_count == 0 and _should_probe(pace, alone):
        return replace(pace, alone_block_count=0, retry_after_blocks=PROBE_BLOCKS)
    rival = min(alone, pace.rival_seconds) if pace.rival_seconds else alone
    taken = seconds / rival
    lost = pace.lost_tokens + taken * (1.0 - TOLERATED_LOSS) - block.committed_count
    if lost > LOST_TOKENS:
        # A retry that loses anything is the last one for a while.
        longer = min(pace.next_retry_blocks * 2, LONGEST_RETRY_BLOCKS)
        return pace.resting(pace.next_retry_blocks, longer)
    if lost > 0.0:
        return replace(pace, lost_tokens=lost)
    return replace(
        pace,
        lost_tokens=max(lost, -WON_TOKENS),
        alone_block_count=0,
        retry_after_blocks=0,
        next_retry_blocks=FIRST_RETRY_BLOCKS,
    )
