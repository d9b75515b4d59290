"""From messages of `kakeya.v1` to values of what a node and its sessions do."""

from __future__ import annotations

from kakeya import fleet_wire, wire
from kakeya.activity_values import (
    EndedSession,
    EventSeverity,
    NodeActivity,
    NodeEvent,
    NodeHistory,
    NodeSample,
    SessionActivity,
    SessionOutcome,
    SessionsEvent,
    SessionsSnapshot,
    Transfer,
    TransferKind,
    TransferState,
)
from kakeya.errors import UnexpectedError
from kakeya.v1 import capability_pb2, runtime_pb2


def node_activity(message: capability_pb2.WatchNodeResponse) -> NodeActivity | None:
    """One event of a node's watch; None for a kind that is newer than this client."""
    match message.WhichOneof("kind"):
        case "history":
            return _history(message.history)
        case "sample":
            return _sample(message.sample)
        case "event":
            return _event(message.event)
        case "transfer":
            return _transfer(message.transfer)
        case "node":
            return fleet_wire.node(message.node)
        case None:
            return None
        case other:
            raise UnexpectedError(f"a watch answered with {other}")


def _history(message: capability_pb2.NodeHistory) -> NodeHistory:
    return NodeHistory(
        node=fleet_wire.node(message.node),
        sample_seconds=message.sample_seconds,
        samples=tuple(_sample(sample) for sample in message.samples),
        events=tuple(_event(event) for event in message.events),
        transfers=tuple(_transfer(transfer) for transfer in message.transfers),
    )


def _sample(message: capability_pb2.NodeSample) -> NodeSample:
    return NodeSample(
        at_unix=message.at_unix,
        tokens_per_second=message.tokens_per_second,
        prefill_tokens_per_second=message.prefill_tokens_per_second,
        session_count=message.session_count,
        generating_count=message.generating_count,
        draft_stream_count=message.draft_stream_count,
        kv_bytes=message.kv_bytes,
        memory_free_bytes=message.memory_free_bytes,
        archive_bytes=message.archive_bytes,
        drafted_count=message.drafted_count,
        accepted_count=message.accepted_count,
        verify_forward_count=message.verify_forward_count,
        drafts_per_second=message.drafts_per_second,
        link_bytes_per_second=message.link_bytes_per_second,
    )


def _event(message: capability_pb2.NodeEvent) -> NodeEvent:
    return NodeEvent(
        number=message.number,
        at_unix=message.at_unix,
        severity=wire.enum_value(
            EventSeverity, capability_pb2.EventSeverity.DESCRIPTOR, message.severity
        ),
        kind=message.kind,
        message=message.message,
        mend=message.mend,
        subject_node_id=message.subject_node_id,
        session_id=message.session_id,
    )


def _transfer(message: capability_pb2.Transfer) -> Transfer:
    return Transfer(
        transfer_id=message.transfer_id,
        kind=wire.enum_value(TransferKind, capability_pb2.TransferKind.DESCRIPTOR, message.kind),
        model_id=message.model_id,
        state=wire.enum_value(
            TransferState, capability_pb2.TransferState.DESCRIPTOR, message.state
        ),
        done_bytes=message.done_bytes,
        total_bytes=message.total_bytes,
        bytes_per_second=message.bytes_per_second,
        remaining_seconds=message.remaining_seconds,
        started_at_unix=message.started_at_unix,
        error=message.error,
    )


def sessions_event(message: runtime_pb2.WatchSessionsResponse) -> SessionsEvent | None:
    """One event of a watch of sessions; None for a kind that is newer than this client."""
    match message.WhichOneof("kind"):
        case "snapshot":
            sessions = message.snapshot.sessions
            return SessionsSnapshot(tuple(_session(session) for session in sessions))
        case "changed":
            return _session(message.changed)
        case "ended":
            return EndedSession(
                session_id=message.ended.session_id,
                outcome=wire.enum_value(
                    SessionOutcome, runtime_pb2.SessionOutcome.DESCRIPTOR, message.ended.outcome
                ),
            )
        case None:
            return None
        case other:
            raise UnexpectedError(f"a watch answered with {other}")


def _session(message: runtime_pb2.SessionActivity) -> SessionActivity:
    stopped = message.stop_reason != runtime_pb2.STOP_REASON_UNSPECIFIED
    return SessionActivity(
        session=wire.session_info(message.session),
        blocks=tuple(wire.block_timing(block) for block in message.blocks),
        tokens_per_second=message.tokens_per_second,
        generation_count=message.generation_count,
        generated_token_count=message.generated_token_count,
        prefilled_token_count=message.prefilled_token_count,
        prefill_seconds=message.prefill_seconds,
        drafted_count=message.drafted_count,
        accepted_count=message.accepted_count,
        verify_forward_count=message.verify_forward_count,
        draft_seconds=message.draft_seconds,
        wire_seconds=message.wire_seconds,
        wait_seconds=message.wait_seconds,
        verify_seconds=message.verify_seconds,
        link_changes=tuple(wire.link_change(change) for change in message.link_changes),
        stop_reason=wire.stop_reason(message.stop_reason) if stopped else None,
    )
