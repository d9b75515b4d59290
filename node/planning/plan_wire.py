"""Placement's values to wire messages and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kakeya.enum_names import number_of
from kakeya.v1 import placement_pb2 as wire
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.fleet.placement.codec_ladder import FIRST, PackedQuality
from kakeya_fleet.fleet.placement.cost_model import MAX_BLOCK_SIZE
from kakeya_fleet.fleet.placement.packing import FULL_WINDOW, Packing
from kakeya_fleet.fleet.placement.plan import (
    KvStrategy,
    Placement,
    Plan,
    PlanRequest,
    Rejection,
    Trial,
)
from kakeya_fleet.node.planning.kv_quality import (
    packing_of,
    pinned_of,
    quality_of,
    quality_when_short_of,
)

DEFAULT_SINK_TOKENS = 4
DEFAULT_WINDOW_TOKENS = 1024

Packings: TypeAlias = Callable[[str, PackedQuality, str], Packing]
"""How sessions of a model pack, by its id, their quality, and the codec they name or ""."""


def published(_model_id: str, quality: PackedQuality, pinned: str) -> Packing:
    """`Packings` of models that this node measured nothing of."""
    return packing_of(pinned or FIRST[quality], quality)


def kv_strategy_from_wire(value: int) -> KvStrategy | None:
    """The strategy; None when not given. Raises `BadParameters`."""
    if value == wire.KV_STRATEGY_UNSPECIFIED:
        return None
    for strategy in KvStrategy:
        if number_of(wire.KvStrategy, strategy) == value:
            return strategy
    raise BadParameters(
        f"kv_strategy is {value}; it must be 1 (full), 2 (sink_window) or 3 (restored)",
        field="kv_strategy",
    )


def kv_strategy_to_wire(strategy: KvStrategy) -> wire.KvStrategy.ValueType:
    """The strategy's number."""
    return number_of(wire.KvStrategy, strategy)


def plan_request_from_wire(
    request: wire.PlanRequest, packings: Packings = published
) -> PlanRequest:
    """What is asked for, defaults filled in. Raises `BadParameters`."""
    if not request.verifier_model:
        raise BadParameters(
            "verifier_model is empty; name the model that decides the tokens",
            field="verifier_model",
        )
    if request.block_size > MAX_BLOCK_SIZE:
        raise BadParameters(
            f"block_size is {request.block_size}; it must be 0 to {MAX_BLOCK_SIZE}",
            field="block_size",
        )
    quality, pinned = quality_of(request.restorer), pinned_of(request.restorer)
    strategy = kv_strategy_from_wire(request.kv_strategy)
    when_short = quality_when_short_of(request.restorer)
    check_when_short(when_short, strategy)
    return PlanRequest(
        verifier_model=request.verifier_model,
        proposer_model=request.proposer_model,
        proposer_node_id=request.proposer_node_id,
        verifier_node_id=request.verifier_node_id,
        context_tokens=request.context_tokens,
        kv_strategy=strategy,
        sink_tokens=request.sink_tokens or DEFAULT_SINK_TOKENS,
        window_tokens=request.window_tokens or DEFAULT_WINDOW_TOKENS,
        full_window_tokens=full_window_of(strategy, request.window_tokens, quality or when_short),
        block_size=request.block_size or None,
        without_proposer=request.without_proposer,
        archive_node_id=request.restorer.node_id,
        without_archive=request.restorer.kind == wire.RESTORER_KIND_IDENTITY,
        packing=packings(request.verifier_model, quality, pinned) if quality is not None else None,
        packing_when_short=(
            packings(request.verifier_model, when_short, "") if when_short is not None else None
        ),
        grows=not request.context_tokens,
    )


def check_when_short(when_short: PackedQuality | None, strategy: KvStrategy | None) -> None:
    """Of a session that keeps all by itself alone. Raises `BadParameters`."""
    if when_short is not None and strategy is not KvStrategy.FULL:
        named = strategy.value if strategy is not None else "unspecified"
        raise BadParameters(
            f"a session of kv_strategy {named} is not packed where memory is short; ask for"
            " kv_strategy full, or leave restorer.quality_when_short out",
            field="restorer.quality_when_short",
        )


def full_window_of(
    strategy: KvStrategy | None, window_tokens: int, quality: PackedQuality | None
) -> int:
    """Latest positions that a `full` session keeps as they lie where it packs; 0 for the default.

    As many as leave the window together, at least.
    """
    packs = strategy is KvStrategy.FULL and quality is not None
    return max(window_tokens, FULL_WINDOW) if packs else FULL_WINDOW


def plan_to_wire(plan: Plan) -> wire.Plan:
    """The decision as it travels."""
    return wire.Plan(
        verifier=placement_to_wire(plan.verifier),
        proposer=placement_to_wire(plan.proposer),
        transport=number_of(wire.Transport, plan.transport),
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
        trials=[_trial_to_wire(each) for each in plan.trials],
        stand_in=_trial_to_wire(plan.stand_in) if plan.stand_in is not None else None,
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


def _trial_to_wire(trial: Trial) -> wire.Trial:
    return wire.Trial(
        proposer=placement_to_wire(trial.proposer),
        predicted_tokens_per_second_high=trial.predicted_tokens_per_second_high,
    )


def _rejection_to_wire(rejection: Rejection) -> wire.Rejection:
    return wire.Rejection(
        verifier=placement_to_wire(rejection.verifier),
        proposer=placement_to_wire(rejection.proposer),
        reason=number_of(wire.RejectionReason, rejection.reason),
        explanation=rejection.explanation,
        predicted_tokens_per_second=rejection.predicted_tokens_per_second,
    )
