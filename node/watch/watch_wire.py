"""What a watch of a node tells, as it travels."""

from __future__ import annotations

from kakeya.enum_names import number_of
from kakeya.v1 import capability_pb2 as wire
from kakeya_fleet.node.watch.event_log import NodeEvent
from kakeya_fleet.node.watch.node_sample import NodeSample
from kakeya_fleet.node.watch.transfers import TransferStatus

MOST_COUNT = (1 << 32) - 1


def sample_to_wire(sample: NodeSample) -> wire.NodeSample:
    """A second."""
    levels = sample.levels
    return wire.NodeSample(
        at_unix=sample.at_unix,
        tokens_per_second=sample.tokens_per_second,
        prefill_tokens_per_second=sample.prefill_tokens_per_second,
        session_count=levels.session_count,
        generating_count=levels.generating_count,
        draft_stream_count=levels.draft_stream_count,
        kv_bytes=levels.kv_bytes,
        memory_free_bytes=levels.memory_free_bytes,
        archive_bytes=levels.archive_bytes,
        drafted_count=min(sample.drafted_count, MOST_COUNT),
        accepted_count=min(sample.accepted_count, MOST_COUNT),
        verify_forward_count=min(sample.verify_forward_count, MOST_COUNT),
        drafts_per_second=sample.drafts_per_second,
        link_bytes_per_second=sample.link_bytes_per_second,
        cpu_share=levels.cpu.host,
        process_cpu_share=levels.cpu.own,
        accelerator_share=levels.accelerator_share,
    )


def event_to_wire(event: NodeEvent) -> wire.NodeEvent:
    """An event."""
    return wire.NodeEvent(
        number=event.number,
        at_unix=event.at_unix,
        severity=number_of(wire.EventSeverity, event.severity),
        kind=event.kind.value,
        message=event.message,
        mend=event.mend,
        subject_node_id=event.subject_node_id,
        session_id=event.session_id,
    )


def transfer_to_wire(status: TransferStatus) -> wire.Transfer:
    """A download or a load."""
    return wire.Transfer(
        transfer_id=status.transfer_id,
        kind=number_of(wire.TransferKind, status.kind),
        model_id=status.model_id,
        state=number_of(wire.TransferState, status.state),
        done_bytes=status.done_bytes,
        total_bytes=status.total_bytes,
        bytes_per_second=status.bytes_per_second,
        remaining_seconds=status.remaining_seconds,
        started_at_unix=status.started_at_unix,
        error=status.error,
    )
