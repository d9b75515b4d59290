"""From messages of `kakeya.v1` to values: models, plans, sessions, generations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TypeVar

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message

from kakeya.errors import BadRequest, UnexpectedError
from kakeya.plan_values import (
    ArchiveRange,
    KvStrategy,
    LinkPurpose,
    ModelKind,
    ModelOffer,
    Placement,
    Plan,
    Rejection,
    RejectionReason,
    RestorerKind,
    Role,
    StepCost,
    Transport,
    Trial,
)
from kakeya.v1 import model_pb2, placement_pb2, runtime_pb2, tensor_pb2
from kakeya.values import (
    Alternative,
    BlockTiming,
    DraftFault,
    DropReason,
    GenerationDone,
    InvariantCount,
    LinkChange,
    ProposerStatistics,
    RestorerInfo,
    SessionInfo,
    SessionState,
    SpeculationStatistics,
    StopReason,
    Timings,
    Tokens,
)

EnumT = TypeVar("EnumT", bound=StrEnum)
RequestT = TypeVar("RequestT", bound=Message)


def enum_value(kind: type[EnumT], enum: EnumDescriptor, number: int) -> EnumT:
    """The member named by `number`; UNKNOWN for 0 and for numbers newer than this client.

    The contract names its values after the enum, as in ROLE_VERIFIER.
    """
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    value = enum.values_by_number.get(number)
    name = value.name.removeprefix(prefix) if value is not None else ""
    return kind.__members__.get(name, kind["UNKNOWN"])


def build(request: Callable[[], RequestT]) -> RequestT:
    """The request; raises BadRequest for a number that its field cannot hold."""
    try:
        return request()
    except ValueError as error:
        raise BadRequest(str(error)) from None


_KV_STRATEGIES = {
    KvStrategy.FULL: placement_pb2.KV_STRATEGY_FULL,
    KvStrategy.SINK_WINDOW: placement_pb2.KV_STRATEGY_SINK_WINDOW,
    KvStrategy.RESTORED: placement_pb2.KV_STRATEGY_RESTORED,
}


def kv_strategy(number: int) -> KvStrategy | None:
    """How keys and values are kept; None when the node does not tell."""
    if number == placement_pb2.KV_STRATEGY_UNSPECIFIED:
        return None
    return enum_value(KvStrategy, placement_pb2.KvStrategy.DESCRIPTOR, number)


def kv_strategy_number(strategy: KvStrategy | str | None) -> placement_pb2.KvStrategy.ValueType:
    """The wire's number of a strategy, None for the node's choice.

    Raises BadRequest for one that does not exist.
    """
    if strategy is None:
        return placement_pb2.KV_STRATEGY_UNSPECIFIED
    for known, number in _KV_STRATEGIES.items():
        if strategy == known:
            return number
    raise _no_choice("kv_strategy", _KV_STRATEGIES, strategy)


def _no_choice(field: str, known: Iterable[str], given: object) -> BadRequest:
    return BadRequest(
        f"{field} is one of {', '.join(known)}, not {given!r}", metadata={"field": field}
    )


_RESTORER_KINDS = {
    RestorerKind.ARCHIVE: placement_pb2.RESTORER_KIND_ARCHIVE,
    RestorerKind.PROJECTION: placement_pb2.RESTORER_KIND_PROJECTION,
    RestorerKind.IDENTITY: placement_pb2.RESTORER_KIND_IDENTITY,
}


def restorer(
    kind: RestorerKind | str | None, model_id: str, node_id: str
) -> placement_pb2.Restorer | None:
    """What restores; None when nothing is asked for. Raises BadRequest for an unknown kind."""
    if kind is None and not model_id and not node_id:
        return None
    for known, number in _RESTORER_KINDS.items():
        if kind in (None, known):
            return placement_pb2.Restorer(kind=number, model_id=model_id, node_id=node_id)
    raise _no_choice("restorer", _RESTORER_KINDS, kind)


def model_offer(message: model_pb2.ModelOffer) -> ModelOffer:
    """One model in one role."""
    return ModelOffer(
        model_id=message.model_id,
        role=enum_value(Role, model_pb2.Role.DESCRIPTOR, message.role),
        kind=enum_value(ModelKind, model_pb2.ModelKind.DESCRIPTOR, message.kind),
        weights_digest=message.weights_digest,
        tokenizer_digest=message.tokenizer_digest,
        quantization=message.quantization,
        dtype=message.dtype,
        vocabulary_size=message.vocabulary_size,
        context_length=message.context_length,
        kv_bytes_per_token=message.kv_bytes_per_token,
        step_costs=tuple(StepCost(cost.token_count, cost.seconds) for cost in message.step_costs),
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
    )


def _placement(message: placement_pb2.Placement) -> Placement:
    return Placement(
        node_id=message.node_id,
        node_name=message.node_name,
        address=message.address,
        model_id=message.model_id,
    )


def _rejection(message: placement_pb2.Rejection) -> Rejection:
    return Rejection(
        verifier=_placement(message.verifier),
        proposer=_placement(message.proposer) if message.HasField("proposer") else None,
        reason=enum_value(
            RejectionReason, placement_pb2.RejectionReason.DESCRIPTOR, message.reason
        ),
        explanation=message.explanation,
        predicted_tokens_per_second=message.predicted_tokens_per_second,
    )


def plan(message: placement_pb2.Plan) -> Plan:
    """A plan with its reasons and rejections."""
    transport = None
    if message.transport != placement_pb2.TRANSPORT_UNSPECIFIED:
        transport = enum_value(Transport, placement_pb2.Transport.DESCRIPTOR, message.transport)
    return Plan(
        verifier=_placement(message.verifier),
        proposer=_placement(message.proposer) if message.HasField("proposer") else None,
        transport=transport,
        block_size=message.block_size,
        predicted_tokens_per_second=message.predicted_tokens_per_second,
        predicted_alone_tokens_per_second=message.predicted_alone_tokens_per_second,
        round_trip_seconds=message.round_trip_seconds,
        acceptance_rate=message.acceptance_rate,
        acceptance_measured=message.acceptance_measured,
        kv_bytes=message.kv_bytes,
        reasons=tuple(message.reasons),
        rejections=tuple(_rejection(item) for item in message.rejections),
        exact=message.exact,
        archive=_placement(message.archive) if message.HasField("archive") else None,
        archives=tuple(_archive_range(each) for each in message.archives),
        kv_strategy=kv_strategy(message.kv_strategy),
        acceptance_rate_low=message.acceptance_rate_low,
        acceptance_rate_high=message.acceptance_rate_high,
        predicted_tokens_per_second_low=message.predicted_tokens_per_second_low,
        predicted_tokens_per_second_high=message.predicted_tokens_per_second_high,
        exploring=message.exploring,
        trials=tuple(
            Trial(_placement(each.proposer), each.predicted_tokens_per_second_high)
            for each in message.trials
        ),
    )


def _archive_range(message: placement_pb2.ArchiveRange) -> ArchiveRange:
    return ArchiveRange(_placement(message.archive), message.first_position, message.end_position)


def tokens(message: runtime_pb2.CommittedTokens) -> Tokens:
    """Tokens as they committed."""
    return Tokens(
        tuple(message.token_ids),
        message.first_index,
        message.drafted_count,
        tuple(message.log_probabilities),
        tuple(_alternatives(each) for each in message.alternatives),
    )


def _alternatives(message: runtime_pb2.TokenAlternatives) -> tuple[Alternative, ...]:
    if len(message.token_ids) != len(message.log_probabilities):
        raise UnexpectedError("the node sent alternatives without their log-probabilities")
    pairs = zip(message.token_ids, message.log_probabilities, strict=True)
    return tuple(Alternative(token_id, value) for token_id, value in pairs)


def _drop_reason(number: int) -> DropReason | None:
    if number == runtime_pb2.DROP_REASON_UNSPECIFIED:
        return None
    return enum_value(DropReason, runtime_pb2.DropReason.DESCRIPTOR, number)


def _statistics(message: runtime_pb2.SpeculationStatistics) -> SpeculationStatistics:
    return SpeculationStatistics(
        block_count=message.block_count,
        drafted_count=message.drafted_count,
        accepted_count=message.accepted_count,
        verify_forward_count=message.verify_forward_count,
        acceptance_length=message.acceptance_length,
        round_trip_seconds_p50=message.round_trip_seconds_p50,
        round_trip_seconds_p99=message.round_trip_seconds_p99,
        faults=tuple(
            DraftFault(_drop_reason(fault.reason) or DropReason.UNKNOWN, fault.count)
            for fault in message.faults
        ),
        drop_reason=_drop_reason(message.drop_reason),
        ahead_hit_count=message.ahead_hit_count,
        ahead_miss_count=message.ahead_miss_count,
        proposer_node_id=message.proposer_node_id,
        proposer_model_id=message.proposer_model_id,
        proposers=tuple(
            ProposerStatistics(
                node_id=each.node_id,
                model_id=each.model_id,
                block_count=each.block_count,
                drafted_count=each.drafted_count,
                accepted_count=each.accepted_count,
                committed_count=each.committed_count,
                seconds=each.seconds,
            )
            for each in message.proposers
        ),
    )


def block_timing(message: runtime_pb2.BlockTiming) -> BlockTiming:
    """Where the seconds of one block went."""
    return BlockTiming(
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


def link_change(message: runtime_pb2.LinkChange) -> LinkChange:
    """What carries a session's tensors from then on."""
    return LinkChange(
        start_seconds=message.start_seconds,
        purpose=enum_value(LinkPurpose, tensor_pb2.LinkPurpose.DESCRIPTOR, message.purpose),
        transport=enum_value(Transport, placement_pb2.Transport.DESCRIPTOR, message.transport),
        generation=message.generation,
        reason=message.reason,
        peer_node_id=message.peer_node_id,
    )


def stop_reason(number: int) -> StopReason:
    """Why a generation ended."""
    return enum_value(StopReason, runtime_pb2.StopReason.DESCRIPTOR, number)


def generation_done(message: runtime_pb2.GenerateDone) -> GenerationDone:
    """The end of a generation."""
    timings = message.timings
    return GenerationDone(
        stop_reason=stop_reason(message.stop_reason),
        generated_token_count=message.generated_token_count,
        history_length=message.history_length,
        timings=Timings(
            queue_seconds=timings.queue_seconds,
            prefill_seconds=timings.prefill_seconds,
            first_token_seconds=timings.first_token_seconds,
            total_seconds=timings.total_seconds,
        ),
        speculation=_statistics(message.speculation),
        timeline=tuple(block_timing(block) for block in message.timeline),
        seed=message.seed,
        restorer_rebuild_count=message.restorer_rebuild_count,
        link_changes=tuple(link_change(change) for change in message.link_changes),
        forgotten_token_count=message.forgotten_token_count,
    )


def session_info(message: runtime_pb2.SessionInfo) -> SessionInfo:
    """The state of a session."""
    return SessionInfo(
        session_id=message.session_id,
        model_id=message.model_id,
        client_label=message.client_label,
        history_length=message.history_length,
        kv_bytes=message.kv_bytes,
        resident_token_count=message.resident_token_count,
        kv_strategy=enum_value(
            KvStrategy, placement_pb2.KvStrategy.DESCRIPTOR, message.kv_strategy
        ),
        sink_tokens=message.sink_tokens,
        window_tokens=message.window_tokens,
        state=enum_value(SessionState, runtime_pb2.SessionState.DESCRIPTOR, message.state),
        idle_seconds=message.idle_seconds,
        ttl_seconds=message.ttl_seconds,
        age_seconds=message.age_seconds,
        plan=plan(message.plan),
        drop_reason=_drop_reason(message.drop_reason),
        forward_count=message.forward_count,
        restorer=_restorer_info(message.restorer) if message.HasField("restorer") else None,
        invariants=tuple(
            InvariantCount(each.invariant, each.check_count, each.violation_count)
            for each in message.invariants
        ),
        forgotten_token_count=message.forgotten_token_count,
    )


def _restorer_info(message: runtime_pb2.RestorerInfo) -> RestorerInfo:
    return RestorerInfo(
        kind=enum_value(RestorerKind, placement_pb2.RestorerKind.DESCRIPTOR, message.restorer.kind),
        model_id=message.restorer.model_id,
        digest=message.digest,
        node_id=message.restorer.node_id,
        node_name=message.node_name,
        evicted_token_count=message.evicted_token_count,
        evicted_bytes=message.evicted_bytes,
        rebuild_count=message.rebuild_count,
        lost=message.lost,
        archives=tuple(_archive_range(each) for each in message.archives),
        own_bytes=message.own_bytes,
    )
