"""What sessions and generations report, as it travels."""

from __future__ import annotations

from collections.abc import Sequence

from kakeya.enum_names import number_of
from kakeya.v1 import placement_pb2 as placement_wire
from kakeya.v1 import runtime_pb2 as wire
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_record import SessionRecord
from kakeya_fleet.engine.speculation.generation_report import (
    BlockTiming,
    Committed,
    DropReason,
    SpeculationStatistics,
)
from kakeya_fleet.fleet.placement.codec_ladder import PackedQuality
from kakeya_fleet.fleet.placement.plan import KvStrategy, Placement, Plan
from kakeya_fleet.node.links.protocol.changes import LinkChange
from kakeya_fleet.node.links.transport.wire import PURPOSES, TRANSPORTS
from kakeya_fleet.node.planning.kv_quality import quality_to_wire
from kakeya_fleet.node.planning.plan_wire import (
    kv_strategy_to_wire,
    placement_to_wire,
    plan_to_wire,
)
from kakeya_fleet.node.roles.archive.opening import KINDS as RESTORER_KINDS
from kakeya_fleet.node.roles.archive.session_restorer import SessionRestorer, placed
from kakeya_fleet.node.roles.archive.shared_store import HeldRange
from kakeya_fleet.node.roles.verifier.observer import Finished, Outcome
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.session_activity import SessionActivity

MOST_LINK_CHANGES = 16
_STRATEGIES: dict[CacheKind, KvStrategy] = {
    CacheKind.CONTIGUOUS: KvStrategy.FULL,
    CacheKind.SINK_WINDOW: KvStrategy.SINK_WINDOW,
    CacheKind.RESTORED: KvStrategy.RESTORED,
    CacheKind.PACKED: KvStrategy.FULL,
}


def committed_to_wire(committed: Committed) -> wire.GenerateResponse:
    """Tokens as they commit."""
    return wire.GenerateResponse(
        tokens=wire.CommittedTokens(
            token_ids=committed.token_ids,
            first_index=committed.first_index,
            drafted_count=committed.drafted_count,
            log_probabilities=committed.log_probabilities,
            alternatives=[_alternatives_to_wire(each) for each in committed.alternatives if each],
        )
    )


def _alternatives_to_wire(alternatives: Sequence[tuple[int, float]]) -> wire.TokenAlternatives:
    return wire.TokenAlternatives(
        token_ids=[token_id for token_id, _ in alternatives],
        log_probabilities=[log_probability for _, log_probability in alternatives],
    )


def done_to_wire(finished: Finished) -> wire.GenerateResponse:
    """The end of a generation."""
    done, queue_seconds = finished.done, finished.queue_seconds
    timings = done.timings
    return wire.GenerateResponse(
        done=wire.GenerateDone(
            stop_reason=number_of(wire.StopReason, done.stop_reason),
            generated_token_count=done.generated_token_count,
            history_length=done.history_length,
            timings=wire.GenerateTimings(
                queue_seconds=queue_seconds,
                prefill_seconds=timings.prefill_seconds,
                first_token_seconds=(
                    timings.first_token_seconds + queue_seconds if done.generated_token_count else 0
                ),
                total_seconds=timings.total_seconds + queue_seconds,
            ),
            speculation=_statistics_to_wire(
                done.speculation, finished.proposer, finished.drop_reason
            ),
            timeline=[_block_to_wire(block) for block in done.timeline],
            seed=done.seed,
            restorer_rebuild_count=finished.restorer_rebuild_count,
            link_changes=[
                _link_change_to_wire(each, finished.started_at) for each in finished.link_changes
            ],
            forgotten_token_count=done.forgotten_token_count,
            recomputed_token_count=finished.recomputed_count,
            kv_quality=quality_to_wire(finished.quality),
        )
    )


def _link_change_to_wire(change: LinkChange, started_at: float) -> wire.LinkChange:
    return wire.LinkChange(
        start_seconds=max(0.0, change.at - started_at),
        purpose=PURPOSES[change.purpose],
        transport=TRANSPORTS[change.kind],
        generation=change.generation,
        reason=change.reason,
        peer_node_id=change.peer_node_id,
    )


def activity_to_wire(
    activity: SessionActivity,
    info: wire.SessionInfo,
    blocks: Sequence[tuple[int, BlockTiming]],
    now: float,
) -> wire.SessionActivity:
    """What a session did, with (generation, block) that were not told before."""
    stop_reason = activity.stop_reason
    return wire.SessionActivity(
        session=info,
        blocks=[_block_to_wire(block, number) for number, block in blocks],
        tokens_per_second=activity.tokens_per_second(now),
        generation_count=activity.generation_count,
        generated_token_count=activity.generated_token_count,
        prefilled_token_count=activity.prefilled_token_count,
        prefill_seconds=activity.prefill_seconds,
        drafted_count=activity.drafted_count,
        accepted_count=activity.accepted_count,
        verify_forward_count=activity.verify_forward_count,
        draft_seconds=activity.draft_seconds,
        wire_seconds=activity.wire_seconds,
        wait_seconds=activity.wait_seconds,
        verify_seconds=activity.verify_seconds,
        link_changes=[
            _link_change_to_wire(change, activity.generation_began_at)
            for change in activity.session.latest_link_changes(MOST_LINK_CHANGES)
        ],
        stop_reason=number_of(wire.StopReason, stop_reason),
    )


def ended_to_wire(session_id: str, outcome: Outcome) -> wire.EndedSession:
    """A session that is no more."""
    return wire.EndedSession(session_id=session_id, outcome=number_of(wire.SessionOutcome, outcome))


def session_to_wire(
    record: SessionRecord[OpenSession],
    *,
    plan: Plan,
    restorer: SessionRestorer | None,
    quality: PackedQuality | None,
    drop_reason: DropReason | None,
    now: float,
) -> wire.SessionInfo:
    """The state of a session; `now` is in the seconds of the registry's clock.

    `quality` is how exactly it asked to have packed what is behind its window, None for lossless.
    """
    session = record.session
    return wire.SessionInfo(
        session_id=record.session_id,
        model_id=session.verifier.info.model_id,
        client_label=record.options.client_label,
        history_length=len(session.history),
        kv_bytes=session.memory_bytes + (restorer.own_bytes if restorer is not None else 0),
        resident_token_count=session.resident,
        kv_strategy=kv_strategy_to_wire(_STRATEGIES[session.spec.kind]),
        sink_tokens=session.spec.sink,
        window_tokens=session.spec.window,
        state=number_of(wire.SessionState, record.activity),
        idle_seconds=record.idle_seconds(now),
        ttl_seconds=record.ttl_seconds,
        age_seconds=max(0.0, now - record.created_at),
        plan=plan_to_wire(plan),
        drop_reason=number_of(wire.DropReason, drop_reason),
        forward_count=session.forward_count,
        restorer=_restorer_to_wire(restorer, quality, session),
        invariants=[
            wire.InvariantCount(
                invariant=each.invariant,
                check_count=each.check_count,
                violation_count=each.violation_count,
            )
            for each in session.invariants
        ],
        forgotten_token_count=session.forgotten_count,
        recomputed_token_count=session.recomputed_count,
        computed_token_count=session.computed_count,
    )


def _restorer_to_wire(
    restorer: SessionRestorer | None, quality: PackedQuality | None, session: Session
) -> wire.RestorerInfo | None:
    evicted = session.evicted
    if restorer is None:
        return _packed_to_wire(session.spec, quality, evicted) if session.spec.codec else None
    where = restorer.where
    return wire.RestorerInfo(
        restorer=placement_wire.Restorer(
            kind=RESTORER_KINDS[restorer.spec.kind],
            model_id=restorer.spec.model_id,
            quality=quality_to_wire(quality),
            codec=restorer.spec.codec,
            node_id=where.node_id if where is not None else "",
        ),
        digest=restorer.spec.digest,
        node_name=where.node_name if where is not None else "",
        evicted_token_count=max(0, evicted.length - restorer.shape.sink) if evicted else 0,
        evicted_bytes=evicted.stored_bytes if evicted else 0,
        rebuild_count=restorer.rebuild_count,
        lost=restorer.lost,
        archives=_ranges_to_wire(restorer, evicted),
        own_bytes=restorer.own_bytes,
        audited_answer_count=restorer.audit_count,
        doubtful_from=restorer.doubtful.start,
        doubtful_end=restorer.doubtful.stop,
    )


def _packed_to_wire(
    spec: CacheSpec, quality: PackedQuality | None, packed: EvictedStore | None
) -> wire.RestorerInfo:
    """What a `full` session has packed, in memory of its own."""
    return wire.RestorerInfo(
        restorer=placement_wire.Restorer(
            kind=placement_wire.RESTORER_KIND_IDENTITY,
            quality=quality_to_wire(quality),
            codec=spec.codec,
        ),
        evicted_token_count=max(0, packed.length - spec.sink) if packed else 0,
        evicted_bytes=packed.stored_bytes if packed else 0,
    )


def _ranges_to_wire(
    restorer: SessionRestorer, evicted: EvictedStore | None
) -> list[placement_wire.ArchiveRange]:
    """Where the evicted positions are, by rising positions."""
    ranges = restorer.ranges
    where = restorer.where
    if not ranges and where is not None and evicted is not None and not restorer.lost:
        sink = restorer.shape.sink
        ranges = (HeldRange(where, sink, max(sink, evicted.length)),)
    return [
        placement_wire.ArchiveRange(
            archive=placement_to_wire(placed(held.where, restorer.spec) if held.where else None),
            first_position=held.first,
            end_position=held.end,
        )
        for held in ranges
    ]


def _statistics_to_wire(
    statistics: SpeculationStatistics, proposer: Placement | None, drop_reason: DropReason | None
) -> wire.SpeculationStatistics:
    return wire.SpeculationStatistics(
        block_count=statistics.block_count,
        drafted_count=statistics.drafted_count,
        accepted_count=statistics.accepted_count,
        verify_forward_count=statistics.verify_forward_count,
        acceptance_length=statistics.acceptance_length,
        round_trip_seconds_p50=statistics.round_trip_seconds_p50,
        round_trip_seconds_p99=statistics.round_trip_seconds_p99,
        faults=[
            wire.DraftFault(reason=number_of(wire.DropReason, reason), count=count)
            for reason, count in statistics.faults.items()
        ],
        drop_reason=number_of(wire.DropReason, drop_reason),
        ahead_hit_count=statistics.ahead_hit_count,
        ahead_miss_count=statistics.ahead_miss_count,
        proposer_node_id=proposer.node_id if proposer is not None else "",
        proposer_model_id=proposer.model_id if proposer is not None else "",
        proposers=[
            wire.ProposerStatistics(
                node_id=counts.proposer[0],
                model_id=counts.proposer[1],
                block_count=counts.block_count,
                drafted_count=counts.drafted_count,
                accepted_count=counts.accepted_count,
                committed_count=counts.committed_count,
                seconds=counts.seconds,
            )
            for counts in statistics.proposers
        ],
        hedge_count=statistics.hedge_count,
        hedge_won_count=statistics.hedge_won_count,
        forbidden_count=statistics.forbidden_count,
    )


def _block_to_wire(block: BlockTiming, generation_number: int = 0) -> wire.BlockTiming:
    node_id, model_id = block.proposer or ("", "")
    return wire.BlockTiming(
        first_index=block.first_index,
        drafted_count=block.drafted_count,
        accepted_count=block.accepted_count,
        draft_seconds=block.draft_seconds,
        wire_seconds=block.wire_seconds,
        wait_seconds=block.wait_seconds,
        verify_seconds=block.verify_seconds,
        drafted_ahead=block.drafted_ahead,
        start_seconds=block.start_seconds,
        committed_count=block.committed_count,
        generation_number=generation_number,
        proposer_node_id=node_id,
        proposer_model_id=model_id,
    )
