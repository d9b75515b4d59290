"""Values of the contract. Made by `make stubs` from proto/."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class KvStrategy(StrEnum):
    """How the verifier keeps keys and values."""

    FULL = "full"
    """Every position stays resident: memory follows the history, or is taken at once for the
    longest one where the session was opened with a bound.
    """
    SINK_WINDOW = "sink_window"
    """The first `sink_tokens` and the last `window_tokens` stay resident."""
    RESTORED = "restored"
    """sink_window, and evicted positions are restored when attended to."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class RestorerKind(StrEnum):
    """What is kept of the positions that a session has evicted."""

    ARCHIVE = "archive"
    """Their keys and values, in the memory of another process: exact."""
    PROJECTION = "projection"
    """Keys and values that a learned map makes of one context vector each, in the memory of another
    process: fewer bytes are deposited, as many are kept.
    """
    IDENTITY = "identity"
    """Their keys and values, in the verifier's own process: a check of the plumbing, it saves no
    memory.
    """
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class KvQuality(StrEnum):
    """How exactly keys and values are kept that left a session's window."""

    LOSSLESS = "lossless"
    """As they lie in the verifier's cache."""
    HIGH = "high"
    """Packed to 4.75 bits a number, 3.4 times the context a byte, or to what the node has measured
    to be as exact for its model: 2.75 to 8.5 bits.
    """
    ECONOMY = "economy"
    """Packed to 3.75 bits a number, 4.3 times the context a byte, or to what the node has measured
    to be as exact for its model: 2.75 to 8.5 bits.
    """
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class Transport(StrEnum):
    """The road of tensors between verifier and proposer."""

    LOCAL = "local"
    """Both in one process; of tensors also shared memory of two processes of one host."""
    GRPC = "grpc"
    """gRPC streams."""
    RING = "ring"
    """An mlx.distributed ring."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class RejectionReason(StrEnum):
    """Why a pairing was rejected."""

    SLOWER_THAN_CHOSEN = "slower_than_chosen"
    """Another pairing is predicted to be faster."""
    SLOWER_THAN_ALONE = "slower_than_alone"
    """Drafting is predicted to be slower than the verifier alone."""
    TOKENIZER_MISMATCH = "tokenizer_mismatch"
    """The tokenizer digests differ."""
    NOT_ENOUGH_MEMORY = "not_enough_memory"
    """The node's free memory does not hold the session's keys and values."""
    NOT_ALIVE = "not_alive"
    """The node is suspect, dead or has left."""
    PROTOCOL_SKEW = "protocol_skew"
    """The nodes share no version of the protocol."""
    CONTEXT_TOO_LONG = "context_too_long"
    """The context is longer than the model's positions."""
    NOT_REQUESTED = "not_requested"
    """The request named another proposer, or none."""
    NOT_MEASURED = "not_measured"
    """No step of the model was measured, so that no speed can be predicted."""
    UNREACHABLE = "unreachable"
    """The verifier cannot reach the proposer, or never measured the way to it."""
    BREAKER_OPEN = "breaker_open"
    """Its drafts came late, malformed or not at all; its circuit breaker is open."""
    NOT_EXACT = "not_exact"
    """The verifier is not exact on its machine, so that drafting could change tokens; a request
    that names the proposer accepts that.
    """
    WRONG_TARGET = "wrong_target"
    """The proposer was made for another verifier's weights."""
    ROLE_NOT_ALLOWED = "role_not_allowed"
    """The fleet's keepers do not let the node serve this role."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class LinkPurpose(StrEnum):
    """What a link is for."""

    FEATURES = "features"
    """Context vectors of committed tokens, made from hidden states, to a proposer."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class Role(StrEnum):
    """What a node does for others with one model."""

    VERIFIER = "verifier"
    """Holds sessions and decides every token."""
    PROPOSER = "proposer"
    """Drafts blocks of tokens; never decides one."""
    ARCHIVE = "archive"
    """Keeps evicted keys and values for others."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class ModelKind(StrEnum):
    """How a model produces tokens."""

    AUTOREGRESSIVE = "autoregressive"
    """One token after another, causal attention."""
    NGRAM = "ngram"
    """Prompt lookup: no weights, drafts from the history itself."""
    MASKED_DIFFUSION = "masked_diffusion"
    """Bidirectional denoising of masked tokens."""
    DFLASH = "dflash"
    """Block diffusion conditioned on a verifier's hidden states."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class Liveness(StrEnum):
    """Liveness of a node, in the order of their ranks."""

    ALIVE = "alive"
    """Answers."""
    SUSPECT = "suspect"
    """Did not answer probes; may refute with a higher incarnation."""
    DEAD = "dead"
    """Did not refute in time."""
    LEFT = "left"
    """Left by its own, signed word."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class LimitUnit(StrEnum):
    """In what a bound is counted."""

    PLACES = "places"
    """Calls, connections, sessions or other things at once."""
    BYTES = "bytes"
    """Bytes."""
    SECONDS = "seconds"
    """Seconds."""
    TOKENS = "tokens"
    """Tokens of a history."""
    VALUES = "values"
    """Elements of one message or body."""
    A_SECOND = "a_second"
    """Times a second."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class EventSeverity(StrEnum):
    """How much an event matters."""

    INFO = "info"
    """All is well."""
    WARNING = "warning"
    """Speed was lost, or is about to be."""
    ERROR = "error"
    """Something failed that people asked for."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class TransferKind(StrEnum):
    """What is brought into a node."""

    DOWNLOAD = "download"
    """A model's files come from other nodes, or from the hub, to the disk."""
    LOAD = "load"
    """A model's weights come from the disk to the memory that computes."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class TransferState(StrEnum):
    """How a transfer stands."""

    RUNNING = "running"
    """It goes on."""
    DONE = "done"
    """It came to its end."""
    FAILED = "failed"
    """It failed; see error."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class LoadPhase(StrEnum):
    """What a load does."""

    WAITING = "waiting"
    """Another model is loaded, or unloaded, first."""
    FETCHING = "fetching"
    """The model's files are looked for, or come from the hub, or a GGUF is converted."""
    READING = "reading"
    """Its weights come into memory."""
    CHECKING = "checking"
    """It is checked and measured on this machine."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class PullPhase(StrEnum):
    """What a pull does."""

    ASKING = "asking"
    """Members are asked who has the model, and which files it has."""
    CHECKING = "checking"
    """What an earlier pull left is compared with its digests."""
    COPYING = "copying"
    """Its files come from members."""
    DOWNLOADING = "downloading"
    """Its files come from the hub."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class StopReason(StrEnum):
    """Why a generation ended."""

    MAX_TOKENS = "max_tokens"
    """`max_tokens` were generated."""
    STOP_TOKEN = "stop_token"
    """A stop id was generated; it is the last token."""
    DEADLINE = "deadline"
    """`deadline_seconds` passed."""
    CONTEXT_FULL = "context_full"
    """The history reached the longest that the model's positions allow."""
    DRAINING = "draining"
    """The node is draining; the tokens are the client's, resume elsewhere."""
    COMPLETE = "complete"
    """The answer is whole: its grammar allows nothing more."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class DropReason(StrEnum):
    """Why a session is decoding without its proposer, or what its proposer did wrong."""

    UNREACHABLE = "unreachable"
    """The stream to the proposer broke or never opened."""
    DEADLINE = "deadline"
    """A draft did not come within its deadline."""
    WRONG_LENGTH = "wrong_length"
    """Blocks of a wrong length."""
    OUT_OF_VOCABULARY = "out_of_vocabulary"
    """Ids outside the vocabulary."""
    STALE = "stale"
    """Blocks for another history or another proposal."""
    SLOWER_THAN_ALONE = "slower_than_alone"
    """Drafting was measured to be slower than decoding alone."""
    FEATURES = "features"
    """Context vectors for the proposer were lost, late, refused or not to be had."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class SessionState(StrEnum):
    """Whether a session is working."""

    IDLE = "idle"
    """Nothing runs."""
    APPENDING = "appending"
    """An append runs."""
    GENERATING = "generating"
    """A generation runs."""
    RESTING = "resting"
    """Nothing runs, and it has no memory: another session needed it."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


class SessionOutcome(StrEnum):
    """How a session came to its end."""

    CLOSED = "closed"
    """Its client closed it."""
    EVICTED = "evicted"
    """It was evicted: idle for too long, or its memory was needed."""
    INVARIANT_VIOLATED = "invariant_violated"
    """A promise was broken."""
    GROUP_LOST = "group_lost"
    """A rank of its verifier's group was lost."""
    DRAINED = "drained"
    """Its node left."""
    UNKNOWN = "unknown"
    """Newer than this client, or not given."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """What one step of a model costs on the machine that serves it, as measured when the model was
    loaded.
    """

    token_count: int
    """Tokens of the step: queries of a verify forward, or drafted tokens."""
    seconds: float
    """Median duration of the step, in seconds."""


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """One model in one role, as a capability card offers it."""

    model_id: str
    """The name that requests use: "tiny", a hub id, or the folder's name."""
    role: Role
    """What the node does with the model."""
    kind: ModelKind
    """How the model produces tokens."""
    weights_digest: str
    """SHA-256 of the weights, hexadecimal; empty for a model without weights."""
    tokenizer_digest: str
    """SHA-256 of the tokenizer, hexadecimal. A pair needs equal digests. Empty only for "ngram",
    which drafts ids of any tokenizer.
    """
    quantization: str
    """Quantization of the weights, such as "int4-g64"; empty for none."""
    dtype: str
    """Number format of the computation, such as "float32"."""
    vocabulary_size: int
    """Ids are 0 to `vocabulary_size` - 1; 0 for "ngram"."""
    context_length: int
    """Longest history that the model's positions allow; 0 for no limit."""
    kv_bytes_per_token: int
    """Bytes of keys and values that one resident token takes, in all layers that see the whole
    history.
    """
    step_costs: tuple[StepCost, ...]
    """Measured steps, by rising `token_count`."""
    exact: bool
    """Whether the load-time check found that a verifier's bits do not depend on how a history is
    cut into blocks, past the window, on this machine. A verifier that is not exact is paired only
    with a proposer that the request names. False for proposers.
    """
    kv_fixed_bytes: int
    """Bytes that a session takes at most besides `kv_bytes_per_token`: layers with sliding windows,
    recurrent states.
    """
    backend: str
    """What computes the model: "torch" or "mlx"; empty for a model without tensors, and from nodes
    that do not tell.
    """
    architecture: str = ""
    """Architecture as it was resolved when the model was loaded, such as "DFlashDraftModel v1";
    empty for a model without weights.
    """
    target_weights_digest: str = ""
    """SHA-256 of the weights of the one verifier that a proposer drafts for, hexadecimal; empty
    when it drafts for every verifier with its tokenizer.
    """
    feature_width: int = 0
    """Values of one context vector that the proposer needs for each position; 0 for a proposer that
    needs none.
    """
    encoder_digest: str = ""
    """SHA-256 of the weights of the encoder that makes those vectors, hexadecimal; empty without
    vectors.
    """
    tapped_layers: tuple[int, ...] = ()
    """Layers of the verifier, from 0, that the encoder takes; empty without."""
    block_size: int = 0
    """Most tokens of one draft of a proposer; 0 for no limit of its own."""
    history_layer_count: int = 0
    """Layers of a verifier that attend to the whole history: each of them asks an archive once a
    forward. 0 for proposers, and from nodes that do not tell.
    """
    rank_count: int = 0
    """Ranks that compute a verifier together; its K/V bytes are those of one of them. 0 for a model
    of one process.
    """
    thread_count: int = 0
    """Threads that share one forward of a verifier. exact was checked with as many, and other
    numbers may round otherwise: a session resumes first where they are equal. 0 where their number
    changes no bit, for proposers, and from nodes that do not tell.
    """
    evicted_arithmetic: str = ""
    """Names what computes when the verifier's own process keeps what a session has evicted, as
    ArchiveOffer.arithmetic does of an archive: where both are equal it takes over from one that is
    lost. Empty when it keeps nothing, for proposers, and from nodes that do not tell.
    """
    arithmetic: str = ""
    """Names what rounds a verifier's forwards besides their shapes and threads: library, version,
    processor's instructions. Equal weights of equal dtype and quantization have equal bits where it
    is equal, and may have others elsewhere: a session resumes first where it is equal. Empty for
    proposers, for groups, and from nodes that do not tell.
    """
    given_history_tokens: int = 0
    """Longest history, in tokens, of which a proposer takes the keys and values that a verifier of
    its weights on its own machine has (DraftHistory), instead of reading it. 0 for one that reads
    every history by itself, and for verifiers.
    """
    ends_drafts: bool = False
    """Whether a proposer's drafts end by themselves where more would be too unsure to be worth its
    time: as many tokens are asked for as one forward verifies. False for one that drafts as many as
    it is asked for, and for verifiers.
    """


@dataclass(frozen=True, slots=True)
class Placement:
    """The end of a pair: one model on one node."""

    node_id: str
    """Node that serves the model."""
    node_name: str
    """The node's name, for people."""
    address: str
    """Where the node answers, host:port."""
    model_id: str
    """Model on that node."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A pairing that was looked at and not chosen."""

    verifier: Placement
    """Verifier of the pairing."""
    proposer: Placement | None
    """Proposer of the pairing; None when the verifier itself was rejected."""
    reason: RejectionReason
    """Why."""
    explanation: str
    """One sentence for people, with the numbers that decided."""
    predicted_tokens_per_second: float
    """Predicted speed of the pairing; 0 when it was not computed."""


@dataclass(frozen=True, slots=True)
class ArchiveRange:
    """The archive of a range of evicted positions."""

    archive: Placement
    """The archive."""
    first_position: int
    """The first position."""
    end_position: int
    """The position after the last."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A proposer that could be faster than what was chosen."""

    proposer: Placement
    """Who would draft."""
    predicted_tokens_per_second_high: float
    """Speed with it at the upper end of its acceptance."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the planner decided."""

    verifier: Placement
    """Where the session will be."""
    proposer: Placement | None
    """Who drafts; None when the verifier decodes alone."""
    transport: Transport | None
    """Best road that both ends offer for tensors between the two, where the proposer takes any,
    else that of its drafts; None when the verifier decodes alone. Tensors begin over gRPC and keep
    to a better road once it is measured to be faster: the reasons say so, TensorLink what carries
    them.
    """
    block_size: int
    """Drafted tokens a block; 0 when the verifier decodes alone."""
    predicted_tokens_per_second: float
    """Predicted speed of the chosen pair; with `kv_strategy` restored, with its archives."""
    predicted_alone_tokens_per_second: float
    """Predicted speed of the same verifier alone."""
    round_trip_seconds: float
    """Round trip between verifier and proposer that was assumed, in seconds."""
    acceptance_rate: float
    """Acceptance a drafted token that was assumed, 0 to 1."""
    acceptance_measured: bool
    """Whether the acceptance was measured, not assumed."""
    kv_bytes: int
    """Keys and values that the session will hold at most, in bytes."""
    reasons: tuple[str, ...]
    """Sentences for people that say how the choice was made."""
    rejections: tuple[Rejection, ...]
    """The other pairings, each with its reason: the 64 fastest, where there are more; how many
    there were is among the reasons then.
    """
    exact: bool
    """Whether drafting cannot change a token: the verifier is exact on its machine, or decodes
    alone. False only when the request names the proposer of a verifier that is not exact; a reason
    says so then.
    """
    archive: Placement | None = None
    """With `kv_strategy` restored: the archive that keeps what is evicted, its `model_id` the
    learned map's if there is one; None when the session needs none, or none can be had.
    """
    archives: tuple[ArchiveRange, ...] = ()
    """All archives that the planned context needs, by rising positions: one, or several where no
    single one has the room. Empty without an archive, and when all together lack the room.
    """
    acceptance_rate_low: float = 0.0
    """Range of `acceptance_rate` that the streams measured so far, or the assumption, allow: about
    four of five streams lie in it. Both 0 when the verifier decodes alone.
    """
    acceptance_rate_high: float = 0.0
    """The upper end of the same."""
    predicted_tokens_per_second_low: float = 0.0
    """`predicted_tokens_per_second` at `acceptance_rate_low`."""
    predicted_tokens_per_second_high: float = 0.0
    """`predicted_tokens_per_second` at `acceptance_rate_high`."""
    exploring: bool = False
    """Whether the proposer is on trial now, to learn its speed with this stream: the session goes
    back to what it did before after a bounded number of tokens if it does not pay. False in a dry
    run; its reasons name what a session will try.
    """
    kv_strategy: KvStrategy | None = None
    """How keys and values will be kept, whether the request said so or not; None from nodes that do
    not tell.
    """
    trials: tuple[Trial, ...] = ()
    """Proposers that the session tries on its own stream, the most promising first: at the upper
    end of their acceptance they are faster than what was chosen. Empty when the request names the
    proposer or wants none.
    """
    stand_in: Trial | None = None
    """Who drafts when the proposer cannot, and is asked too when it is late; None when nobody
    stands in.
    """


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations of one generation."""

    queue_seconds: float
    """Waiting for the session's earlier operations, in seconds."""
    prefill_seconds: float
    """Keys and values of tokens that were not computed yet, in seconds; those of an append are
    computed, and told, by AppendTokens.
    """
    first_token_seconds: float
    """From the request to the first committed token, in seconds; 0 without one."""
    total_seconds: float
    """The whole generation, in seconds."""


@dataclass(frozen=True, slots=True)
class DraftFault:
    """One fault of the proposer that the session survived."""

    reason: DropReason
    """What went wrong."""
    count: int
    """How often, in this generation."""


@dataclass(frozen=True, slots=True)
class BlockTiming:
    """Where the seconds of one block went."""

    first_index: int
    """Position of the block's first token in the history."""
    drafted_count: int
    """Drafted tokens that were verified, or cut off since a grammar forbids them."""
    accepted_count: int
    """Drafted tokens that were accepted."""
    draft_seconds: float
    """The proposer's own time for the draft, in seconds."""
    wire_seconds: float
    """Round trip of the draft less `draft_seconds`, in seconds."""
    wait_seconds: float
    """Time that the verifier waited for the draft, in seconds: what of draft and wire was not
    hidden behind the last verify forward.
    """
    verify_seconds: float
    """The verify forward with choosing the tokens, in seconds."""
    drafted_ahead: bool
    """Whether the block was drafted while the last one was verified."""
    start_seconds: float
    """The block's start, in seconds since the generation began."""
    generation_number: int = 0
    """Number of its generation within the session, from 1; 0 where a message tells of one
    generation alone.
    """
    committed_count: int = 0
    """Tokens that the block committed: the accepted ones and the verifier's own."""
    proposer_node_id: str = ""
    """Node of the proposer that was asked for a draft; empty when none was."""
    proposer_model_id: str = ""
    """Its model."""


@dataclass(frozen=True, slots=True)
class ProposerStatistics:
    """What one proposer did in one generation.

    Blocks that the verifier decoded alone are nobody's.
    """

    node_id: str
    """Its node."""
    model_id: str
    """Its model."""
    block_count: int
    """Blocks for which it was asked for a draft."""
    drafted_count: int
    """Drafted tokens that were verified."""
    accepted_count: int
    """Drafted tokens that were accepted."""
    committed_count: int
    """Tokens that its blocks committed: the accepted ones and the verifier's own."""
    seconds: float
    """What its blocks took, in seconds: waiting for drafts and verifying."""


@dataclass(frozen=True, slots=True)
class SpeculationStatistics:
    """What speculation did in one generation."""

    block_count: int
    """Blocks that were verified with at least one drafted token."""
    drafted_count: int
    """Drafted tokens that were verified, or cut off before: see `forbidden_count`."""
    accepted_count: int
    """Drafted tokens that were accepted."""
    verify_forward_count: int
    """Forward passes of the verifier, prefill not counted."""
    acceptance_length: float
    """Generated tokens over `verify_forward_count`."""
    round_trip_seconds_p50: float
    """Median round trip of a draft less the proposer's compute time, seconds."""
    round_trip_seconds_p99: float
    """99th percentile of the same, in seconds."""
    faults: tuple[DraftFault, ...]
    """Faults of the proposer, by kind. Being slower than alone is none: see `drop_reason`."""
    drop_reason: DropReason | None
    """Why the session decodes alone now; None when it does not."""
    ahead_hit_count: int
    """Blocks drafted ahead that fitted what was committed."""
    ahead_miss_count: int
    """Blocks drafted ahead that did not."""
    proposer_node_id: str
    """Node of the proposer that drafts now, or would; empty without one. The session may have tried
    others: see proposers.
    """
    proposer_model_id: str
    """Its model; empty without one."""
    proposers: tuple[ProposerStatistics, ...] = ()
    """Every proposer that was asked for a draft, in the order of their first blocks."""
    hedge_count: int = 0
    """Blocks that were asked of a second proposer too, the first one being late: at most one in
    twenty. 0 from nodes that do not tell.
    """
    hedge_won_count: int = 0
    """Those of them for which the second draft came first."""
    forbidden_count: int = 0
    """Drafted tokens that went into no forward, since the generation's grammar forbids them, or one
    before them in their block. 0 from nodes that do not tell.
    """


@dataclass(frozen=True, slots=True)
class LinkChange:
    """A tensor link of the session went over to another road."""

    start_seconds: float
    """Seconds since the generation's start; 0 for what happened before it."""
    purpose: LinkPurpose
    """What the link is for."""
    transport: Transport
    """What carries it from then on."""
    generation: int
    """The road's number on its link; 0 for gRPC before the first."""
    reason: str
    """A sentence that says why."""
    peer_node_id: str
    """The node at the other end."""


@dataclass(frozen=True, slots=True)
class GenerationDone:
    """The end of a generation."""

    stop_reason: StopReason
    """Why it ended."""
    generated_token_count: int
    """Tokens generated by this call."""
    history_length: int
    """Tokens in the history now."""
    timings: Timings
    """Durations."""
    speculation: SpeculationStatistics
    """Speculation."""
    timeline: tuple[BlockTiming, ...]
    """The last blocks, at most 256, oldest first."""
    seed: int
    """Seed of the sampled stream; 0 when greedy."""
    restorer_rebuild_count: int = 0
    """How often what was evicted was lost during the generation and made anew from the history, on
    the same archive or another.
    """
    link_changes: tuple[LinkChange, ...] = ()
    """Changes of what carries the session's tensor links since its generation before, oldest first,
    at most 64.
    """
    forgotten_token_count: int = 0
    """Positions of the history that no query sees any more, at the generation's end: evicted, and
    not restored. With `kv_strategy` sink_window, what the history has beyond sink and window; else
    0.
    """
    recomputed_token_count: int = 0
    """Positions of the history whose keys and values this generation computed once more: the
    session had rested, or what it had evicted was lost.
    """
    kv_quality: KvQuality = KvQuality.UNKNOWN
    """How exactly keys and values behind the latest positions were kept at its end: what the
    session was opened for, or its `quality_when_short`. Unspecified from nodes that do not tell.
    """


@dataclass(frozen=True, slots=True)
class RestorerInfo:
    """What a session has evicted, and where it is."""

    kind: RestorerKind
    """What is kept."""
    model_id: str
    """Model of the learned map; empty without one."""
    digest: str
    """SHA-256 of the learned map and its encoder, hexadecimal; empty without."""
    node_id: str
    """The archive's node; empty in the verifier's own process."""
    quality_when_short: KvQuality
    """With `kv_strategy` full: how exactly they may be kept once the verifier is short of memory,
    less so than quality says; unspecified for never. The session begins packed where its memory is
    not free without another's rest. Later it is packed when it finds no room to grow, or wakes to
    less free memory than it had: its history is computed once more, and it goes on, to its end, as
    one of that quality. Nodes of earlier versions never pack it.
    """
    node_name: str
    """Name of the node, for people; empty in the verifier's own process, and while the archive is
    lost.
    """
    evicted_token_count: int
    """Positions that are evicted and kept there."""
    evicted_bytes: int
    """Bytes of the tensors that keep them there."""
    rebuild_count: int
    """How often it was lost and made anew since the session was opened."""
    lost: bool
    """Whether it is lost now: the session's next operation makes it anew."""
    archives: tuple[ArchiveRange, ...] = ()
    """The archives that share it, by rising positions, as far as it reaches now: several where one
    had not the room. A range without an archive is kept in the verifier's own process. Empty with
    "identity", while it is lost, and from nodes that do not tell.
    """
    own_bytes: int = 0
    """Those of `evicted_bytes` that are in the verifier's own process since no archive was left to
    take them. They count in the session's `kv_bytes`, and grow with the context.
    """
    audited_answer_count: int = 0
    """Answers of archives that the verifier computed again, as spot checks, and found right. 0 from
    nodes that do not tell.
    """
    doubtful_from: int = 0
    """First of the positions whose tokens, if they were chosen and not appended, may be others than
    they would have been: an archive that was found to give wrong numbers answered then. All later
    ones are right.
    """
    doubtful_end: int = 0
    """The end of those positions, exclusive; 0 while nothing is doubtful."""
    quality: KvQuality = KvQuality.UNKNOWN
    """How exactly they are kept; only lossless with "projection". Packed ones leave the window in
    tiles of 64 positions, and `sink_tokens` is rounded up to whole tiles.
    """
    codec: str = ""
    """Names what packs keys and values. In answers empty where they stay as they lie. In requests
    for a packed quality the codec to take, as a session has that goes on from its tokens: one of
    int8, kvarn4, kvarn4v3, kvarn3, kvarn3v2 and kvarn2; empty for the one that the node has found
    to be exact enough for its model. Nodes of earlier versions take their quality's own.
    """


@dataclass(frozen=True, slots=True)
class InvariantCount:
    """How often a promise of a session was checked, and found broken."""

    invariant: str
    """Its name: history_cache_agreement, bounded_kv_memory, contiguous_commit or finite_logits."""
    check_count: int
    """Checks since the session was opened."""
    violation_count: int
    """Those that failed. The first one ends the session, so that a session that answers has 0."""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """The state of a session."""

    session_id: str
    """The session."""
    model_id: str
    """Its verifier model."""
    client_label: str
    """The name that its client gave."""
    history_length: int
    """Tokens in the history."""
    kv_bytes: int
    """Bytes of the tensors allocated for keys and values, with `own_bytes` of what restores them.
    """
    resident_token_count: int
    """Positions whose keys and values are resident."""
    kv_strategy: KvStrategy
    """How keys and values are kept."""
    sink_tokens: int
    """Positions at the start that stay resident."""
    window_tokens: int
    """Latest positions that stay resident."""
    state: SessionState
    """What it does now."""
    idle_seconds: float
    """Seconds since its last operation ended."""
    ttl_seconds: float
    """Idle seconds after which it is evicted."""
    age_seconds: float
    """Seconds since it was opened."""
    plan: Plan
    """The pair that serves it."""
    drop_reason: DropReason | None
    """Why it decodes alone now; None when it does not."""
    forward_count: int
    """Forward passes of the verifier since it was opened, prefill included."""
    restorer: RestorerInfo | None = None
    """What it has evicted; None unless `kv_strategy` is restored, or full and packed: then it is
    what left the latest positions, of "identity".
    """
    invariants: tuple[InvariantCount, ...] = ()
    """What was checked, by name. Empty from nodes that do not tell."""
    forgotten_token_count: int = 0
    """Positions of the history that no query sees any more; see GenerationDone."""
    recomputed_token_count: int = 0
    """Positions computed once more since it was opened; see GenerationDone."""
    computed_token_count: int = 0
    """Positions of the history whose keys and values are computed, while an append runs too: all
    but the last where nothing is left to compute. 0 from nodes that do not tell.
    """


@dataclass(frozen=True, slots=True)
class SessionActivity:
    """What a session did since it was opened, and its latest blocks."""

    session: SessionInfo
    """Its state."""
    blocks: tuple[BlockTiming, ...]
    """Blocks since the message before, at most the latest 256, oldest first; at first the latest
    ones.
    """
    tokens_per_second: float
    """Of the generation that runs, or of the latest, in tokens a second."""
    generation_count: int
    """Generations that began."""
    generated_token_count: int
    """Tokens that they committed."""
    prefilled_token_count: int
    """Appended tokens whose keys and values were computed."""
    prefill_seconds: float
    """The time of that, in seconds."""
    drafted_count: int
    """Drafted tokens that were verified."""
    accepted_count: int
    """Drafted tokens that were accepted."""
    verify_forward_count: int
    """Forward passes that chose tokens."""
    draft_seconds: float
    """Proposers' own time for drafts, in seconds."""
    wire_seconds: float
    """Round trips of drafts less `draft_seconds`, in seconds."""
    wait_seconds: float
    """Time that the verifier waited for drafts, in seconds."""
    verify_seconds: float
    """Verify forwards with choosing the tokens, in seconds."""
    link_changes: tuple[LinkChange, ...]
    """Latest changes of what carries its tensor links, at most 16, oldest first."""
    stop_reason: StopReason | None
    """Why its latest generation ended; None before one did."""


@dataclass(frozen=True, slots=True)
class SessionsSnapshot:
    """All sessions of a node."""

    sessions: tuple[SessionActivity, ...]
    """The sessions, oldest first."""


@dataclass(frozen=True, slots=True)
class EndedSession:
    """A session that is no more."""

    session_id: str
    """The session."""
    outcome: SessionOutcome
    """How it ended."""


@dataclass(frozen=True, slots=True)
class TextVector:
    """A text's vector."""

    values: tuple[float, ...]
    """The vector, of length 1; as many values as the model's hidden states have. The same for the
    same ids, whoever else is served meanwhile, where the model is exact.
    """
    model: ModelOffer
    """The model that made it, as the node's card offers it: vectors of other weights are not
    comparable with it.
    """


@dataclass(frozen=True, slots=True)
class ArchiveOffer:
    """Memory that keeps what verifiers of other nodes have evicted."""

    capacity_bytes: int
    """Bytes that archives may take together."""
    free_bytes: int
    """Bytes of them that were free when the card was made."""
    port: int
    """Port of ArchiveService at the node's addresses."""
    arithmetic: str
    """Names what computes; see OpenArchiveResponse."""


@dataclass(frozen=True, slots=True)
class Card:
    """What one node is and offers. Signed by its owner as serialized bytes."""

    node_id: str
    """SHA-256 of `public_key`, hexadecimal."""
    name: str
    """Name for people."""
    fleet_name: str
    """Fleet that the node belongs to."""
    boot_id: str
    """Random at every start; two of them under one `node_id` betray a clone."""
    incarnation: int
    """Raised by the owner alone, at a start or to refute; durable."""
    sequence: int
    """Rises with every change of the card within an incarnation."""
    public_key: str
    """Ed25519 public key, hexadecimal."""
    addresses: tuple[str, ...]
    """Where the node answers, host:port, best first."""
    platform: str
    """Operating system and processor, such as "linux/x86_64"."""
    accelerator_kind: str
    """"cpu", "metal", "cuda" or "mps"; a device that the node does not use is not named."""
    accelerator_name: str
    """Name for people, such as "Apple M4 Pro"."""
    memory_total_bytes: int
    """Physical memory, in bytes."""
    memory_free_bytes: int
    """Free memory when the card was made, in bytes."""
    software_version: str
    """Version of kakeya-fleet."""
    protocol_min: int
    """Lowest protocol version spoken."""
    protocol_max: int
    """Highest protocol version spoken."""
    models: tuple[ModelOffer, ...]
    """Models and the roles they are served in."""
    ring_address: str
    """Where the node's ring listens; empty when it has none."""
    announced_at_unix: float
    """Owner's clock when the card was made, in seconds since 1970; for people, it orders nothing.
    """
    ttl_seconds: float
    """Seconds without any sign of life after which the card may be dropped."""
    archive: ArchiveOffer | None = None
    """Its archive; None when it has none."""
    http_address: str = ""
    """Where the node's HTTP answers (/v1, /health, /metrics), host:port; empty when it has none, or
    none that another machine could reach.
    """
    host_id: str = ""
    """Names the machine as long as it runs: nodes with the same one share its memory. A digest, of
    which nothing else can be learned; empty from nodes that do not tell.
    """
    certificate: str = ""
    """Makes the owner a member of a fleet with an authority: X.509, DER; empty in one without."""
    https_port: int = 0
    """The port of its addresses at which applications with a key call HTTPS; 0 when they cannot."""
    applications_port: int = 0
    """The same of gRPC, by TLS."""
    accelerator_memory_total_bytes: int = 0
    """Bytes that the node may have at most in the memory that its accelerator computes in, and
    those free there at announcement: the machine's own unless the accelerator has memory apart. 0
    from nodes that do not tell.
    """
    accelerator_memory_free_bytes: int = 0
    """See `accelerator_memory_total_bytes`."""
    accelerator_dtypes: tuple[str, ...] = ()
    """Number formats in which the accelerator computes weights, keys and values: "float32",
    "bfloat16". Empty from nodes that do not tell, and where no back end is installed.
    """


@dataclass(frozen=True, slots=True)
class PeerLink:
    """A measured way to another node."""

    node_id: str
    """The other node."""
    round_trip_seconds: float
    """Smallest round trip of the last exchanges, in seconds."""
    breaker_open: bool
    """Whether a proposer there is shut out by a breaker of this node."""
    archive_wait_seconds: float | None = None
    """What a layer of this node's verifiers waits for an answer of the archive there, in seconds:
    median of the latest; None before there were enough.
    """
    address: str = ""
    """The address at which the other node answered last, host:port: of those on its card the one
    that works from here; empty from nodes that do not tell.
    """
    breaker_open_models: tuple[str, ...] = ()
    """Proposer models there that are shut out. None beside `breaker_open`, from nodes that do not
    tell, is all of them.
    """


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """Load of a node, which never rides on cards."""

    session_count: int
    """Sessions that are open."""
    generating_count: int
    """Sessions that generate now."""
    draft_stream_count: int
    """Draft streams that are served."""
    kv_bytes: int
    """Bytes of keys and values allocated."""
    kv_budget_bytes: int
    """Bytes that sessions may take together."""
    memory_free_bytes: int
    """Free memory now, in bytes."""
    archive_count: int = 0
    """Archives that are open here for sessions of any node."""
    archive_bytes: int = 0
    """Bytes that they take."""
    archive_budget_bytes: int = 0
    """Bytes that they may take together; 0 without the role."""
    cpu_share: float | None = None
    """Share of the cores that the node may run on which programs of the machine kept busy, 0 to 1,
    over the latest second; None before there is one, and from nodes that do not tell.
    """
    process_cpu_share: float | None = None
    """Share of the same cores that the node's own process had, 0 to 1, without the ranks that it
    started; None before there is a second, and from nodes that do not tell.
    """


@dataclass(frozen=True, slots=True)
class MeasuredAcceptance:
    """Acceptance that a verifier measured with a proposer."""

    verifier_model_id: str
    """Verifier model."""
    proposer_model_id: str
    """Proposer model."""
    acceptance_rate: float
    """Share of drafted tokens that were accepted given that all before them in the block were, 0 to
    1: the mean over recent sessions, each of which counts once. Text that repeats itself is left
    out.
    """
    drafted_count: int
    """Drafted tokens that the figure stands on."""
    acceptance_rate_low: float = 0.0
    """Tenth percentile of the same over the sessions."""
    acceptance_rate_high: float = 0.0
    """Ninetieth percentile: four of five sessions lie between the two."""
    session_count: float = 0.0
    """Sessions that the figure stands on; one with few tokens compared counts as a part of one. 0
    when all text repeated itself, and from nodes that do not tell: nothing is predicted of it then.
    """


@dataclass(frozen=True, slots=True)
class TensorLink:
    """An open tensor link, as one of its ends sees it."""

    peer_node_id: str
    """The node at the other end."""
    purpose: LinkPurpose
    """What it is for."""
    transport: Transport
    """What carries it now."""
    generation: int
    """Roads that were built for it; 0 while there was none but gRPC."""
    bytes_per_second: float
    """Of the latest tensors, in bytes a second; 0 before any was measured."""
    reason: str
    """A sentence about the latest change of transport."""
    changed_seconds_ago: float
    """Seconds since that change."""
    is_caller: bool
    """Whether this node opened it."""
    tensor_count: int
    """Tensors that were sent and received."""
    byte_count: int
    """Their bytes."""
    demotion_count: int
    """Times that a road was left."""


@dataclass(frozen=True, slots=True)
class SeedFault:
    """A seed peer that this node was told of and cannot join."""

    address: str
    """host:port, as it was given."""
    reason: str
    """Why, in UPPER_SNAKE_CASE: UNREACHABLE, NOT_A_NODE, FLEET_MISMATCH, PROTOCOL_SKEW, or the
    reason of another error.
    """
    message: str
    """A sentence for people."""
    mend: str
    """A sentence that says what mends it; empty when nothing is known to."""
    since_seconds: float
    """Seconds since it was first tried in vain."""
    attempt_count: int
    """How often it was tried in vain since."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it sees itself."""

    card: Card
    """Its card."""
    links: tuple[PeerLink, ...]
    """Measured ways to others."""
    load: NodeLoad
    """Its load."""
    acceptances: tuple[MeasuredAcceptance, ...]
    """Acceptance by pair, as measured here."""
    metrics_address: str
    """Where /metrics is served, host:port; empty when it is not."""
    draining: bool
    """Whether the node is draining."""
    tensor_links: tuple[TensorLink, ...] = ()
    """Tensor links that are open, either way."""
    http_address: str = ""
    """Where its HTTP answers (/v1, /health, /metrics), host:port; empty when it has none."""
    started_at_unix: float = 0.0
    """Owner's clock when the node was started, in seconds since 1970."""
    seed_faults: tuple[SeedFault, ...] = ()
    """Seed peers that do not answer as nodes of this fleet."""


@dataclass(frozen=True, slots=True)
class LimitUse:
    """One bound of a node, and what is taken of it."""

    name: str
    """Name, such as "drafts.streams"; also the label `limit` of the node's metrics."""
    unit: LimitUnit
    """In what it is counted."""
    limit: float
    """The bound."""
    used: float
    """What callers hold now."""
    refused_full_count: int
    """Refused since the node's start because all of it was taken."""
    refused_share_count: int
    """Refused since then because the caller held more than others of what was scarce."""
    why: str
    """Why it is what it is, in sentences: its formula or its reason."""
    is_counted: bool
    """Whether callers hold it and are counted; nobody holds a deadline or a size."""


@dataclass(frozen=True, slots=True)
class MeasuredCodec:
    """What a node knows of one codec of one of its verifiers."""

    model_id: str
    """The verifier model."""
    weights_digest: str
    """Digest of its weights; what is measured is kept by it."""
    arithmetic: str
    """How it is computed: back end, number format and quantization."""
    codec: str
    """The codec, such as "kvarn4"."""
    bits: float
    """Bits of a packed number at most, scales included."""
    position_count: int
    """Positions of sessions' histories that it was measured on; at least 16 tell something."""
    divergence_nats: float
    """Mean divergence of the choices' distributions from those of unpacked keys and values,
    KL(unpacked || packed) in nats; 0 before it is measured.
    """
    error_nats: float
    """The true mean lies within so many nats of it; 0 before two positions."""
    qualities: tuple[KvQuality, ...]
    """The qualities whose new sessions get it."""
    reasons: tuple[str, ...]
    """Why they do, in sentences; empty where none does."""
    measured_at_unix: float
    """When it was last measured, in seconds since 1970; 0 for never."""
    is_settled: bool
    """Whether it is measured no more, until it is reset."""


@dataclass(frozen=True, slots=True)
class SpanAttribute:
    """A count or a name that says more of a span."""

    name: str
    """Such as "tokens"."""
    value: str
    """Such as "128"."""


@dataclass(frozen=True, slots=True)
class Span:
    """Work that a node did for a request, from its begin to its end."""

    trace_id: str
    """Of the request everywhere: 32 hexadecimal digits."""
    span_id: str
    """Of this span: 16 hexadecimal digits."""
    parent_span_id: str
    """The span that this is a part of, there or on the node that asked for it; empty for the first
    one.
    """
    name: str
    """What was done: a method such as "/kakeya.v1.RuntimeService/Generate", a route such as "POST
    /v1/chat/completions", or a part of either such as "prefill".
    """
    started_at_unix: float
    """By the node's own clock, in seconds since 1970. Clocks of two nodes differ."""
    duration_seconds: float
    """How long it took, in seconds."""
    request_id: str
    """The `request_id` that its caller gave; empty without one."""
    fault: str
    """How it ended: empty when well, else the reason of its error, or CANCELLED when its caller
    left or its deadline passed.
    """
    attributes: tuple[SpanAttribute, ...]
    """What else is known: counts and names, such as "tokens" or "model"."""


@dataclass(frozen=True, slots=True)
class NodeSpans:
    """What a node did for a request."""

    node_id: str
    """The node."""
    node_name: str
    """Its name."""
    spans: tuple[Span, ...]
    """Its spans of the request, by their begin."""


@dataclass(frozen=True, slots=True)
class NodeSample:
    """What a node did in one second, and what it held at its end.

    Rates are means over that second.
    """

    at_unix: float
    """The second's end by the node's clock, in seconds since 1970."""
    tokens_per_second: float
    """Tokens that generations committed, a second."""
    prefill_tokens_per_second: float
    """Appended tokens whose keys and values were computed, a second."""
    session_count: int
    """Sessions that are open."""
    generating_count: int
    """Sessions that generate."""
    draft_stream_count: int
    """Draft streams that are served."""
    kv_bytes: int
    """Bytes of keys and values allocated."""
    memory_free_bytes: int
    """Free memory of the machine, in bytes."""
    archive_bytes: int
    """Bytes that archives take."""
    drafted_count: int
    """Drafted tokens that were verified in this second."""
    accepted_count: int
    """Drafted tokens that were accepted in this second."""
    verify_forward_count: int
    """Forward passes of verifiers in this second, prefill not counted."""
    drafts_per_second: float
    """Blocks that were drafted here for any node, a second."""
    link_bytes_per_second: float
    """Bytes of tensors that tensor links carried, either way, a second."""
    cpu_share: float | None = None
    """Share of the cores that the node may run on which programs of the machine kept busy, 0 to 1;
    None when the system does not tell, and from nodes that do not.
    """
    process_cpu_share: float | None = None
    """Share of the same cores that the node's own process had, 0 to 1, without the ranks that it
    started; None from nodes that do not tell.
    """
    accelerator_share: float | None = None
    """Share of the time in which the accelerator that the node computes on had work of any program,
    0 to 1, over its driver's latest period of up to a second; None when there is none, and when the
    driver does not tell.
    """


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Something that happened on a node, or that it saw."""

    number: int
    """Number of the event on its node since the node's start, from 1."""
    at_unix: float
    """The node's clock, in seconds since 1970."""
    severity: EventSeverity
    """How much it matters."""
    kind: str
    """What happened, in UPPER_SNAKE_CASE, such as PEER_DEAD or LINK_DEMOTED."""
    message: str
    """A sentence for people."""
    mend: str
    """A sentence that says what mends it; empty when there is nothing to mend."""
    subject_node_id: str
    """The node it is about; empty for the node that tells."""
    session_id: str
    """The session it is about; empty for none."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A download or a load, with its progress."""

    transfer_id: str
    """Names it on its node."""
    kind: TransferKind
    """What is brought."""
    model_id: str
    """The model."""
    state: TransferState
    """How it stands."""
    done_bytes: int
    """Bytes that have come."""
    total_bytes: int
    """Bytes in all; 0 while unknown."""
    bytes_per_second: float
    """Rate of the latest seconds, in bytes a second; 0 while unknown."""
    remaining_seconds: float
    """Seconds until its end at that rate; 0 while unknown, and at the end."""
    started_at_unix: float
    """The node's clock when it began, in seconds since 1970."""
    error: str
    """Why it failed, with the mend; empty unless it did."""


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """What a watcher gets first."""

    node: Node
    """The node as it is."""
    sample_seconds: float
    """Seconds between samples."""
    samples: tuple[NodeSample, ...]
    """Samples, oldest first."""
    events: tuple[NodeEvent, ...]
    """The latest events, at most 256, oldest first."""
    transfers: tuple[Transfer, ...]
    """Transfers that run, and the latest that ended, at most 64."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How a load stands."""

    phase: LoadPhase
    """What it does now."""
    transfer: Transfer | None
    """The download or the load of this phase, as WatchNode tells of it; None while it waits, and
    before there is one.
    """


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is served."""

    offer: ModelOffer
    """As the node's card offers it."""
    was_served: bool
    """Whether it was served when the call came."""


@dataclass(frozen=True, slots=True)
class UnloadedModel:
    """What is served no more."""

    model_id: str
    """The model's name."""
    role: Role
    """The role in which it was served."""
    memory_free_bytes: int
    """Free memory of the machine, in bytes."""


@dataclass(frozen=True, slots=True)
class PullSource:
    """A node that a model's files come from."""

    node_id: str
    """Its id."""
    node_name: str
    """Its name."""
    done_bytes: int
    """Bytes of it that were kept."""
    fault: str
    """Why nothing is taken from it any more; empty while something may be."""


@dataclass(frozen=True, slots=True)
class PullProgress:
    """How a pull stands."""

    phase: PullPhase
    """What it does now."""
    transfer: Transfer | None
    """The pull as WatchNode tells of it; None before it has one."""
    sources: tuple[PullSource, ...]
    """Whom it copies from, in the order in which they are preferred; empty before that is known,
    and for the hub.
    """


@dataclass(frozen=True, slots=True)
class PulledModel:
    """A model that is on the disk."""

    model_id: str
    """By which it can be loaded."""
    byte_count: int
    """Bytes of its files; 0 for one that was not copied from members."""
    file_count: int
    """How many files; 0 for one that was not copied from members."""
    files_digest: str
    """SHA-256 of its files' names, sizes and pieces, hexadecimal: equal where all files are. Empty
    for one that was not copied from members.
    """
    was_there: bool
    """Whether it was on the disk when the call came."""
    sources: tuple[PullSource, ...]
    """Whom it was copied from; empty for the hub, and for one that was there."""


@dataclass(frozen=True, slots=True)
class RemovedModel:
    """What was removed."""

    model_id: str
    """The model's name."""
    byte_count: int
    """Bytes that its files had on the disk."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One model that PullModel brought."""

    model_id: str
    """By which it can be loaded."""
    byte_count: int
    """Bytes of its files; what is there of one that is not whole."""
    files_digest: str
    """SHA-256 of its files' names, sizes and pieces, hexadecimal: equal where all files are."""
    is_whole: bool
    """Whether all of it is there; another pull goes on where it is not."""
    is_served: bool
    """Whether this node serves it now, or loads it."""
    pulled_at_unix: float
    """When it came, in seconds since 1970; 0 for one that is not whole."""
    source_names: tuple[str, ...]
    """Names of the nodes that it was copied from."""
