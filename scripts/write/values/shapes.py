"""Which messages are values of the SDKs, and where a value differs from its message.

A message that is not named here is no value: its fields never leave the SDK, or its value
is more than the message and is written by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Where one value differs from its message; empty where it does not."""

    name: str = ""
    """The value's name."""
    none: tuple[str, ...] = ()
    """Fields that are None where the message has 0, UNSPECIFIED or nothing, `optional` ones
    where it has nothing; their comments say when."""
    flat: Mapping[str, str] = field(default_factory=dict)
    """Fields whose own fields stand in their place, by the prefix that these get."""
    omitted: tuple[str, ...] = ()
    """Fields that the value does not have."""
    after: Mapping[str, str] = field(default_factory=dict)
    """Fields that come after another one than in the message."""
    defaults_from: str = ""
    """The first field that may be left out when the value is made; so may all after it."""
    docs: Mapping[str, str] = field(default_factory=dict)
    """Comments of fields that mean another thing here than where the message has them."""
    big: tuple[str, ...] = ()
    """Fields whose 64 bits all count: bigint in TypeScript, where others are numbers."""
    tag: str = ""
    """`type` in TypeScript, where the value is an event of a watch."""


OTHER_ENUMS = ("Liveness",)
"""Enums of values that are written by hand."""

SHAPES = {
    # model.proto
    "StepCost": Shape(),
    "ModelOffer": Shape(defaults_from="architecture"),
    # placement.proto
    "Placement": Shape(),
    "Rejection": Shape(none=("proposer",)),
    "ArchiveRange": Shape(),
    "Trial": Shape(),
    "Plan": Shape(
        none=("proposer", "transport", "archive", "kv_strategy", "stand_in"),
        after={"acceptance_measured": "acceptance_rate"},
        defaults_from="archive",
    ),
    # runtime.proto
    "GenerateTimings": Shape(name="Timings"),
    "DraftFault": Shape(),
    "BlockTiming": Shape(defaults_from="generation_number"),
    "ProposerStatistics": Shape(),
    "SpeculationStatistics": Shape(none=("drop_reason",), defaults_from="proposers"),
    "LinkChange": Shape(),
    "GenerateDone": Shape(
        name="GenerationDone", defaults_from="restorer_rebuild_count", big=("seed",)
    ),
    "RestorerInfo": Shape(
        flat={"restorer": ""},
        after={"digest": "model_id", "quality": "doubtful_end", "codec": "doubtful_end"},
        defaults_from="archives",
        docs={
            "model_id": "Model of the learned map; empty without one.",
            "node_id": "The archive's node; empty in the verifier's own process.",
        },
    ),
    "InvariantCount": Shape(),
    "SessionInfo": Shape(none=("drop_reason", "restorer"), defaults_from="restorer"),
    "SessionActivity": Shape(none=("stop_reason",)),
    "SessionsSnapshot": Shape(omitted=("more",), tag="snapshot"),
    "EndedSession": Shape(tag="ended"),
    "EmbedResponse": Shape(name="TextVector"),
    # capability.proto
    "ArchiveOffer": Shape(),
    "CapabilityCard": Shape(
        name="Card",
        none=("archive",),
        flat={"accelerator": "accelerator_"},
        omitted=("loading", "running_seconds"),
        defaults_from="archive",
        docs={"public_key": "Ed25519 public key, hexadecimal."},
    ),
    "PeerLink": Shape(none=("archive_wait_seconds",), defaults_from="archive_wait_seconds"),
    "NodeLoad": Shape(none=("cpu_share", "process_cpu_share"), defaults_from="archive_count"),
    "MeasuredAcceptance": Shape(defaults_from="acceptance_rate_low"),
    "TensorLinkStatus": Shape(name="TensorLink"),
    "SeedFault": Shape(),
    "GetNodeResponse": Shape(name="Node", defaults_from="tensor_links"),
    "LimitUse": Shape(),
    "MeasuredCodec": Shape(),
    "SpanAttribute": Shape(),
    "Span": Shape(),
    "GetSpansResponse": Shape(name="NodeSpans"),
    "NodeSample": Shape(
        none=("cpu_share", "process_cpu_share", "accelerator_share"), defaults_from="cpu_share"
    ),
    "NodeEvent": Shape(),
    "Transfer": Shape(),
    "NodeHistory": Shape(tag="history"),
    # model_service.proto
    "LoadProgress": Shape(none=("transfer",)),
    "LoadedModel": Shape(),
    "UnloadModelResponse": Shape(name="UnloadedModel"),
    "PullSource": Shape(),
    "PullProgress": Shape(none=("transfer",)),
    "PulledModel": Shape(),
    "RemoveModelResponse": Shape(name="RemovedModel"),
    "StoredModel": Shape(),
}
