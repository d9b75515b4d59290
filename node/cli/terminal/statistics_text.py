"""The end of a generation in words: speed, acceptance, round trip, what went wrong."""

from __future__ import annotations

from kakeya import DraftFault, DropReason, GenerationDone, KvQuality, Plan, StopReason
from kakeya_fleet.node.cli.terminal.quantities import seconds_text, share_text, speed_text

_DROPPED = {
    DropReason.UNREACHABLE: "it cannot be reached",
    DropReason.DEADLINE: "a draft did not come in time",
    DropReason.WRONG_LENGTH: "it sent blocks of a wrong length",
    DropReason.OUT_OF_VOCABULARY: "it sent ids outside the vocabulary",
    DropReason.STALE: "it sent blocks for another history",
    DropReason.SLOWER_THAN_ALONE: "drafting was measured to be slower than decoding alone",
    DropReason.FEATURES: "the vectors that it drafts from were lost or late",
    DropReason.UNKNOWN: "for a reason that this version does not know",
}

_STOPPED = {
    StopReason.MAX_TOKENS: "as many tokens as asked for",
    StopReason.STOP_TOKEN: "the model ended its answer",
    StopReason.COMPLETE: "the answer is whole, nothing may follow",
    StopReason.DEADLINE: "the deadline passed",
    StopReason.CONTEXT_FULL: "the model's positions are used up",
    StopReason.DRAINING: "the node is leaving",
    StopReason.UNKNOWN: "for a reason that this version does not know",
}


def tokens_per_second(done: GenerationDone) -> float:
    """Generated tokens over the whole time without queue and prefill; 0 when not known."""
    timings = done.timings
    seconds = timings.total_seconds - timings.queue_seconds - timings.prefill_seconds
    return done.generated_token_count / seconds if seconds > 0 else 0.0


def forwards_per_token(done: GenerationDone) -> float:
    """Forward passes of the verifier a generated token, prefill not counted."""
    count = done.generated_token_count
    return done.speculation.verify_forward_count / count if count else 0.0


def statistics_lines(done: GenerationDone, plan: Plan) -> list[str]:
    """Statistics of one generation, line by line."""
    timings = done.timings
    lines = [
        f"{done.generated_token_count} tokens in {seconds_text(timings.total_seconds)}, "
        f"{speed_text(tokens_per_second(done))}; first token after "
        f"{seconds_text(timings.first_token_seconds)}; stopped: {_STOPPED[done.stop_reason]}",
        f"acceptance length {done.speculation.acceptance_length:.2f}, "
        f"forwards per token {forwards_per_token(done):.2f}, {drafts_text(done, plan)}",
    ]
    if done.seed:
        lines.append(f"seed {done.seed}")
    return [
        *lines,
        *forgotten_lines(done),
        *restorer_lines(done),
        *recomputed_lines(done),
        *packed_lines(done),
        *link_lines(done, plan),
        *fault_lines(done),
    ]


def forgotten_lines(done: GenerationDone) -> list[str]:
    """What of the history the model does not see any more; empty while it sees all."""
    count = done.forgotten_token_count
    if not count:
        return []
    return [
        f"forgotten: {count:,} of {done.history_length:,} tokens of the history are out of sink "
        "and window, and the model does not see them; a larger --window, --kv restored with an "
        "archive, or --kv full keeps them in sight"
    ]


def restorer_lines(done: GenerationDone) -> list[str]:
    """What became of the evicted positions; empty when nothing happened."""
    count = done.restorer_rebuild_count
    if not count:
        return []
    times = "once" if count == 1 else f"{count} times"
    return [f"the archive was lost {times} and made anew from the history"]


def recomputed_lines(done: GenerationDone) -> list[str]:
    """What was computed once more; empty when nothing was."""
    count = done.recomputed_token_count
    if not count:
        return []
    return [
        f"{count:,} tokens of the history were computed once more before the first new one: their "
        "keys and values had been given back, or lost"
    ]


def packed_lines(done: GenerationDone) -> list[str]:
    """How keys and values were kept at the end; empty where they lay as they are."""
    quality = done.kv_quality
    if quality not in (KvQuality.HIGH, KvQuality.ECONOMY):
        return []
    return [f"keys and values behind the latest tokens were packed: quality {quality.value}"]


def link_lines(done: GenerationDone, plan: Plan) -> list[str]:
    """What carried the session's tensors from when on, and why; empty when nothing changed."""
    places = [plan.proposer, plan.archive, *(each.archive for each in plan.archives)]
    names = {place.node_id: place.node_name for place in places if place is not None}
    lines: list[str] = []
    for change in done.link_changes:
        peer = names.get(change.peer_node_id, change.peer_node_id[:12])
        purpose = change.purpose.value.replace("_", " ")
        lines.append(
            f"after {seconds_text(max(0.0, change.start_seconds))} the link for {purpose} with "
            f"{peer} went over to {change.transport.value}: {change.reason}"
        )
    return lines


def drafts_text(done: GenerationDone, plan: Plan) -> str:
    """Who drafted, how much of it was accepted, and the way there."""
    numbers = done.speculation
    if not numbers.proposer_model_id and not numbers.proposers:
        return "no proposer"
    if not numbers.drafted_count:
        node = _node(numbers.proposer_node_id, plan)
        return f"{numbers.proposer_model_id} on {node} drafted nothing"
    # Nodes that do not tell who drafted what had one proposer a generation.
    counts = [
        (each.model_id, each.node_id, each.accepted_count, each.drafted_count)
        for each in numbers.proposers
    ] or [
        (
            numbers.proposer_model_id,
            numbers.proposer_node_id,
            numbers.accepted_count,
            numbers.drafted_count,
        )
    ]
    drafted = ", ".join(
        f"{model} on {_node(node_id, plan)}: {accepted} of {drafted} drafted accepted "
        f"({share_text(accepted, drafted)})"
        for model, node_id, accepted, drafted in counts
    )
    return (
        f"{drafted}, round trip p50 {seconds_text(numbers.round_trip_seconds_p50)} "
        f"p99 {seconds_text(numbers.round_trip_seconds_p99)}"
    )


def _node(node_id: str, plan: Plan) -> str:
    """The node's name where the plan knows it, else the beginning of its id."""
    placements = (plan.proposer, *(trial.proposer for trial in plan.trials))
    names = {each.node_id: each.node_name for each in placements if each is not None}
    return names.get(node_id, node_id[:12])


def fault_lines(done: GenerationDone) -> list[str]:
    """What the proposer did wrong, and why it was dropped; empty when nothing happened."""
    lines = [_fault_line(fault) for fault in done.speculation.faults]
    if done.speculation.drop_reason is not None:
        why = _DROPPED[done.speculation.drop_reason]
        lines.append(f"the proposer was dropped: {why}; the verifier went on alone")
    return lines


def _fault_line(fault: DraftFault) -> str:
    reason = fault.reason.value.replace("_", " ")
    times = "once" if fault.count == 1 else f"{fault.count} times"
    return f"fault of the proposer: {reason}, {times}"
