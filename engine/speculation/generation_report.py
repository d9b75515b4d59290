"""What a generation yields: committed tokens, and at the end where they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from kakeya_fleet.engine.contracts.draft import ProposerKey

if TYPE_CHECKING:
    from kakeya_fleet.engine.sessions.step import Step

# Blocks of the timeline that are kept, the latest.
TIMELINE_BLOCKS = 256


class StopReason(StrEnum):
    """Why a generation ended."""

    MAX_TOKENS = "max_tokens"
    STOP_TOKEN = "stop_token"
    DEADLINE = "deadline"
    CONTEXT_FULL = "context_full"
    DRAINING = "draining"
    COMPLETE = "complete"
    """The grammar allows nothing behind what was said."""


class DropReason(StrEnum):
    """Why a session decodes without its proposer; the faults as `DraftFaultKind`."""

    UNREACHABLE = "unreachable"
    DEADLINE = "deadline"
    WRONG_LENGTH = "wrong_length"
    OUT_OF_VOCABULARY = "out_of_vocabulary"
    STALE = "stale"
    FEATURES = "features"
    SLOWER_THAN_ALONE = "slower_than_alone"


@dataclass(frozen=True, slots=True)
class Committed:
    """Tokens from `first_index` of the history on; the first `drafted_count` were drafted.

    `log_probabilities` and `alternatives` are one item a token, as
    `engine.sampling.log_probabilities` defines them; both are empty when none were asked for.
    """

    token_ids: tuple[int, ...]
    first_index: int
    drafted_count: int
    log_probabilities: tuple[float, ...] = ()
    alternatives: tuple[tuple[tuple[int, float], ...], ...] = ()

    @classmethod
    def of(cls, steps: Sequence[Step]) -> Committed:
        """What one step or more have committed; of several none has drafted tokens.

        Log-probabilities are asked for of all tokens or of none.
        """
        choices = [choice for step in steps for choice in step.choices]
        known = [choice.log_probability for choice in choices if choice.log_probability is not None]
        return cls(
            token_ids=tuple(choice.token_id for choice in choices),
            first_index=steps[0].first_index,
            drafted_count=steps[0].accepted_count,
            log_probabilities=tuple(known),
            alternatives=tuple(choice.alternatives for choice in choices) if known else (),
        )


@dataclass(frozen=True, slots=True)
class BlockTiming:
    """Where the seconds of one block went.

    `draft_seconds` is the proposer's own time, `wire_seconds` the rest of the
    draft's round trip, `wait_seconds` what the verifier waited of both,
    `verify_seconds` the forward with choosing the tokens, `start_seconds` the
    block's start since the generation began. `committed_count` tokens became part of
    the history: the accepted ones and the verifier's own. `proposer` is whose draft
    came, be it empty; None when the verifier decoded alone. `forbidden_count` of the drafted
    tokens, the last ones, were cut off before the forward: the grammar forbids the first of them.
    The draft was `found` where no model made it.
    """

    first_index: int
    drafted_count: int
    accepted_count: int
    draft_seconds: float
    wire_seconds: float
    wait_seconds: float
    verify_seconds: float
    drafted_ahead: bool
    start_seconds: float
    committed_count: int = 0
    proposer: ProposerKey | None = None
    forbidden_count: int = 0
    found: bool = False

    @property
    def tried_count(self) -> int:
        """Drafted tokens that were compared: those accepted and one mismatch."""
        return min(self.accepted_count + 1, self.drafted_count)


@dataclass(frozen=True, slots=True)
class ProposerCounts:
    """What one proposer did in one generation.

    `block_count` blocks for which its draft came, be it empty, committed
    `committed_count` tokens in `seconds` of waiting and verifying.
    """

    proposer: ProposerKey
    block_count: int = 0
    drafted_count: int = 0
    accepted_count: int = 0
    committed_count: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SpeculationStatistics:
    """What speculation did in one generation.

    `block_count` blocks had at least one drafted token; of their
    `drafted_count` tokens `tried_count` were compared with the verifier's
    choice (those behind a mismatch never are) and `accepted_count` equalled
    it. `acceptance_length` is generated tokens over `verify_forward_count`,
    prefill not counted. The round trips are those of drafts less the
    proposer's compute time, in seconds. `faults` counts by kind; being slower
    than alone is no fault, and told by `drop_reason` alone. `proposers` are those that
    drafted, in the order of their first blocks. `hedge_count` blocks were asked of a second
    proposer, the first being late, whose draft came first `hedge_won_count` times.
    `forbidden_count` of the drafted tokens went into no forward: a grammar forbids them.
    """

    block_count: int = 0
    drafted_count: int = 0
    tried_count: int = 0
    accepted_count: int = 0
    verify_forward_count: int = 0
    acceptance_length: float = 0.0
    round_trip_seconds_p50: float = 0.0
    round_trip_seconds_p99: float = 0.0
    faults: Mapping[DropReason, int] = field(default_factory=dict)
    drop_reason: DropReason | None = None
    ahead_hit_count: int = 0
    ahead_miss_count: int = 0
    hedge_count: int = 0
    hedge_won_count: int = 0
    proposers: tuple[ProposerCounts, ...] = ()
    forbidden_count: int = 0


@dataclass(frozen=True, slots=True)
class GenerationTimings:
    """Durations in seconds; `queue_seconds` is known to the caller, who fills it in."""

    prefill_seconds: float
    first_token_seconds: float
    total_seconds: float
    queue_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Done:
    """The end of a generation. `seed` is 0 when greedy; `timeline` oldest first.

    `forgotten_token_count` positions of the history are seen by no query any more.
    """

    stop_reason: StopReason
    generated_token_count: int
    history_length: int
    timings: GenerationTimings
    speculation: SpeculationStatistics
    timeline: tuple[BlockTiming, ...]
    seed: int
    forgotten_token_count: int = 0
