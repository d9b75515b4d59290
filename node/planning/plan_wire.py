"""Placement's values to wire messages and back."""

from __future__ import annotations

from kakeya.v1 import placement_pb2 as wire
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.fleet.placement.plan import (
    KvStrategy,
    Placement,
    Plan,
    PlanRequest,
    Rejection,
    RejectionReason,
    Transport,
)

DEFAULT_SINK_TOKENS = 4
DEFAULT_WINDOW_TOKENS = 1024
MAX_DRAFTED_TOKENS = 15

_KV_STRATEGIES: dict[KvStrategy, wire.KvStrategy.ValueType] = {
    KvStrategy.FULL: wire.KV_STRATEGY_FULL,
    KvStrategy.SINK_WINDOW: wire.KV_STRATEGY_SINK_WINDOW,
    KvStrategy.RESTORED: wire.KV_STRATEGY_RESTORED,
}
_TRANSPORTS: dict[Transport, wire.Transport.ValueType] = {
    Transport.LOCAL: wire.TRANSPORT_LOCAL,
    Transport.GRPC: wire.TRANSPORT_GRPC,
    Transport.RING: wire.TRANSPORT_RING,
}
_REJECTION_REASONS: dict[RejectionReason, wire.RejectionReason.ValueType] = {
    RejectionReason.SLOWER_THAN_CHOSEN: wire.REJECTION_REASON_SLOWER_THAN_CHOSEN,
    RejectionReason.SLOWER_THAN_ALONE: wire.REJECTION_REASON_SLOWER_THAN_ALONE,
    RejectionReason.TOKENIZER_MISMATCH: wire.REJECTION_REASON_TOKENIZER_MISMATCH,
    RejectionReason.NOT_ENOUGH_MEMORY: wire.REJECTION_REASON_NOT_ENOUGH_MEMORY,
    RejectionReason.NOT_ALIVE: wire.REJECTION_REASON_NOT_ALIVE,
    RejectionReason.PROTOCOL_SKEW: wire.REJECTION_REASON_PROTOCOL_SKEW,
    RejectionReason.CONTEXT_TOO_LONG: wire.REJECTION_REASON_CONTEXT_TOO_LONG,
    RejectionReason.NOT_REQUESTED: wire.REJECTION_REASON_NOT_REQUESTED,
    RejectionReason.NOT_MEASURED: wire.REJECTION_REASON_NOT_MEASURED,
    RejectionReason.UNREACHABLE: wire.REJECTION_REASON_UNREACHABLE,
    RejectionReason.BREAKER_OPEN: wire.REJECTION_REASON_BREAKER_OPEN,
    RejectionReason.NOT_EXACT: wire.REJECTION_REASON_NOT_EXACT,
    RejectionReason.WRONG_TARGET: wire.REJECTION_REASON_WRONG_TARGET,
}


def kv_strategy_from_wire(value: int) -> KvStrategy | None:
    """The strategy; None when not given. Raises `BadParameters`."""
    if value == wire.KV_STRATEGY_UNSPECIFIED:
        return None
    for strategy, number in _KV_STRATEGIES.items():
        if number == value:
            return strategy
    raise BadParameters(
        f"kv_strategy is {value}; it must be 1 (full), 2 (sink_window) or 3 (restored)",
        field="kv_strategy",
    )


def kv_strategy_to_wire(strategy: KvStrategy) -> wire.KvStrategy.ValueType:
    """The strategy's number."""
    return _KV_STRATEGIES[strategy]


def plan_request_from_wire(request: wire.PlanRequest) -> PlanRequest:
    """What is asked for, defaults filled in. Raises `BadParameters`."""
    if not request.verifier_model:
        raise BadParameters(
            "verifier_model is empty; name the model that decides the tokens",
            field="verifier_model",
        )
    if request.block_size > MAX_DRAFTED_TOKENS:
        raise BadParameters(
            f"block_size is {request.block_size}; it must be 0 to {MAX_DRAFTED_TOKENS}",
            field="block_size",
        )
    return PlanRequest(
        verifier_model=request.verifier_model,
        proposer_model=request.proposer_model,
        proposer_node_id=request.proposer_node_id,
        verifier_node_id=request.verifier_node_id,
        context_tokens=request.context_tokens,
        kv_strategy=kv_strategy_from_wire(request.kv_strategy),
        sink_tokens=request.sink_tokens or DEFAULT_SINK_TOKENS,
        window_tokens=request.window_tokens or DEFAULT_WINDOW_TOKENS,
        block_size=request.block_size or None,
        without_proposer=request.without_proposer,
        archive_node_id=request.restorer.node_id,
        without_archive=request.restorer.kind == wire.RESTORER_KIND_IDENTITY,
        grows=not request.context_tokens,
    )


def plan_to_wire(plan: Plan) -> wire.Plan:
    """The decision as it travels."""
    return wire.Plan(
        verifier=placement_to_wire(plan.verifier),
        proposer=placement_to_wire(plan.proposer),
        transport=(
            wire.TRANSPORT_UNSPECIFIED if plan.transport is None else _TRANSPORTS[plan.transport]
        ),
        block_size=plan.block_size if plan.proposer is not None else 0,
        predicted_tokens_per_second=plan.predicted_tokens_per_second,
        predicted_alone_tokens_per_second=plan.predicted_alone_tokens_per_second,
        round_trip_seconds=plan.round_trip_seconds,
        acceptance_rate=plan.acceptance_rate,
        acceptance_measured=plan.acceptance_measured,
        kv_bytes=plan.kv_bytes,
        reasons=plan.reasons,
        rejections=[_rejection_to_wire(rejection) for rejection in plan.rejections],
        exact=plan.exact,
        archive=placement_to_wire(plan.archive),
        archives=[
            wire.ArchiveRange(
                archive=placement_to_wire(each.archive),
                first_position=each.first_position,
                end_position=each.end_position,
            )
            for each in plan.archives
        ],
        acceptance_rate_low=plan.acceptance_rate_low,
        acceptance_rate_high=plan.acceptance_rate_high,
        predicted_tokens_per_second_low=plan.predicted_tokens_per_second_low,
        predicted_tokens_per_second_high=plan.predicted_tokens_per_second_high,
        exploring=plan.exploring,
        trials=[
            wire.Trial(
                proposer=placement_to_wire(each.proposer),
                predicted_tokens_per_second_high=each.predicted_tokens_per_second_high,
            )
            for each in plan.trials
        ],
        kv_strategy=kv_strategy_to_wire(plan.kv_strategy),
    )


def placement_to_wire(placement: Placement | None) -> wire.Placement | None:
    """Where something is; None for nowhere."""
    if placement is None:
        return None
    return wire.Placement(
        node_id=placement.node_id,
        node_name=placement.node_name,
        address=placement.address,
        model_id=placement.model_id,
    )


def _rejection_to_wire(rejection: Rejection) -> wire.Rejection:
    return wire.Rejection(
        verifier=placement_to_wire(rejection.verifier),
        proposer=placement_to_wire(rejection.proposer),
        reason=_REJECTION_REASONS[rejection.reason],
        explanation=rejection.explanation,
        predicted_tokens_per_second=rejection.predicted_tokens_per_second,
    )
