"""Values of placement: models, plans and why pairings were rejected."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class KvStrategy(StrEnum):
    """How a verifier keeps keys and values."""

    FULL = "full"
    SINK_WINDOW = "sink_window"
    RESTORED = "restored"
    UNKNOWN = "unknown"


class RestorerKind(StrEnum):
    """What is kept of the positions that a session has evicted.

    `ARCHIVE`: their keys and values, in another process, exact. `PROJECTION`:
    keys and values that a learned map makes of one context vector each: fewer bytes
    are deposited, as many are kept.
    `IDENTITY`: a check of the plumbing, in the verifier's own process.
    """

    ARCHIVE = "archive"
    PROJECTION = "projection"
    IDENTITY = "identity"
    UNKNOWN = "unknown"


class Transport(StrEnum):
    """The road of tensors between verifier and proposer."""

    LOCAL = "local"
    GRPC = "grpc"
    RING = "ring"
    UNKNOWN = "unknown"


class LinkPurpose(StrEnum):
    """What a tensor link is for.

    `FEATURES`: context vectors of committed tokens, to a proposer. `KEYS_VALUES`:
    evicted keys and values, to or from another node.
    """

    FEATURES = "features"
    KEYS_VALUES = "keys_values"
    UNKNOWN = "unknown"


class Role(StrEnum):
    """What a node does for others with one model."""

    VERIFIER = "verifier"
    PROPOSER = "proposer"
    ARCHIVE = "archive"
    UNKNOWN = "unknown"


class ModelKind(StrEnum):
    """How a model produces tokens."""

    AUTOREGRESSIVE = "autoregressive"
    NGRAM = "ngram"
    MASKED_DIFFUSION = "masked_diffusion"
    DFLASH = "dflash"
    UNKNOWN = "unknown"


class RejectionReason(StrEnum):
    """Why a pairing was not chosen."""

    SLOWER_THAN_CHOSEN = "slower_than_chosen"
    SLOWER_THAN_ALONE = "slower_than_alone"
    TOKENIZER_MISMATCH = "tokenizer_mismatch"
    NOT_ENOUGH_MEMORY = "not_enough_memory"
    NOT_ALIVE = "not_alive"
    PROTOCOL_SKEW = "protocol_skew"
    CONTEXT_TOO_LONG = "context_too_long"
    NOT_REQUESTED = "not_requested"
    NOT_MEASURED = "not_measured"
    UNREACHABLE = "unreachable"
    BREAKER_OPEN = "breaker_open"
    NOT_EXACT = "not_exact"
    WRONG_TARGET = "wrong_target"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class StepCost:
    """Median seconds of one step over `token_count` tokens on the serving machine."""

    token_count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """One model in one role, as a node's card offers it.

    `vocabulary_size` and `context_length` are tokens, 0 for no limit of the
    model's own. `kv_bytes_per_token` counts the layers that see the whole
    history, `kv_fixed_bytes` what a session takes besides at most. `exact`
    tells whether the node found, when it loaded a verifier, that its bits do
    not depend on how a history is cut into blocks; false for proposers.
    `backend` is "torch" or "mlx", empty for a model without tensors.
    `history_layer_count` of a verifier's layers attend to the whole history, 0
    when the node does not tell; `rank_count` ranks compute it together, 0 for one
    process, and its bytes are those of one rank; `thread_count` threads share one forward
    of it, for which `exact` was found, 0 when the node does not tell; its own process could
    take over from a lost archive of `evicted_arithmetic`, empty for none. Of proposers:
    `target_weights_digest` names the one verifier it drafts for, empty for every one
    with its tokenizer; `block_size` is the most tokens of a draft, 0 for no limit;
    `feature_width`, `encoder_digest` and `tapped_layers` describe the context vectors
    that it needs of its verifier, 0 and empty without.
    """

    model_id: str
    role: Role
    kind: ModelKind
    weights_digest: str
    tokenizer_digest: str
    quantization: str
    dtype: str
    vocabulary_size: int
    context_length: int
    kv_bytes_per_token: int
    step_costs: tuple[StepCost, ...]
    exact: bool
    kv_fixed_bytes: int
    backend: str
    architecture: str = ""
    target_weights_digest: str = ""
    feature_width: int = 0
    encoder_digest: str = ""
    tapped_layers: tuple[int, ...] = ()
    block_size: int = 0
    history_layer_count: int = 0
    rank_count: int = 0
    thread_count: int = 0
    evicted_arithmetic: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    """One model on one node; `address` is host:port."""

    node_id: str
    node_name: str
    address: str
    model_id: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """A pairing that was looked at and not chosen, with the numbers that decided.

    `proposer` is None when the verifier itself was rejected;
    `predicted_tokens_per_second` is 0 when no speed was computed.
    """

    verifier: Placement
    proposer: Placement | None
    reason: RejectionReason
    explanation: str
    predicted_tokens_per_second: float


@dataclass(frozen=True, slots=True)
class ArchiveRange:
    """The archive of the evicted positions `first_position` to `end_position`, exclusive."""

    archive: Placement
    first_position: int
    end_position: int


@dataclass(frozen=True, slots=True)
class Trial:
    """A proposer that a session tries on its own stream.

    At the upper end of its acceptance it gives `predicted_tokens_per_second_high`.
    """

    proposer: Placement
    predicted_tokens_per_second_high: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What the planner decided.

    `proposer` and `transport` are None, and `block_size` is 0, when the
    verifier decodes alone. `round_trip_seconds` and `acceptance_rate` (0 to 1,
    a drafted token) are what the prediction assumed; `kv_bytes` is the most
    that the session will hold. `exact` tells whether drafting cannot change a
    token; it is false only when the request named the proposer of a verifier
    that is not exact on its machine. `archive` keeps what a session of
    kv_strategy "restored" evicts; None when it needs none, or none can be had;
    `archives` are all that the planned context needs, by rising positions, empty
    when all together lack the room. Predicted speeds are those with them.
    `kv_strategy` is how keys and values will be kept, whether the request said so or
    not; None when the node does not tell.
    In about four of five sessions the acceptance lies in `acceptance_rate_low` to
    `acceptance_rate_high` (both 0 alone), at which the speeds named alike are predicted.
    `trials` are the proposers that a session tries because they could be faster;
    `exploring` while `proposer` is on trial in a session that runs.
    """

    verifier: Placement
    proposer: Placement | None
    transport: Transport | None
    block_size: int
    predicted_tokens_per_second: float
    predicted_alone_tokens_per_second: float
    round_trip_seconds: float
    acceptance_rate: float
    acceptance_measured: bool
    kv_bytes: int
    reasons: tuple[str, ...]
    rejections: tuple[Rejection, ...]
    exact: bool
    archive: Placement | None = None
    archives: tuple[ArchiveRange, ...] = ()
    kv_strategy: KvStrategy | None = None
    acceptance_rate_low: float = 0.0
    acceptance_rate_high: float = 0.0
    predicted_tokens_per_second_low: float = 0.0
    predicted_tokens_per_second_high: float = 0.0
    exploring: bool = False
    trials: tuple[Trial, ...] = ()
