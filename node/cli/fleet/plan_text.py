"""A plan in words: the pair, the prediction, the reasons, what was rejected and why."""

from __future__ import annotations

from kakeya import Placement, Plan, Rejection, RejectionReason
from kakeya_fleet.node.cli.terminal.quantities import (
    bytes_text,
    ratio_text,
    seconds_text,
    speed_text,
)


def plan_lines(plan: Plan) -> list[str]:
    """The plan, line by line; headings stand at the margin."""
    lines = [f"  verifier     {_place(plan.verifier)}", f"  proposer     {_proposer(plan)}"]
    if plan.proposer is not None:
        transport = plan.transport.value if plan.transport else "-"
        lines += [
            f"  transport    {transport}, round trip {seconds_text(plan.round_trip_seconds)}",
            f"  block size   {plan.block_size} drafted tokens",
            f"  acceptance   {plan.acceptance_rate:.2f}{_acceptances(plan)} a drafted token, "
            + ("measured" if plan.acceptance_measured else "assumed"),
        ]
    if _may_change_tokens(plan):
        lines += [
            f"  WARNING      not exact: drafts can change tokens of {plan.verifier.model_id} "
            f"on {plan.verifier.node_name}"
        ]
    waits = ", with the archive" if plan.archives else ""
    lines += [f"  predicted    {prediction_text(plan)}{waits}"]
    if plan.proposer is not None and plan.acceptance_rate_high:
        lines += [f"               {_speeds(plan)}"]
    kept = f", {plan.kv_strategy.value}" if plan.kv_strategy is not None else ""
    lines += [f"  K/V          {bytes_text(plan.kv_bytes)} at most{kept}"]
    lines += [
        f"  {'will try' if index == 0 else '':<12} {_place(each.proposer)}: up to "
        f"{speed_text(each.predicted_tokens_per_second_high)}"
        for index, each in enumerate(plan.trials)
    ]
    lines += _archive_lines(plan)
    lines += [f"  tokens go to {readers_text(plan)}"]
    if plan.reasons:
        lines += ["why", *(f"  - {reason}" for reason in plan.reasons)]
    if plan.rejections:
        lines += ["rejected", *(line for each in plan.rejections for line in _rejected(each))]
    return lines


def _archive_lines(plan: Plan) -> list[str]:
    """Where the evicted positions go; their ranges when several archives share them."""
    if plan.archive is None:
        return []
    if len(plan.archives) < 2:
        return [f"  archive      {plan.archive.node_name} ({plan.archive.address})"]
    return [
        f"  {'archives' if index == 0 else '':<12} {each.archive.node_name} "
        f"({each.archive.address}), {positions_text(each.first_position, each.end_position)}"
        for index, each in enumerate(plan.archives)
    ]


def readers_text(plan: Plan) -> str:
    """The machines that see a session's tokens, and those from whose keys they could be had.

    Nobody else is sent any of a session, but whoever goes on with it once its verifier is lost.
    """
    places = [plan.verifier, plan.proposer, *(each.proposer for each in plan.trials)]
    readers = dict.fromkeys(place.node_name for place in places if place is not None)
    archives: list[Placement | None] = [each.archive for each in plan.archives]
    archives = archives or [plan.archive]
    keepers = dict.fromkeys(place.node_name for place in archives if place is not None)
    told = ", ".join(readers)
    if keepers:
        told += f"; keys and values of what is evicted to {', '.join(keepers)}"
    return told


def positions_text(first: int, end: int) -> str:
    """`positions 0 to 8,191`, of a range that ends before `end`."""
    return f"positions {first:,} to {end - 1:,}"


def prediction_text(plan: Plan) -> str:
    """`412 tok/s, 2.30x the verifier alone (179 tok/s)`; alone, its own speed."""
    speed, alone = plan.predicted_tokens_per_second, plan.predicted_alone_tokens_per_second
    if plan.proposer is None:
        return f"{speed_text(speed or alone)}, alone"
    return (
        f"{speed_text(speed)}, {ratio_text(speed, alone)} the verifier alone ({speed_text(alone)})"
    )


def pair_text(plan: Plan) -> str:
    """`tiny on mini-1, drafts by ngram on mini-2`, and whether that is not exact."""
    verifier = f"{plan.verifier.model_id} on {plan.verifier.node_name}"
    if plan.archive is not None:
        names = [each.archive.node_name for each in plan.archives] or [plan.archive.node_name]
        verifier += f", evicted positions on {' and '.join(names)}"
    if plan.proposer is None:
        return f"{verifier}, alone"
    pair = f"{verifier}, drafts by {plan.proposer.model_id} on {plan.proposer.node_name}"
    return f"{pair} (not exact: drafts can change tokens)" if _may_change_tokens(plan) else pair


def _acceptances(plan: Plan) -> str:
    """The range of the acceptance; nothing from nodes that do not tell."""
    low, high = plan.acceptance_rate_low, plan.acceptance_rate_high
    return f" ({low:.2f} to {high:.2f})" if high else ""


def _speeds(plan: Plan) -> str:
    low, high = plan.predicted_tokens_per_second_low, plan.predicted_tokens_per_second_high
    return f"{speed_text(low)} to {speed_text(high)} in four of five sessions"


def _may_change_tokens(plan: Plan) -> bool:
    return plan.proposer is not None and not plan.exact


def _proposer(plan: Plan) -> str:
    if plan.proposer is None:
        return "none: the verifier decodes alone"
    return _place(plan.proposer) + (", on trial" if plan.exploring else "")


def _place(place: Placement) -> str:
    return f"{place.model_id} on {place.node_name} ({place.address})"


def _rejected(rejection: Rejection) -> list[str]:
    if rejection.proposer is None:
        pair = f"{rejection.verifier.model_id} on {rejection.verifier.node_name}"
        if rejection.reason is RejectionReason.SLOWER_THAN_CHOSEN:
            pair += " alone"
    else:
        pair = (
            f"{rejection.proposer.model_id} on {rejection.proposer.node_name} "
            f"for {rejection.verifier.node_name}"
        )
    reason = rejection.reason.value.replace("_", " ")
    return [f"  - {pair}: {reason}", f"    {rejection.explanation}"]
