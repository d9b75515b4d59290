"""How a verifier keeps keys and values when the request leaves it open.

`restored` where a live archive has room and the verifier can use it: nothing is
forgotten then. Else `sink_window`, which every verifier has. Room is that for the
model's longest history, whatever context is planned for: a session that did not ask
for an archive must not end because one is full. Nor because one is lost: the verifier
must be able to take over from it, which takes the same arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kakeya_fleet.fleet.placement.archive_placement import ArchivePlacement, place_archives
from kakeya_fleet.fleet.placement.plan import KvStrategy, PlanRequest
from kakeya_fleet.fleet.placement.predicted_pair import Server
from kakeya_fleet.fleet.views.node_view import Measurements, NodeView


@dataclass(frozen=True, slots=True)
class ChosenStrategy:
    """A strategy, and a sentence that says why."""

    strategy: KvStrategy
    reason: str


def choose_kv_strategy(
    request: PlanRequest, verifier: Server, nodes: Sequence[NodeView], measured: Measurements
) -> ChosenStrategy:
    """The strategy on this verifier; the order of `nodes` plays no part."""
    hindrance = _hindrance(request, verifier, nodes, measured)
    if hindrance:
        return ChosenStrategy(
            KvStrategy.SINK_WINDOW, f"Sink and window alone are kept: {hindrance}"
        )
    return ChosenStrategy(
        KvStrategy.RESTORED,
        "What leaves the window is restored: the request does not say how keys and values are "
        "kept, and an archive has room for the model's longest history.",
    )


def _hindrance(
    request: PlanRequest, verifier: Server, nodes: Sequence[NodeView], measured: Measurements
) -> str:
    """Why nothing is restored; empty when something is."""
    offer = verifier.offer
    if offer.rank_count:
        return f"a group of ranks serves {offer.model_id}, and restores nothing."
    if not offer.history_layer_count:
        return (
            f"{verifier.card.name} tells of no layer of {offer.model_id} that sees all of the "
            "history."
        )
    if 0 < offer.context_length <= request.sink_tokens + request.window_tokens:
        return f"the {offer.context_length:,} positions of {offer.model_id} fit into them."
    if request.without_archive:
        return "the request wants no archive."
    longest = replace(
        request,
        kv_strategy=KvStrategy.RESTORED,
        context_tokens=offer.context_length or request.context_tokens,
    )
    archives = place_archives(longest, verifier, nodes, measured)
    if archives.archive is None:
        return (
            "no live node has an archive for what leaves them, which is forgotten; start one with "
            "`fleet join --serve archive=1GiB`."
        )
    if not archives.ranges:
        return (
            "what leaves them is forgotten, since the archives are too small for the model's "
            f"longest history. {archives.reasons[0]} --kv restored begins there all the same."
        )
    return _irreplaceable(archives, verifier, nodes)


def _irreplaceable(archives: ArchivePlacement, verifier: Server, nodes: Sequence[NodeView]) -> str:
    """Which of the archives the verifier could not take over from; empty for none."""
    placed = {each.archive.node_id for each in archives.ranges}
    for view in nodes:
        archive = view.card.archive
        if view.card.node_id not in placed or archive is None:
            continue
        if archive.arithmetic != verifier.offer.evicted_arithmetic:
            return (
                "what leaves them is forgotten, since were the archive of "
                f"{view.card.name} lost, {verifier.card.name} could not take over from it: they "
                "compute differently. --kv restored begins there all the same."
            )
    return ""
