"""Values of what a node and its sessions do, live."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from kakeya.fleet_values import Node
from kakeya.values import BlockTiming, LinkChange, SessionInfo, StopReason


class EventSeverity(StrEnum):
    """How much an event matters: all is well, speed is lost, something failed."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    UNKNOWN = "unknown"


class TransferKind(StrEnum):
    """From the hub to the disk, or from the disk to the memory that computes."""

    DOWNLOAD = "download"
    LOAD = "load"
    UNKNOWN = "unknown"


class TransferState(StrEnum):
    """How a transfer stands."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


class SessionOutcome(StrEnum):
    """How a session came to its end."""

    CLOSED = "closed"
    EVICTED = "evicted"
    INVARIANT_VIOLATED = "invariant_violated"
    GROUP_LOST = "group_lost"
    DRAINED = "drained"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NodeSample:
    """What a node did in one second, and what it held at its end.

    `at_unix` is the second's end by the node's clock, in seconds since 1970; rates are
    means over the second, and `drafted_count`, `accepted_count` and
    `verify_forward_count` those of the second.
    """

    at_unix: float
    tokens_per_second: float
    prefill_tokens_per_second: float
    session_count: int
    generating_count: int
    draft_stream_count: int
    kv_bytes: int
    memory_free_bytes: int
    archive_bytes: int
    drafted_count: int
    accepted_count: int
    verify_forward_count: int
    drafts_per_second: float
    link_bytes_per_second: float


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """Something that happened on a node, or that it saw.

    `number` counts from 1 since the node's start; `kind` is in UPPER_SNAKE_CASE;
    `mend` is empty when there is nothing to mend; `subject_node_id` is empty for the
    node that tells, `session_id` for an event about no session.
    """

    number: int
    at_unix: float
    severity: EventSeverity
    kind: str
    message: str
    mend: str
    subject_node_id: str
    session_id: str


@dataclass(frozen=True, slots=True)
class Transfer:
    """A download or a load, with its progress.

    `total_bytes`, `bytes_per_second` (of the latest seconds) and `remaining_seconds`
    are 0 while unknown; `error` is empty unless it failed, and tells the mend.
    """

    transfer_id: str
    kind: TransferKind
    model_id: str
    state: TransferState
    done_bytes: int
    total_bytes: int
    bytes_per_second: float
    remaining_seconds: float
    started_at_unix: float
    error: str


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """What was before the watch; its first event. Everything oldest first.

    `sample_seconds` lie between samples; `events` are the latest, at most 256;
    `transfers` those that run, and the latest that ended.
    """

    node: Node
    sample_seconds: float
    samples: tuple[NodeSample, ...]
    events: tuple[NodeEvent, ...]
    transfers: tuple[Transfer, ...]


NodeActivity: TypeAlias = NodeHistory | NodeSample | NodeEvent | Transfer | Node


@dataclass(frozen=True, slots=True)
class SessionActivity:
    """What a session did since it was opened, and its latest blocks.

    `blocks` are those since the event before, oldest first; at first the latest ones.
    `tokens_per_second` is of the generation that runs, or of the latest;
    `link_changes` are the latest, at most 16; `stop_reason` is None before a
    generation ended. Seconds and counts are sums since the session was opened.
    """

    session: SessionInfo
    blocks: tuple[BlockTiming, ...]
    tokens_per_second: float
    generation_count: int
    generated_token_count: int
    prefilled_token_count: int
    prefill_seconds: float
    drafted_count: int
    accepted_count: int
    verify_forward_count: int
    draft_seconds: float
    wire_seconds: float
    wait_seconds: float
    verify_seconds: float
    link_changes: tuple[LinkChange, ...]
    stop_reason: StopReason | None


@dataclass(frozen=True, slots=True)
class SessionsSnapshot:
    """All sessions of a node, oldest first; the first event of a watch."""

    sessions: tuple[SessionActivity, ...]


@dataclass(frozen=True, slots=True)
class EndedSession:
    """A session that is no more."""

    session_id: str
    outcome: SessionOutcome


SessionsEvent: TypeAlias = SessionsSnapshot | SessionActivity | EndedSession
