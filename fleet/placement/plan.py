"""The values of placement: what is asked for, and what was decided and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kakeya_fleet.fleet.placement.packing import FULL_WINDOW, Packing


class KvStrategy(StrEnum):
    """How a verifier keeps keys and values."""

    FULL = "full"
    SINK_WINDOW = "sink_window"
    RESTORED = "restored"


class Transport(StrEnum):
    """The road between verifier and proposer: of tensors, where the proposer takes any.

    `LOCAL` is one process, or shared memory of two processes of one host.
    """

    LOCAL = "local"
    GRPC = "grpc"
    RING = "ring"


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
    ROLE_NOT_ALLOWED = "role_not_allowed"


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a placement is asked for; empty strings and None mean any.

    `kv_strategy` None lets the planner choose for each verifier.
    `archive_node_id` names the archive of a `restored` session; `without_archive`
    when it needs none, or has its own already; `packing` is how it keeps what is evicted,
    None as it lies, and `packing_when_short` how a `full` one may where memory is short; of
    either kind a `full` one keeps its latest `full_window_tokens` as they lie. The
    memory of a `full` session that
    `grows` is not taken at once, but as its history grows. `sampled` says that text is drawn at
    a temperature, of which less is guessed.
    """

    verifier_model: str
    proposer_model: str = ""
    proposer_node_id: str = ""
    verifier_node_id: str = ""
    context_tokens: int = 0
    kv_strategy: KvStrategy | None = None
    sink_tokens: int = 4
    window_tokens: int = 1024
    full_window_tokens: int = FULL_WINDOW
    block_size: int | None = None
    without_proposer: bool = False
    archive_node_id: str = ""
    without_archive: bool = False
    grows: bool = False
    packing: Packing | None = None
    packing_when_short: Packing | None = None
    sampled: bool = False

    @property
    def names_proposer(self) -> bool:
        """Whether a proposer is asked for by model or node; never when none is wanted."""
        named = bool(self.proposer_model or self.proposer_node_id)
        return named and not self.without_proposer


@dataclass(frozen=True, slots=True)
class Placement:
    """One model on one node; `address` is host:port."""

    node_id: str
    node_name: str
    address: str
    model_id: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """A pairing that was looked at and not chosen, with the numbers that decided."""

    verifier: Placement
    proposer: Placement | None
    reason: RejectionReason
    explanation: str
    predicted_tokens_per_second: float = 0.0


@dataclass(frozen=True, slots=True)
class ArchiveRange:
    """The archive of the positions `first_position` to `end_position`, exclusive."""

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
    """What the planner decided. `proposer` is None when the verifier decodes alone.

    `acceptance_rate` lies in `acceptance_rate_low` to `acceptance_rate_high` in about four
    of five sessions, and the predictions named alike are those at its ends. `trials` are
    the proposers that could be faster than what was chosen, the most promising first;
    `stand_in` drafts when the chosen one cannot, and is asked too when that is late;
    `exploring` while the proposer is on trial in a session that runs.
    `exact` tells whether drafting cannot change a token: the verifier is exact
    on its machine, or decodes alone. `archive` keeps what a `restored` session
    evicts; its model is the learned map's, if there is one. `archives` are all that
    the planned context needs, in the order of their positions. `kv_strategy` is how
    keys and values will be kept, whether the request said so or not.
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
    acceptance_rate_low: float = 0.0
    acceptance_rate_high: float = 0.0
    predicted_tokens_per_second_low: float = 0.0
    predicted_tokens_per_second_high: float = 0.0
    exploring: bool = False
    trials: tuple[Trial, ...] = ()
    stand_in: Trial | None = None
    kv_strategy: KvStrategy = KvStrategy.SINK_WINDOW
