"""Values of sessions and generations. An enum's UNKNOWN is newer than this client."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kakeya.plan_values import (
    ArchiveRange,
    KvStrategy,
    LinkPurpose,
    Plan,
    RestorerKind,
    Transport,
)


class StopReason(StrEnum):
    """Why a generation ended."""

    MAX_TOKENS = "max_tokens"
    STOP_TOKEN = "stop_token"
    DEADLINE = "deadline"
    CONTEXT_FULL = "context_full"
    DRAINING = "draining"
    UNKNOWN = "unknown"


class DropReason(StrEnum):
    """Why a session decodes without its proposer, or what a proposer did wrong."""

    UNREACHABLE = "unreachable"
    DEADLINE = "deadline"
    WRONG_LENGTH = "wrong_length"
    OUT_OF_VOCABULARY = "out_of_vocabulary"
    STALE = "stale"
    FEATURES = "features"
    SLOWER_THAN_ALONE = "slower_than_alone"
    UNKNOWN = "unknown"


class SessionState(StrEnum):
    """Whether a session is working."""

    IDLE = "idle"
    APPENDING = "appending"
    GENERATING = "generating"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Speculation:
    """A fixed proposer for a session, whatever the planner predicts.

    `node_id` empty means any node that serves `proposer_model`; `block_size`
    is drafted tokens a block, 1 to 15, 0 lets the planner choose.
    """

    proposer_model: str
    node_id: str = ""
    block_size: int = 0


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that the model held probable, and the natural logarithm of its probability."""

    token_id: int
    log_probability: float


@dataclass(frozen=True, slots=True)
class Tokens:
    """Committed tokens, oldest first; never empty.

    `first_index` is the position of the first in the history; the first
    `drafted_count` of them were drafted by the proposer. `log_probabilities`
    and `alternatives` are one item a token, empty unless asked for: natural
    logarithms of what the model itself gave, before bias, penalty, temperature
    and filters, and the most probable tokens at that position.
    """

    token_ids: tuple[int, ...]
    first_index: int
    drafted_count: int
    log_probabilities: tuple[float, ...] = ()
    alternatives: tuple[tuple[Alternative, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations of one generation, in seconds.

    `queue_seconds` waits for the session's earlier operations,
    `prefill_seconds` computes keys and values not computed yet,
    `first_token_seconds` runs from the request to the first committed token.
    """

    queue_seconds: float
    prefill_seconds: float
    first_token_seconds: float
    total_seconds: float


@dataclass(frozen=True, slots=True)
class DraftFault:
    """A kind of fault of the proposer that the session survived, and how often."""

    reason: DropReason
    count: int


@dataclass(frozen=True, slots=True)
class BlockTiming:
    """Where the seconds of one block went.

    `wire_seconds` is the draft's round trip less the proposer's own
    `draft_seconds`; `wait_seconds` is what of both was not hidden behind the
    last verify forward. `start_seconds` counts from the generation's start;
    `generation_number` from 1 within the session, 0 in a generation's own timeline;
    `committed_count` is the accepted tokens and the verifier's own. The proposer is the
    one whose draft came, be it empty; both empty when the verifier decoded alone.
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
    generation_number: int = 0
    committed_count: int = 0
    proposer_node_id: str = ""
    proposer_model_id: str = ""


@dataclass(frozen=True, slots=True)
class ProposerStatistics:
    """What one proposer did in one generation.

    `block_count` blocks for which its draft came, be it empty, committed
    `committed_count` tokens in `seconds` of waiting for drafts and verifying.
    """

    node_id: str
    model_id: str
    block_count: int
    drafted_count: int
    accepted_count: int
    committed_count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SpeculationStatistics:
    """What speculation did in one generation.

    `acceptance_length` is generated tokens over `verify_forward_count`;
    `drop_reason` is None unless the session decodes alone now;
    `proposer_node_id` and `proposer_model_id` name the one that drafts now, or would, and
    are empty without one; `proposers` are all that drafted, by their first blocks.
    """

    block_count: int
    drafted_count: int
    accepted_count: int
    verify_forward_count: int
    acceptance_length: float
    round_trip_seconds_p50: float
    round_trip_seconds_p99: float
    faults: tuple[DraftFault, ...]
    drop_reason: DropReason | None
    ahead_hit_count: int
    ahead_miss_count: int
    proposer_node_id: str
    proposer_model_id: str
    proposers: tuple[ProposerStatistics, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkChange:
    """A tensor link of the session went over to another road.

    `start_seconds` counts from the generation's start, 0 before it; `generation` is the road's
    number on its link, 0 for gRPC before the first; `reason` is a sentence.
    """

    start_seconds: float
    purpose: LinkPurpose
    transport: Transport
    generation: int
    reason: str
    peer_node_id: str


@dataclass(frozen=True, slots=True)
class GenerationDone:
    """The end of a generation.

    `timeline` holds the last blocks, at most 256, oldest first; `seed` is the
    seed of the sampled stream, 0 when greedy; `restorer_rebuild_count` tells how
    often what was evicted was lost meanwhile, and made anew from the history;
    `link_changes` what carried the session's tensors from when on, since its generation
    before, oldest first, at most 64. `forgotten_token_count` positions of the history
    are seen by no query any more: evicted, and not restored.
    """

    stop_reason: StopReason
    generated_token_count: int
    history_length: int
    timings: Timings
    speculation: SpeculationStatistics
    timeline: tuple[BlockTiming, ...]
    seed: int
    restorer_rebuild_count: int = 0
    link_changes: tuple[LinkChange, ...] = ()
    forgotten_token_count: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole generation: its tokens and its end; the rest as in `Tokens`."""

    token_ids: tuple[int, ...]
    done: GenerationDone
    log_probabilities: tuple[float, ...] = ()
    alternatives: tuple[tuple[Alternative, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Resumption:
    """A session that was opened anew, most often on another node, and lost nothing.

    Addresses are host:port, equal where its own node opened it again; `reason` is that
    of the error or stop reason, ASKED when the application asked for it;
    `history_length` tokens were appended there, and the session was there `seconds`
    after the loss was noticed.
    """

    from_address: str
    to_address: str
    reason: str
    history_length: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RestorerInfo:
    """What a session has evicted, and where it is.

    `model_id` and `digest` name the learned map, empty without one; `node_id` and
    `node_name` the archive's node, empty in the verifier's own process.
    `evicted_bytes` are those of the tensors that keep `evicted_token_count` positions
    there. `rebuild_count` tells how often it was lost and made anew; while it is
    `lost`, the session's next operation makes it anew. `archives` share the positions,
    by rising positions: several where one had not the room; empty in the verifier's own
    process, while it is lost, and when the node does not tell. `own_bytes` of
    `evicted_bytes` are kept by the verifier's own process, since no archive could.
    """

    kind: RestorerKind
    model_id: str
    digest: str
    node_id: str
    node_name: str
    evicted_token_count: int
    evicted_bytes: int
    rebuild_count: int
    lost: bool
    archives: tuple[ArchiveRange, ...] = ()
    own_bytes: int = 0


@dataclass(frozen=True, slots=True)
class InvariantCount:
    """How often a promise of a session was checked, and found broken, since it was opened.

    The first violation ends the session, so that one that answers has 0.
    """

    invariant: str
    check_count: int
    violation_count: int


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """The state of a session, as its node sees it.

    `kv_bytes` are the bytes of the tensors allocated for keys and values;
    `drop_reason` is None unless the session decodes alone; `forward_count`
    counts forward passes since it was opened, prefill included; `restorer` is
    None unless kv_strategy is "restored". `invariants` are empty from nodes that do
    not tell; `forgotten_token_count` positions of the history are seen by no query
    any more.
    """

    session_id: str
    model_id: str
    client_label: str
    history_length: int
    kv_bytes: int
    resident_token_count: int
    kv_strategy: KvStrategy
    sink_tokens: int
    window_tokens: int
    state: SessionState
    idle_seconds: float
    ttl_seconds: float
    age_seconds: float
    plan: Plan
    drop_reason: DropReason | None
    forward_count: int
    restorer: RestorerInfo | None = None
    invariants: tuple[InvariantCount, ...] = ()
    forgotten_token_count: int = 0
