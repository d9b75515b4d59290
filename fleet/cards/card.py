"""The capability card: what one node is and offers.

A card is signed by its owner as serialized bytes; this module holds the
values, `fleet.cards.rules` says which of them a node accepts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PROTOCOL_MIN = 1
PROTOCOL_MAX = 1


class Role(StrEnum):
    """What a node does for others with one model."""

    VERIFIER = "verifier"
    PROPOSER = "proposer"
    ARCHIVE = "archive"


class ModelKind(StrEnum):
    """How a model produces tokens."""

    AUTOREGRESSIVE = "autoregressive"
    NGRAM = "ngram"
    MASKED_DIFFUSION = "masked_diffusion"
    DFLASH = "dflash"


@dataclass(frozen=True, slots=True)
class StepCost:
    """Median seconds of one step over `token_count` tokens on the owner's machine."""

    token_count: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ModelOffer:
    """One model in one role.

    `tokenizer_digest` is empty only for `ModelKind.NGRAM`, which drafts ids of
    any tokenizer. `step_costs` rise by token_count: queries of a verify
    forward for a verifier, drafted tokens for a proposer. `context_length` 0
    means no limit. `kv_bytes_per_token` counts the layers that see the whole
    history, `kv_fixed_bytes` what a session takes besides at most: sliding
    windows, recurrent states. `exact` tells whether the load-time check found
    that a verifier's bits do not depend on how a history is cut into blocks,
    past the window; false for proposers. `backend` is "torch" or "mlx", empty
    for a model without tensors. `history_layer_count` of a verifier's layers attend
    to the whole history, 0 when it is not told; `rank_count` ranks compute it
    together, 0 for one process: its bytes are those of one rank. `thread_count`
    threads share one forward of it, which `exact` was found for, 0 when it is not
    told; `arithmetic` names what else rounds its forwards, library, version and processor,
    empty when it is not told; `evicted_arithmetic` is that of an `ArchiveOffer` from which
    its own process could take over, empty when from none. Of proposers:
    `target_weights_digest` names the one verifier that it drafts for, empty for every one
    with its tokenizer;
    `block_size` is the most tokens of a draft, 0 for no limit. One that is conditioned
    on a verifier's hidden states takes vectors of `feature_width` values that the
    encoder `encoder_digest` makes of the outputs of `tapped_layers`; 0 and empty for all
    others. Of histories of up to `given_history_tokens` a proposer takes the keys and values of
    a verifier of its weights on its own machine, and reads them by itself else; 0 for those that
    always do. One that `ends_drafts` drafts fewer tokens than it is asked for where more are too
    unsure to be worth its time.
    """

    model_id: str
    role: Role
    kind: ModelKind
    weights_digest: str = ""
    tokenizer_digest: str = ""
    quantization: str = ""
    dtype: str = ""
    vocabulary_size: int = 0
    context_length: int = 0
    kv_bytes_per_token: int = 0
    step_costs: tuple[StepCost, ...] = ()
    exact: bool = False
    kv_fixed_bytes: int = 0
    backend: str = ""
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
    arithmetic: str = ""
    given_history_tokens: int = 0
    ends_drafts: bool = False

    @property
    def drafts_ahead(self) -> bool:
        """Whether a proposer drafts behind tokens that are not committed yet."""
        return self.feature_width == 0


@dataclass(frozen=True, slots=True)
class ArchiveOffer:
    """Memory for what verifiers of other nodes have evicted.

    `capacity_bytes` in all, `free_bytes` of them when the card was made, at
    `port` of the node's addresses. `arithmetic` names what computes: the bits of
    two archives are only equal when theirs are.
    """

    capacity_bytes: int
    free_bytes: int
    port: int
    arithmetic: str


PROCESSOR = "cpu"
"""The kind of an accelerator that is none."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What the node's back ends compute with: `kind` is "cpu", "metal", "cuda" or "mps".

    One that is built in, and that the node does not use, does not count. `memory_total_bytes`
    are what the node may have at most where it computes, `memory_free_bytes` those that were
    free there when the card was made; 0 from nodes that do not tell. `dtypes` are the number
    formats that it computes in.
    """

    kind: str
    name: str
    memory_total_bytes: int = 0
    memory_free_bytes: int = 0
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Card:
    """What one node is and offers; orders by (incarnation, sequence, digest).

    `announced_at_unix` (seconds since 1970, the owner's clock) is for people:
    it orders nothing. `http_address` is where the node's HTTP answers, host:port; empty
    when it has none, or none that another machine could reach. A node that is
    `loading` will offer more. Nodes of one `host_id` run on one machine and share its
    memory; it is empty from nodes that do not tell. `certificate` makes its owner a member of
    a fleet with an authority, X.509 in DER; empty in a fleet without one. There applications
    with a key call gRPC at `applications_port` of its addresses, and HTTP by TLS at `https_port`;
    0 for neither. The process had run for `running_seconds` when the card was signed; 0 from
    nodes that do not tell.
    """

    node_id: str
    name: str
    fleet_name: str
    boot_id: str
    incarnation: int
    sequence: int
    public_key: bytes
    addresses: tuple[str, ...]
    platform: str
    accelerator: Accelerator
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
    loading: bool = False
    host_id: str = ""
    certificate: bytes = b""
    running_seconds: float = 0.0
    applications_port: int = 0
    https_port: int = 0

    def offers(self, role: Role) -> tuple[ModelOffer, ...]:
        """The models served in `role`."""
        return tuple(model for model in self.models if model.role is role)


@dataclass(frozen=True, slots=True)
class SignedCard:
    """A card with the bytes that its owner signed, as it travels.

    `card_bytes` is the serialized `CapabilityCard`; `card` is the same, decoded.
    """

    card: Card
    card_bytes: bytes
    signature: bytes
