"""How much of a large fleet one plan looks at, and how much of it a plan tells.

Plan and CreateSession answer with one message, and their work is a product of verifiers and
proposers: what one look costs must not grow with what anybody may announce.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.placement.plan import PlanRequest, Rejection
from kakeya_fleet.fleet.placement.predicted_pair import Server
from kakeya_fleet.fleet.views.node_view import Measurements, NodeView

MAX_SERVERS = 64
"""Of a role that one plan looks at: at most 64 * 65 candidates, 0.1 s."""
MAX_REJECTIONS = 64
"""That one plan tells: 64 * (2 nodes * 4 texts + 1 sentence) of at most 256 to 1,024
characters stay below 256 KiB of a message."""
MAX_NAMED = 8
"""Names and sentences that an error lists, which travels in headers of 8 KiB."""

Served = tuple[NodeView, Server]


def promising(
    servers: Sequence[Served], node_id: str, measured: Measurements
) -> tuple[Served, ...]:
    """Those that a plan looks at, in the given order; all of them in fleets of usual sizes.

    Before others: the node that the request names, living ones, those to which somebody has
    measured a way, since cards of nodes that nobody reached may say anything.
    """
    if len(servers) <= MAX_SERVERS:
        return tuple(servers)
    reached = {there for _, there in measured.round_trips}

    def place(index: int) -> tuple[bool, bool, bool, int]:
        view = servers[index][0]
        card_id = view.card.node_id
        return (
            card_id != node_id,
            view.liveness is not Liveness.ALIVE,
            card_id not in reached,
            index,
        )

    return tuple(
        servers[index] for index in sorted(sorted(range(len(servers)), key=place)[:MAX_SERVERS])
    )


def told(rejections: Sequence[Rejection]) -> tuple[Rejection, ...]:
    """The fastest of them, in the given order."""
    fastest = sorted(
        range(len(rejections)), key=lambda i: (-rejections[i].predicted_tokens_per_second, i)
    )
    return tuple(rejections[index] for index in sorted(fastest[:MAX_REJECTIONS]))


def omission_reasons(
    request: PlanRequest, *, verifier_count: int, proposer_count: int, rejection_count: int
) -> tuple[str, ...]:
    """What a plan leaves out, of what was there; nothing in fleets of usual sizes."""
    reasons = [
        f"Of {count} {role} only the {MAX_SERVERS} nearest were looked at."
        for count, role in (
            (verifier_count, f"verifiers of {request.verifier_model}"),
            (proposer_count, "proposers"),
        )
        if count > MAX_SERVERS
    ]
    if rejection_count > MAX_REJECTIONS:
        reasons.append(
            f"Of {rejection_count} rejected pairings the {MAX_REJECTIONS} fastest are listed."
        )
    return tuple(reasons)


def listed(texts: Iterable[str], separator: str) -> str:
    """The first texts, and how many more there are."""
    every = list(texts)
    more = [f"and {len(every) - MAX_NAMED} more"] if len(every) > MAX_NAMED else []
    return separator.join((*every[:MAX_NAMED], *more))
