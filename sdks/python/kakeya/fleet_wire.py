"""From messages of `kakeya.v1` to values of the fleet."""

from __future__ import annotations

from kakeya.errors import UnexpectedError
from kakeya.fleet_values import (
    ArchiveOffer,
    Card,
    FleetEvent,
    FleetSnapshot,
    Liveness,
    MeasuredAcceptance,
    Node,
    NodeChanged,
    NodeLoad,
    NodeRemoved,
    NodeStatus,
    PeerLink,
    SeedFault,
    TensorLink,
)
from kakeya.plan_values import LinkPurpose, Transport
from kakeya.v1 import capability_pb2, placement_pb2, tensor_pb2
from kakeya.wire import enum_value, model_offer


def card(message: capability_pb2.CapabilityCard) -> Card:
    """What one node is and offers."""
    return Card(
        node_id=message.node_id,
        name=message.name,
        fleet_name=message.fleet_name,
        boot_id=message.boot_id,
        incarnation=message.incarnation,
        sequence=message.sequence,
        public_key=message.public_key.hex(),
        addresses=tuple(message.addresses),
        platform=message.platform,
        accelerator_kind=message.accelerator.kind,
        accelerator_name=message.accelerator.name,
        memory_total_bytes=message.memory_total_bytes,
        memory_free_bytes=message.memory_free_bytes,
        software_version=message.software_version,
        protocol_min=message.protocol_min,
        protocol_max=message.protocol_max,
        models=tuple(model_offer(model) for model in message.models),
        ring_address=message.ring_address,
        announced_at_unix=message.announced_at_unix,
        ttl_seconds=message.ttl_seconds,
        archive=_archive(message.archive) if message.HasField("archive") else None,
        http_address=message.http_address,
        host_id=message.host_id,
    )


def _archive(message: capability_pb2.ArchiveOffer) -> ArchiveOffer:
    return ArchiveOffer(
        message.capacity_bytes, message.free_bytes, message.port, message.arithmetic
    )


def node_status(message: capability_pb2.NodeStatus) -> NodeStatus:
    """One node, as the answering node knows it."""
    # A card that was received carries its owner's protocol; a bare id does not.
    known = message.card.protocol_max > 0
    return NodeStatus(
        node_id=message.card.node_id,
        liveness=enum_value(Liveness, capability_pb2.Liveness.DESCRIPTOR, message.liveness),
        age_seconds=message.age_seconds,
        round_trip_seconds=message.round_trip_seconds or None,
        is_self=message.is_self,
        card=card(message.card) if known else None,
    )


def snapshot(message: capability_pb2.FleetSnapshot) -> FleetSnapshot:
    """All nodes that are known."""
    return FleetSnapshot(message.fleet_name, tuple(node_status(node) for node in message.nodes))


def fleet_event(message: capability_pb2.WatchFleetResponse) -> FleetEvent | None:
    """One event of a watch; None for a kind that is newer than this client."""
    match message.WhichOneof("kind"):
        case "snapshot":
            return snapshot(message.snapshot)
        case "changed":
            return NodeChanged(node_status(message.changed))
        case "removed_node_id":
            return NodeRemoved(message.removed_node_id)
        case None:
            return None
        case other:
            raise UnexpectedError(f"a watch answered with {other}")


def node(message: capability_pb2.GetNodeResponse) -> Node:
    """A node as it sees itself."""
    load = message.load
    return Node(
        card=card(message.card),
        links=tuple(
            PeerLink(
                link.node_id,
                link.round_trip_seconds,
                link.breaker_open,
                link.archive_wait_seconds or None,
            )
            for link in message.links
        ),
        load=NodeLoad(
            session_count=load.session_count,
            generating_count=load.generating_count,
            draft_stream_count=load.draft_stream_count,
            kv_bytes=load.kv_bytes,
            kv_budget_bytes=load.kv_budget_bytes,
            memory_free_bytes=load.memory_free_bytes,
            archive_count=load.archive_count,
            archive_bytes=load.archive_bytes,
            archive_budget_bytes=load.archive_budget_bytes,
        ),
        acceptances=tuple(
            MeasuredAcceptance(
                item.verifier_model_id,
                item.proposer_model_id,
                item.acceptance_rate,
                item.drafted_count,
                item.acceptance_rate_low,
                item.acceptance_rate_high,
                item.session_count,
            )
            for item in message.acceptances
        ),
        metrics_address=message.metrics_address,
        draining=message.draining,
        tensor_links=tuple(_tensor_link(link) for link in message.tensor_links),
        http_address=message.http_address,
        started_at_unix=message.started_at_unix,
        seed_faults=tuple(
            SeedFault(
                fault.address,
                fault.reason,
                fault.message,
                fault.mend,
                fault.since_seconds,
                fault.attempt_count,
            )
            for fault in message.seed_faults
        ),
    )


def _tensor_link(message: capability_pb2.TensorLinkStatus) -> TensorLink:
    return TensorLink(
        peer_node_id=message.peer_node_id,
        purpose=enum_value(LinkPurpose, tensor_pb2.LinkPurpose.DESCRIPTOR, message.purpose),
        transport=enum_value(Transport, placement_pb2.Transport.DESCRIPTOR, message.transport),
        generation=message.generation,
        bytes_per_second=message.bytes_per_second,
        reason=message.reason,
        changed_seconds_ago=message.changed_seconds_ago,
        is_caller=message.is_caller,
        tensor_count=message.tensor_count,
        byte_count=message.byte_count,
        demotion_count=message.demotion_count,
    )
