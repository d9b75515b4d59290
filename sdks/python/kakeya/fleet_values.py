"""Values of the fleet: nodes, what they offer, and what changes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from kakeya.plan_values import LinkPurpose, ModelOffer, Transport


class Liveness(StrEnum):
    """Liveness of a node, in the order of their ranks."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"
    LEFT = "left"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ArchiveOffer:
    """Memory for what verifiers of other nodes evict, in bytes.

    `free_bytes` is what was free when the card was made; `port` is that of its
    service at the node's addresses; `arithmetic` names what computes there.
    """

    capacity_bytes: int
    free_bytes: int
    port: int
    arithmetic: str


@dataclass(frozen=True, slots=True)
class Card:
    """What one node is and offers, as the node itself signed it.

    Memory is physical bytes, free when the card was made; `public_key` is
    hexadecimal; `addresses` are host:port, best first; `announced_at_unix`
    (seconds since 1970, the owner's clock) orders nothing; `archive` is None for
    a node without one; `http_address` (host:port) is empty when no other machine
    could reach its HTTP. Nodes of one `host_id` run on one machine and share its memory;
    empty from nodes that do not tell.
    """

    node_id: str
    name: str
    fleet_name: str
    boot_id: str
    incarnation: int
    sequence: int
    public_key: str
    addresses: tuple[str, ...]
    platform: str
    accelerator_kind: str
    accelerator_name: str
    memory_total_bytes: int
    memory_free_bytes: int
    software_version: str
    protocol_min: int
    protocol_max: int
    models: tuple[ModelOffer, ...]
    ring_address: str
    announced_at_unix: float
    ttl_seconds: float
    archive: ArchiveOffer | None = None
    http_address: str = ""
    host_id: str = ""


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node, as the answering node knows it.

    `card` is None while only the node's id is known. `age_seconds` counts
    since the last sign of life, 0 for the answering node itself;
    `round_trip_seconds` is None when it was never measured.
    """

    node_id: str
    liveness: Liveness
    age_seconds: float
    round_trip_seconds: float | None
    is_self: bool
    card: Card | None

    @property
    def name(self) -> str:
        """Name for people; the first 12 digits of the id while no card is known."""
        return self.card.name if self.card else self.node_id[:12]

    @property
    def address(self) -> str:
        """The best address, host:port; empty when none is known."""
        return self.card.addresses[0] if self.card and self.card.addresses else ""

    @property
    def models(self) -> tuple[ModelOffer, ...]:
        """Models that the node serves; empty while no card is known."""
        return self.card.models if self.card else ()

    @property
    def archive(self) -> ArchiveOffer | None:
        """Its archive; None without one, and while no card is known."""
        return self.card.archive if self.card else None


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """All nodes that are known, by name; the first event of a watch."""

    fleet_name: str
    nodes: tuple[NodeStatus, ...]


@dataclass(frozen=True, slots=True)
class NodeChanged:
    """A node that changed or is new."""

    node: NodeStatus


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """A node that was forgotten."""

    node_id: str


FleetEvent: TypeAlias = FleetSnapshot | NodeChanged | NodeRemoved


@dataclass(frozen=True, slots=True)
class PeerLink:
    """A measured way to another node; smallest round trip of the last exchanges.

    `archive_wait_seconds` is what a layer of this node's verifiers waits for an answer
    of the archive there, the median of the latest; None before there were enough.
    """

    node_id: str
    round_trip_seconds: float
    breaker_open: bool
    archive_wait_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """Load of a node now; memory in bytes."""

    session_count: int
    generating_count: int
    draft_stream_count: int
    kv_bytes: int
    kv_budget_bytes: int
    memory_free_bytes: int
    archive_count: int = 0
    archive_bytes: int = 0
    archive_budget_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MeasuredAcceptance:
    """Acceptance that a verifier measured with a proposer.

    `acceptance_rate` (0 to 1) is the share of drafted tokens that were
    accepted given that all before them in the block were: the mean over
    `session_count` sessions, of which four of five lie in `acceptance_rate_low` to
    `acceptance_rate_high`. 0 sessions say nothing: all text repeated itself, or the
    node does not tell.
    """

    verifier_model_id: str
    proposer_model_id: str
    acceptance_rate: float
    drafted_count: int
    acceptance_rate_low: float = 0.0
    acceptance_rate_high: float = 0.0
    session_count: float = 0.0


@dataclass(frozen=True, slots=True)
class TensorLink:
    """An open tensor link, as one of its ends sees it.

    `generation` counts the roads that were built for it, 0 while there was none but
    gRPC; `bytes_per_second` is that of the latest tensors, 0 before any was measured.
    `reason` is a sentence about the latest change of transport, made
    `changed_seconds_ago`; `demotion_count` tells how often a road was left.
    """

    peer_node_id: str
    purpose: LinkPurpose
    transport: Transport
    generation: int
    bytes_per_second: float
    reason: str
    changed_seconds_ago: float
    is_caller: bool
    tensor_count: int
    byte_count: int
    demotion_count: int


@dataclass(frozen=True, slots=True)
class SeedFault:
    """A seed peer (`address`, host:port as given) that the node cannot join.

    `reason` is UNREACHABLE, NOT_A_NODE, FLEET_MISMATCH, PROTOCOL_SKEW or that of another
    error; `message` and `mend` are sentences, the mend empty when none is known. It was
    first tried in vain `since_seconds` ago, and `attempt_count` times in all.
    """

    address: str
    reason: str
    message: str
    mend: str
    since_seconds: float
    attempt_count: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it sees itself.

    `metrics_address` and `http_address` are empty when it serves none; `tensor_links`
    are those that are open, either way; `started_at_unix` is when it started, in
    seconds since 1970 by its own clock; `seed_faults` are seed peers that do not answer
    as nodes of its fleet.
    """

    card: Card
    links: tuple[PeerLink, ...]
    load: NodeLoad
    acceptances: tuple[MeasuredAcceptance, ...]
    metrics_address: str
    draining: bool
    tensor_links: tuple[TensorLink, ...] = ()
    http_address: str = ""
    started_at_unix: float = 0.0
    seed_faults: tuple[SeedFault, ...] = ()
