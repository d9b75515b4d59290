"""From messages of `kakeya.v1` to values. Made by `make stubs` from proto/."""

from __future__ import annotations

from kakeya.enum_names import enum_value
from kakeya.generated import values
from kakeya.v1 import (
    capability_pb2,
    model_pb2,
    model_service_pb2,
    placement_pb2,
    runtime_pb2,
    tensor_pb2,
)


def kv_strategy(number: int) -> values.KvStrategy:
    """The `KvStrategy` that a number of the contract stands for."""
    return enum_value(values.KvStrategy, placement_pb2.KvStrategy.DESCRIPTOR, number)


def restorer_kind(number: int) -> values.RestorerKind:
    """The `RestorerKind` that a number of the contract stands for."""
    return enum_value(values.RestorerKind, placement_pb2.RestorerKind.DESCRIPTOR, number)


def kv_quality(number: int) -> values.KvQuality:
    """The `KvQuality` that a number of the contract stands for."""
    return enum_value(values.KvQuality, placement_pb2.KvQuality.DESCRIPTOR, number)


def transport(number: int) -> values.Transport:
    """The `Transport` that a number of the contract stands for."""
    return enum_value(values.Transport, placement_pb2.Transport.DESCRIPTOR, number)


def rejection_reason(number: int) -> values.RejectionReason:
    """The `RejectionReason` that a number of the contract stands for."""
    return enum_value(values.RejectionReason, placement_pb2.RejectionReason.DESCRIPTOR, number)


def link_purpose(number: int) -> values.LinkPurpose:
    """The `LinkPurpose` that a number of the contract stands for."""
    return enum_value(values.LinkPurpose, tensor_pb2.LinkPurpose.DESCRIPTOR, number)


def role(number: int) -> values.Role:
    """The `Role` that a number of the contract stands for."""
    return enum_value(values.Role, model_pb2.Role.DESCRIPTOR, number)


def model_kind(number: int) -> values.ModelKind:
    """The `ModelKind` that a number of the contract stands for."""
    return enum_value(values.ModelKind, model_pb2.ModelKind.DESCRIPTOR, number)


def liveness(number: int) -> values.Liveness:
    """The `Liveness` that a number of the contract stands for."""
    return enum_value(values.Liveness, capability_pb2.Liveness.DESCRIPTOR, number)


def limit_unit(number: int) -> values.LimitUnit:
    """The `LimitUnit` that a number of the contract stands for."""
    return enum_value(values.LimitUnit, capability_pb2.LimitUnit.DESCRIPTOR, number)


def event_severity(number: int) -> values.EventSeverity:
    """The `EventSeverity` that a number of the contract stands for."""
    return enum_value(values.EventSeverity, capability_pb2.EventSeverity.DESCRIPTOR, number)


def transfer_kind(number: int) -> values.TransferKind:
    """The `TransferKind` that a number of the contract stands for."""
    return enum_value(values.TransferKind, capability_pb2.TransferKind.DESCRIPTOR, number)


def transfer_state(number: int) -> values.TransferState:
    """The `TransferState` that a number of the contract stands for."""
    return enum_value(values.TransferState, capability_pb2.TransferState.DESCRIPTOR, number)


def load_phase(number: int) -> values.LoadPhase:
    """The `LoadPhase` that a number of the contract stands for."""
    return enum_value(values.LoadPhase, model_service_pb2.LoadPhase.DESCRIPTOR, number)


def pull_phase(number: int) -> values.PullPhase:
    """The `PullPhase` that a number of the contract stands for."""
    return enum_value(values.PullPhase, model_service_pb2.PullPhase.DESCRIPTOR, number)


def stop_reason(number: int) -> values.StopReason:
    """The `StopReason` that a number of the contract stands for."""
    return enum_value(values.StopReason, runtime_pb2.StopReason.DESCRIPTOR, number)


def drop_reason(number: int) -> values.DropReason:
    """The `DropReason` that a number of the contract stands for."""
    return enum_value(values.DropReason, runtime_pb2.DropReason.DESCRIPTOR, number)


def session_state(number: int) -> values.SessionState:
    """The `SessionState` that a number of the contract stands for."""
    return enum_value(values.SessionState, runtime_pb2.SessionState.DESCRIPTOR, number)


def session_outcome(number: int) -> values.SessionOutcome:
    """The `SessionOutcome` that a number of the contract stands for."""
    return enum_value(values.SessionOutcome, runtime_pb2.SessionOutcome.DESCRIPTOR, number)


def step_cost(message: model_pb2.StepCost) -> values.StepCost:
    """The `StepCost` that a message tells of."""
    return values.StepCost(
        token_count=message.token_count,
        seconds=message.seconds,
    )


def model_offer(message: model_pb2.ModelOffer) -> values.ModelOffer:
    """The `ModelOffer` that a message tells of."""
    return values.ModelOffer(
        model_id=message.model_id,
        role=role(message.role),
        kind=model_kind(message.kind),
        weights_digest=message.weights_digest,
        tokenizer_digest=message.tokenizer_digest,
        quantization=message.quantization,
        dtype=message.dtype,
        vocabulary_size=message.vocabulary_size,
        context_length=message.context_length,
        kv_bytes_per_token=message.kv_bytes_per_token,
        step_costs=tuple(step_cost(each) for each in message.step_costs),
        exact=message.exact,
        kv_fixed_bytes=message.kv_fixed_bytes,
        backend=message.backend,
        architecture=message.architecture,
        target_weights_digest=message.target_weights_digest,
        feature_width=message.feature_width,
        encoder_digest=message.encoder_digest,
        tapped_layers=tuple(message.tapped_layers),
        block_size=message.block_size,
        history_layer_count=message.history_layer_count,
        rank_count=message.rank_count,
        thread_count=message.thread_count,
        evicted_arithmetic=message.evicted_arithmetic,
        arithmetic=message.arithmetic,
        given_history_tokens=message.given_history_tokens,
        ends_drafts=message.ends_drafts,
    )


def placement(message: placement_pb2.Placement) -> values.Placement:
    """The `Placement` that a message tells of."""
    return values.Placement(
        node_id=message.node_id,
        node_name=message.node_name,
        address=message.address,
        model_id=message.model_id,
    )


def rejection(message: placement_pb2.Rejection) -> values.Rejection:
    """The `Rejection` that a message tells of."""
    return values.Rejection(
        verifier=placement(message.verifier),
        proposer=placement(message.proposer) if message.HasField("proposer") else None,
        reason=rejection_reason(message.reason),
        explanation=message.explanation,
        predicted_tokens_per_second=message.predicted_tokens_per_second,
    )


def archive_range(message: placement_pb2.ArchiveRange) -> values.ArchiveRange:
    """The `ArchiveRange` that a message tells of."""
    return values.ArchiveRange(
        archive=placement(message.archive),
        first_position=message.first_position,
        end_position=message.end_position,
    )


def trial(message: placement_pb2.Trial) -> values.Trial:
    """The `Trial` that a message tells of."""
    return values.Trial(
        proposer=placement(message.proposer),
        predicted_tokens_per_second_high=message.predicted_tokens_per_second_high,
    )


def plan(message: placement_pb2.Plan) -> values.Plan:
    """The `Plan` that a message tells of."""
    return values.Plan(
        verifier=placement(message.verifier),
        proposer=placement(message.proposer) if message.HasField("proposer") else None,
        transport=transport(message.transport) if message.transport else None,
        block_size=message.block_size,
        predicted_tokens_per_second=message.predicted_tokens_per_second,
        predicted_alone_tokens_per_second=message.predicted_alone_tokens_per_second,
        round_trip_seconds=message.round_trip_seconds,
        acceptance_rate=message.acceptance_rate,
        acceptance_measured=message.acceptance_measured,
        kv_bytes=message.kv_bytes,
        reasons=tuple(message.reasons),
        rejections=tuple(rejection(each) for each in message.rejections),
        exact=message.exact,
        archive=placement(message.archive) if message.HasField("archive") else None,
        archives=tuple(archive_range(each) for each in message.archives),
        acceptance_rate_low=message.acceptance_rate_low,
        acceptance_rate_high=message.acceptance_rate_high,
        predicted_tokens_per_second_low=message.predicted_tokens_per_second_low,
        predicted_tokens_per_second_high=message.predicted_tokens_per_second_high,
        exploring=message.exploring,
        kv_strategy=kv_strategy(message.kv_strategy) if message.kv_strategy else None,
        trials=tuple(trial(each) for each in message.trials),
        stand_in=trial(message.stand_in) if message.HasField("stand_in") else None,
    )


def timings(message: runtime_pb2.GenerateTimings) -> values.Timings:
    """The `Timings` that a message tells of."""
    return values.Timings(
        queue_seconds=message.queue_seconds,
        prefill_seconds=message.prefill_seconds,
        first_token_seconds=message.first_token_seconds,
        total_seconds=message.total_seconds,
    )


def draft_fault(message: runtime_pb2.DraftFault) -> values.DraftFault:
    """The `DraftFault` that a message tells of."""
    return values.DraftFault(
        reason=drop_reason(message.reason),
        count=message.count,
    )


def block_timing(message: runtime_pb2.BlockTiming) -> values.BlockTiming:
    """The `BlockTiming` that a message tells of."""
    return values.BlockTiming(
        first_index=message.first_index,
        drafted_count=message.drafted_count,
        accepted_count=message.accepted_count,
        draft_seconds=message.draft_seconds,
        wire_seconds=message.wire_seconds,
        wait_seconds=message.wait_seconds,
        verify_seconds=message.verify_seconds,
        drafted_ahead=message.drafted_ahead,
        start_seconds=message.start_seconds,
        generation_number=message.generation_number,
        committed_count=message.committed_count,
        proposer_node_id=message.proposer_node_id,
        proposer_model_id=message.proposer_model_id,
    )


def proposer_statistics(message: runtime_pb2.ProposerStatistics) -> values.ProposerStatistics:
    """The `ProposerStatistics` that a message tells of."""
    return values.ProposerStatistics(
        node_id=message.node_id,
        model_id=message.model_id,
        block_count=message.block_count,
        drafted_count=message.drafted_count,
        accepted_count=message.accepted_count,
        committed_count=message.committed_count,
        seconds=message.seconds,
    )


def speculation_statistics(
    message: runtime_pb2.SpeculationStatistics,
) -> values.SpeculationStatistics:
    """The `SpeculationStatistics` that a message tells of."""
    return values.SpeculationStatistics(
        block_count=message.block_count,
        drafted_count=message.drafted_count,
        accepted_count=message.accepted_count,
        verify_forward_count=message.verify_forward_count,
        acceptance_length=message.acceptance_length,
        round_trip_seconds_p50=message.round_trip_seconds_p50,
        round_trip_seconds_p99=message.round_trip_seconds_p99,
        faults=tuple(draft_fault(each) for each in message.faults),
        drop_reason=drop_reason(message.drop_reason) if message.drop_reason else None,
        ahead_hit_count=message.ahead_hit_count,
        ahead_miss_count=message.ahead_miss_count,
        proposer_node_id=message.proposer_node_id,
        proposer_model_id=message.proposer_model_id,
        proposers=tuple(proposer_statistics(each) for each in message.proposers),
        hedge_count=message.hedge_count,
        hedge_won_count=message.hedge_won_count,
        forbidden_count=message.forbidden_count,
    )


def link_change(message: runtime_pb2.LinkChange) -> values.LinkChange:
    """The `LinkChange` that a message tells of."""
    return values.LinkChange(
        start_seconds=message.start_seconds,
        purpose=link_purpose(message.purpose),
        transport=transport(message.transport),
        generation=message.generation,
        reason=message.reason,
        peer_node_id=message.peer_node_id,
    )


def generation_done(message: runtime_pb2.GenerateDone) -> values.GenerationDone:
    """The `GenerationDone` that a message tells of."""
    return values.GenerationDone(
        stop_reason=stop_reason(message.stop_reason),
        generated_token_count=message.generated_token_count,
        history_length=message.history_length,
        timings=timings(message.timings),
        speculation=speculation_statistics(message.speculation),
        timeline=tuple(block_timing(each) for each in message.timeline),
        seed=message.seed,
        restorer_rebuild_count=message.restorer_rebuild_count,
        link_changes=tuple(link_change(each) for each in message.link_changes),
        forgotten_token_count=message.forgotten_token_count,
        recomputed_token_count=message.recomputed_token_count,
        kv_quality=kv_quality(message.kv_quality),
    )


def restorer_info(message: runtime_pb2.RestorerInfo) -> values.RestorerInfo:
    """The `RestorerInfo` that a message tells of."""
    return values.RestorerInfo(
        kind=restorer_kind(message.restorer.kind),
        model_id=message.restorer.model_id,
        digest=message.digest,
        node_id=message.restorer.node_id,
        quality_when_short=kv_quality(message.restorer.quality_when_short),
        node_name=message.node_name,
        evicted_token_count=message.evicted_token_count,
        evicted_bytes=message.evicted_bytes,
        rebuild_count=message.rebuild_count,
        lost=message.lost,
        archives=tuple(archive_range(each) for each in message.archives),
        own_bytes=message.own_bytes,
        audited_answer_count=message.audited_answer_count,
        doubtful_from=message.doubtful_from,
        doubtful_end=message.doubtful_end,
        quality=kv_quality(message.restorer.quality),
        codec=message.restorer.codec,
    )


def invariant_count(message: runtime_pb2.InvariantCount) -> values.InvariantCount:
    """The `InvariantCount` that a message tells of."""
    return values.InvariantCount(
        invariant=message.invariant,
        check_count=message.check_count,
        violation_count=message.violation_count,
    )


def session_info(message: runtime_pb2.SessionInfo) -> values.SessionInfo:
    """The `SessionInfo` that a message tells of."""
    return values.SessionInfo(
        session_id=message.session_id,
        model_id=message.model_id,
        client_label=message.client_label,
        history_length=message.history_length,
        kv_bytes=message.kv_bytes,
        resident_token_count=message.resident_token_count,
        kv_strategy=kv_strategy(message.kv_strategy),
        sink_tokens=message.sink_tokens,
        window_tokens=message.window_tokens,
        state=session_state(message.state),
        idle_seconds=message.idle_seconds,
        ttl_seconds=message.ttl_seconds,
        age_seconds=message.age_seconds,
        plan=plan(message.plan),
        drop_reason=drop_reason(message.drop_reason) if message.drop_reason else None,
        forward_count=message.forward_count,
        restorer=restorer_info(message.restorer) if message.HasField("restorer") else None,
        invariants=tuple(invariant_count(each) for each in message.invariants),
        forgotten_token_count=message.forgotten_token_count,
        recomputed_token_count=message.recomputed_token_count,
        computed_token_count=message.computed_token_count,
    )


def session_activity(message: runtime_pb2.SessionActivity) -> values.SessionActivity:
    """The `SessionActivity` that a message tells of."""
    return values.SessionActivity(
        session=session_info(message.session),
        blocks=tuple(block_timing(each) for each in message.blocks),
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
        link_changes=tuple(link_change(each) for each in message.link_changes),
        stop_reason=stop_reason(message.stop_reason) if message.stop_reason else None,
    )


def sessions_snapshot(message: runtime_pb2.SessionsSnapshot) -> values.SessionsSnapshot:
    """The `SessionsSnapshot` that a message tells of."""
    return values.SessionsSnapshot(
        sessions=tuple(session_activity(each) for each in message.sessions),
    )


def ended_session(message: runtime_pb2.EndedSession) -> values.EndedSession:
    """The `EndedSession` that a message tells of."""
    return values.EndedSession(
        session_id=message.session_id,
        outcome=session_outcome(message.outcome),
    )


def text_vector(message: runtime_pb2.EmbedResponse) -> values.TextVector:
    """The `TextVector` that a message tells of."""
    return values.TextVector(
        values=tuple(message.values),
        model=model_offer(message.model),
    )


def archive_offer(message: capability_pb2.ArchiveOffer) -> values.ArchiveOffer:
    """The `ArchiveOffer` that a message tells of."""
    return values.ArchiveOffer(
        capacity_bytes=message.capacity_bytes,
        free_bytes=message.free_bytes,
        port=message.port,
        arithmetic=message.arithmetic,
    )


def card(message: capability_pb2.CapabilityCard) -> values.Card:
    """The `Card` that a message tells of."""
    return values.Card(
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
        models=tuple(model_offer(each) for each in message.models),
        ring_address=message.ring_address,
        announced_at_unix=message.announced_at_unix,
        ttl_seconds=message.ttl_seconds,
        archive=archive_offer(message.archive) if message.HasField("archive") else None,
        http_address=message.http_address,
        host_id=message.host_id,
        certificate=message.certificate.hex(),
        https_port=message.https_port,
        applications_port=message.applications_port,
        accelerator_memory_total_bytes=message.accelerator_memory_total_bytes,
        accelerator_memory_free_bytes=message.accelerator_memory_free_bytes,
        accelerator_dtypes=tuple(message.accelerator_dtypes),
    )


def peer_link(message: capability_pb2.PeerLink) -> values.PeerLink:
    """The `PeerLink` that a message tells of."""
    return values.PeerLink(
        node_id=message.node_id,
        round_trip_seconds=message.round_trip_seconds,
        breaker_open=message.breaker_open,
        archive_wait_seconds=message.archive_wait_seconds if message.archive_wait_seconds else None,
        address=message.address,
        breaker_open_models=tuple(message.breaker_open_models),
    )


def node_load(message: capability_pb2.NodeLoad) -> values.NodeLoad:
    """The `NodeLoad` that a message tells of."""
    return values.NodeLoad(
        session_count=message.session_count,
        generating_count=message.generating_count,
        draft_stream_count=message.draft_stream_count,
        kv_bytes=message.kv_bytes,
        kv_budget_bytes=message.kv_budget_bytes,
        memory_free_bytes=message.memory_free_bytes,
        archive_count=message.archive_count,
        archive_bytes=message.archive_bytes,
        archive_budget_bytes=message.archive_budget_bytes,
        cpu_share=message.cpu_share if message.HasField("cpu_share") else None,
        process_cpu_share=message.process_cpu_share
        if message.HasField("process_cpu_share")
        else None,
    )


def measured_acceptance(message: capability_pb2.MeasuredAcceptance) -> values.MeasuredAcceptance:
    """The `MeasuredAcceptance` that a message tells of."""
    return values.MeasuredAcceptance(
        verifier_model_id=message.verifier_model_id,
        proposer_model_id=message.proposer_model_id,
        acceptance_rate=message.acceptance_rate,
        drafted_count=message.drafted_count,
        acceptance_rate_low=message.acceptance_rate_low,
        acceptance_rate_high=message.acceptance_rate_high,
        session_count=message.session_count,
    )


def tensor_link(message: capability_pb2.TensorLinkStatus) -> values.TensorLink:
    """The `TensorLink` that a message tells of."""
    return values.TensorLink(
        peer_node_id=message.peer_node_id,
        purpose=link_purpose(message.purpose),
        transport=transport(message.transport),
        generation=message.generation,
        bytes_per_second=message.bytes_per_second,
        reason=message.reason,
        changed_seconds_ago=message.changed_seconds_ago,
        is_caller=message.is_caller,
        tensor_count=message.tensor_count,
        byte_count=message.byte_count,
        demotion_count=message.demotion_count,
    )


def seed_fault(message: capability_pb2.SeedFault) -> values.SeedFault:
    """The `SeedFault` that a message tells of."""
    return values.SeedFault(
        address=message.address,
        reason=message.reason,
        message=message.message,
        mend=message.mend,
        since_seconds=message.since_seconds,
        attempt_count=message.attempt_count,
    )


def node(message: capability_pb2.GetNodeResponse) -> values.Node:
    """The `Node` that a message tells of."""
    return values.Node(
        card=card(message.card),
        links=tuple(peer_link(each) for each in message.links),
        load=node_load(message.load),
        acceptances=tuple(measured_acceptance(each) for each in message.acceptances),
        metrics_address=message.metrics_address,
        draining=message.draining,
        tensor_links=tuple(tensor_link(each) for each in message.tensor_links),
        http_address=message.http_address,
        started_at_unix=message.started_at_unix,
        seed_faults=tuple(seed_fault(each) for each in message.seed_faults),
    )


def limit_use(message: capability_pb2.LimitUse) -> values.LimitUse:
    """The `LimitUse` that a message tells of."""
    return values.LimitUse(
        name=message.name,
        unit=limit_unit(message.unit),
        limit=message.limit,
        used=message.used,
        refused_full_count=message.refused_full_count,
        refused_share_count=message.refused_share_count,
        why=message.why,
        is_counted=message.is_counted,
    )


def measured_codec(message: capability_pb2.MeasuredCodec) -> values.MeasuredCodec:
    """The `MeasuredCodec` that a message tells of."""
    return values.MeasuredCodec(
        model_id=message.model_id,
        weights_digest=message.weights_digest,
        arithmetic=message.arithmetic,
        codec=message.codec,
        bits=message.bits,
        position_count=message.position_count,
        divergence_nats=message.divergence_nats,
        error_nats=message.error_nats,
        qualities=tuple(kv_quality(each) for each in message.qualities),
        reasons=tuple(message.reasons),
        measured_at_unix=message.measured_at_unix,
        is_settled=message.is_settled,
    )


def span_attribute(message: capability_pb2.SpanAttribute) -> values.SpanAttribute:
    """The `SpanAttribute` that a message tells of."""
    return values.SpanAttribute(
        name=message.name,
        value=message.value,
    )


def span(message: capability_pb2.Span) -> values.Span:
    """The `Span` that a message tells of."""
    return values.Span(
        trace_id=message.trace_id,
        span_id=message.span_id,
        parent_span_id=message.parent_span_id,
        name=message.name,
        started_at_unix=message.started_at_unix,
        duration_seconds=message.duration_seconds,
        request_id=message.request_id,
        fault=message.fault,
        attributes=tuple(span_attribute(each) for each in message.attributes),
    )


def node_spans(message: capability_pb2.GetSpansResponse) -> values.NodeSpans:
    """The `NodeSpans` that a message tells of."""
    return values.NodeSpans(
        node_id=message.node_id,
        node_name=message.node_name,
        spans=tuple(span(each) for each in message.spans),
    )


def node_sample(message: capability_pb2.NodeSample) -> values.NodeSample:
    """The `NodeSample` that a message tells of."""
    return values.NodeSample(
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
        cpu_share=message.cpu_share if message.HasField("cpu_share") else None,
        process_cpu_share=message.process_cpu_share
        if message.HasField("process_cpu_share")
        else None,
        accelerator_share=message.accelerator_share
        if message.HasField("accelerator_share")
        else None,
    )


def node_event(message: capability_pb2.NodeEvent) -> values.NodeEvent:
    """The `NodeEvent` that a message tells of."""
    return values.NodeEvent(
        number=message.number,
        at_unix=message.at_unix,
        severity=event_severity(message.severity),
        kind=message.kind,
        message=message.message,
        mend=message.mend,
        subject_node_id=message.subject_node_id,
        session_id=message.session_id,
    )


def transfer(message: capability_pb2.Transfer) -> values.Transfer:
    """The `Transfer` that a message tells of."""
    return values.Transfer(
        transfer_id=message.transfer_id,
        kind=transfer_kind(message.kind),
        model_id=message.model_id,
        state=transfer_state(message.state),
        done_bytes=message.done_bytes,
        total_bytes=message.total_bytes,
        bytes_per_second=message.bytes_per_second,
        remaining_seconds=message.remaining_seconds,
        started_at_unix=message.started_at_unix,
        error=message.error,
    )


def node_history(message: capability_pb2.NodeHistory) -> values.NodeHistory:
    """The `NodeHistory` that a message tells of."""
    return values.NodeHistory(
        node=node(message.node),
        sample_seconds=message.sample_seconds,
        samples=tuple(node_sample(each) for each in message.samples),
        events=tuple(node_event(each) for each in message.events),
        transfers=tuple(transfer(each) for each in message.transfers),
    )


def load_progress(message: model_service_pb2.LoadProgress) -> values.LoadProgress:
    """The `LoadProgress` that a message tells of."""
    return values.LoadProgress(
        phase=load_phase(message.phase),
        transfer=transfer(message.transfer) if message.HasField("transfer") else None,
    )


def loaded_model(message: model_service_pb2.LoadedModel) -> values.LoadedModel:
    """The `LoadedModel` that a message tells of."""
    return values.LoadedModel(
        offer=model_offer(message.offer),
        was_served=message.was_served,
    )


def unloaded_model(message: model_service_pb2.UnloadModelResponse) -> values.UnloadedModel:
    """The `UnloadedModel` that a message tells of."""
    return values.UnloadedModel(
        model_id=message.model_id,
        role=role(message.role),
        memory_free_bytes=message.memory_free_bytes,
    )


def pull_source(message: model_service_pb2.PullSource) -> values.PullSource:
    """The `PullSource` that a message tells of."""
    return values.PullSource(
        node_id=message.node_id,
        node_name=message.node_name,
        done_bytes=message.done_bytes,
        fault=message.fault,
    )


def pull_progress(message: model_service_pb2.PullProgress) -> values.PullProgress:
    """The `PullProgress` that a message tells of."""
    return values.PullProgress(
        phase=pull_phase(message.phase),
        transfer=transfer(message.transfer) if message.HasField("transfer") else None,
        sources=tuple(pull_source(each) for each in message.sources),
    )


def pulled_model(message: model_service_pb2.PulledModel) -> values.PulledModel:
    """The `PulledModel` that a message tells of."""
    return values.PulledModel(
        model_id=message.model_id,
        byte_count=message.byte_count,
        file_count=message.file_count,
        files_digest=message.files_digest,
        was_there=message.was_there,
        sources=tuple(pull_source(each) for each in message.sources),
    )


def removed_model(message: model_service_pb2.RemoveModelResponse) -> values.RemovedModel:
    """The `RemovedModel` that a message tells of."""
    return values.RemovedModel(
        model_id=message.model_id,
        byte_count=message.byte_count,
    )


def stored_model(message: model_service_pb2.StoredModel) -> values.StoredModel:
    """The `StoredModel` that a message tells of."""
    return values.StoredModel(
        model_id=message.model_id,
        byte_count=message.byte_count,
        files_digest=message.files_digest,
        is_whole=message.is_whole,
        is_served=message.is_served,
        pulled_at_unix=message.pulled_at_unix,
        source_names=tuple(message.source_names),
    )
