"""Where a `restored` session's evicted positions go, and what its steps wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kakeya_fleet.fleet.cards.card import StepCost
from kakeya_fleet.fleet.placement.archive_choice import (
    LEAST_POSITIONS,
    ArchiveCandidate,
    ArchiveChoice,
    ArchiveRequest,
    choose_archives,
)
from kakeya_fleet.fleet.placement.archive_reasons import (
    NO_ARCHIVE,
    choice_reason,
    cost_reason,
    no_room_reasons,
    others_reasons,
)
from kakeya_fleet.fleet.placement.archive_shares import ArchiveShare, share_positions, wait_seconds
from kakeya_fleet.fleet.placement.packing import TILE, packed_sink
from kakeya_fleet.fleet.placement.plan import ArchiveRange, KvStrategy, Placement, PlanRequest
from kakeya_fleet.fleet.placement.predicted_pair import Server
from kakeya_fleet.fleet.views.node_view import Measurements, NodeView


@dataclass(frozen=True, slots=True)
class ArchivePlacement:
    """The archives of a session on one verifier.

    `verifier` has the steps that it takes with them. `archive` is asked first, None
    when there is none; `ranges` are all that the planned context needs, in ascending
    order of positions, empty when they have not the room. `is_measured` tells whether
    all that a step waits for is counted. `reasons` are sentences: the choice, its cost,
    then why not the others, the best of them first.
    """

    verifier: Server
    archive: Placement | None = None
    ranges: tuple[ArchiveRange, ...] = ()
    reasons: tuple[str, ...] = ()
    is_measured: bool = False


def place_archives(
    request: PlanRequest, verifier: Server, nodes: Sequence[NodeView], measured: Measurements
) -> ArchivePlacement:
    """The archives for the planned context; the order of `nodes` plays no part.

    None are placed when the request needs none.
    """
    if request.kv_strategy is not KvStrategy.RESTORED or request.without_archive:
        return ArchivePlacement(verifier)
    choice = _choice(request, verifier, nodes, measured)
    if not choice.candidates:
        return ArchivePlacement(verifier, reasons=(*choice.objections, NO_ARCHIVE))
    context = planned_tokens(request, verifier)
    kept_bytes = _kept_bytes(request, verifier)
    tile = TILE if request.packing is not None else 1
    sink = min(packed_sink(request.sink_tokens, tile), context)
    evicted_end = max(sink, context - request.window_tokens)
    # A session opens its archive before anything is evicted.
    end = max(evicted_end, sink + LEAST_POSITIONS)
    shares = share_positions(choice.candidates, sink, end, kept_bytes)
    if shares is None:
        reasons = no_room_reasons(choice.candidates, verifier, end, kept_bytes)
        return ArchivePlacement(
            verifier,
            archive=_placement(choice.candidates[0]),
            reasons=(*reasons, *choice.objections),
        )
    return _placed(request, verifier, shares, choice, evicts=evicted_end > sink)


def planned_tokens(request: PlanRequest, verifier: Server) -> int:
    """The longest history that is planned for; the model's longest when the request gives none."""
    return request.context_tokens or verifier.offer.context_length


def _kept_bytes(request: PlanRequest, verifier: Server) -> int:
    """Bytes that archives keep of one position."""
    packing, offer = request.packing, verifier.offer
    return offer.kv_bytes_per_token if packing is None else packing.bytes_per_position(offer)


def _placed(
    request: PlanRequest,
    verifier: Server,
    shares: Sequence[ArchiveShare],
    choice: ArchiveChoice,
    *,
    evicts: bool,
) -> ArchivePlacement:
    offer, packing = verifier.offer, request.packing
    kept_bytes = _kept_bytes(request, verifier)
    wait = wait_seconds(shares)
    layers = offer.history_layer_count if evicts else 0
    costs = _restored_costs(offer.step_costs, layers, wait or 0.0)
    ranges = tuple(
        ArchiveRange(_placement(share.candidate), share.first, share.end) for share in shares
    )
    return ArchivePlacement(
        verifier=Server(verifier.card, replace(offer, step_costs=costs)),
        archive=ranges[0].archive,
        ranges=ranges,
        reasons=(
            choice_reason(shares, choice.candidates, kept_bytes),
            *(() if packing is None else (packing.reason(offer.dtype),)),
            cost_reason(verifier, shares, wait, evicts=evicts),
            *others_reasons(choice.candidates, shares, verifier, kept_bytes),
            *choice.objections,
        ),
        is_measured=not evicts or (wait is not None and layers > 0),
    )


def _choice(
    request: PlanRequest, verifier: Server, nodes: Sequence[NodeView], measured: Measurements
) -> ArchiveChoice:
    own_id = verifier.card.node_id
    addresses = {view.card.node_id: view.card.addresses for view in nodes}

    def wait(node_id: str) -> float | None:
        way = (own_id, node_id)
        return measured.archive_waits.get(way, measured.round_trips.get(way))

    return choose_archives(
        ArchiveRequest(
            self_id=own_id,
            node_id=request.archive_node_id,
            needed_bytes=LEAST_POSITIONS * _kept_bytes(request, verifier),
            distrusted={
                node_id: why
                for (verifier_id, node_id), why in measured.distrusted_archives.items()
                if verifier_id == own_id
            },
        ),
        nodes,
        lambda node_id: next(iter(addresses[node_id]), None),
        wait,
        measured.archive_free_bytes,
    )


def _placement(candidate: ArchiveCandidate) -> Placement:
    return Placement(candidate.node_id, candidate.node_name, candidate.address, "")


def _restored_costs(
    costs: Sequence[StepCost], layer_count: int, wait_seconds: float
) -> tuple[StepCost, ...]:
    """Steps of a verifier whose layers wait for an archive, however many tokens a step has.

    Each layer that attends to the whole history sends its queries to the archive and
    cannot go on before the answer is there; what of that is hidden behind the window's
    own attention is too little to count:

        restored step = step + layers * wait

    `wait_seconds` is what layers waited for the latest answers of the archive, their
    median, with what it computed meanwhile; the round trip between the nodes while too
    few were. A step of `full` attends to the same positions on the verifier's own machine:
    how long that takes is not measured when models are loaded, and is not counted.
    """
    added = layer_count * wait_seconds
    return tuple(StepCost(cost.token_count, cost.seconds + added) for cost in costs)
