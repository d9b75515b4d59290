"""Which archives can keep what a session evicts, in the order in which to ask them.

Those with room first, by their free memory; of them the nearest by the measured
round trip: every layer of every forward waits for it. A node's own comes after the
others, since its memory is what the session was to save; last, where a session was asked
to be restored, are nodes that are suspect: they may only be slow to answer, and are better
than nobody.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from kakeya_fleet.fleet.cards.address import parse_address
from kakeya_fleet.fleet.cards.card import PROTOCOL_MAX, PROTOCOL_MIN, ArchiveOffer, Card
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.quantities import bytes_text
from kakeya_fleet.fleet.views.node_view import NodeView


@dataclass(frozen=True, slots=True)
class ArchiveRequest:
    """What a session needs of an archive.

    `node_id` names one, empty for any. An archive must have the capacity for
    `needed_bytes`; those that have them free are asked first. `arithmetic` is that of
    the archive that was lost, empty for any: the bits of another's would not be the
    session's. `takes_suspects`: nodes that are suspect are asked too, but those of `lost`,
    on which the session has lost an archive. `distrusted` are nodes whose archives gave
    wrong numbers, each with the end of a sentence that says which.
    """

    self_id: str
    node_id: str = ""
    needed_bytes: int = 0
    arithmetic: str = ""
    takes_suspects: bool = False
    lost: frozenset[str] = frozenset()
    distrusted: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArchiveCandidate:
    """An archive that can be asked; `address` is host:port of its own service.

    `round_trip_seconds` is None while unmeasured, `is_own` tells whether it is on the
    verifier's node.
    """

    node_id: str
    node_name: str
    address: str
    round_trip_seconds: float | None
    reason: str
    free_bytes: int = 0
    is_own: bool = False


LEAST_POSITIONS = 256
"""Evicted positions for which an archive must have room, or it is of no use."""


@dataclass(frozen=True, slots=True)
class ArchiveChoice:
    """Archives in the order in which to ask them, and a sentence for each that is not asked."""

    candidates: tuple[ArchiveCandidate, ...]
    objections: tuple[str, ...]


def choose_archives(
    request: ArchiveRequest,
    nodes: Sequence[NodeView],
    address: Callable[[str], str | None],
    round_trip: Callable[[str], float | None],
    free_bytes: Mapping[str, int] = MappingProxyType({}),
) -> ArchiveChoice:
    """All archives that can be asked, the best first; the order of `nodes` plays no part.

    `address` gives host:port of a node's own service, `round_trip` seconds to another
    node, None while unmeasured; `free_bytes` by node counts in place of the cards'.
    """
    found: list[tuple[tuple[bool, bool, bool, float, str], ArchiveCandidate]] = []
    objections: list[str] = []
    for view in sorted(nodes, key=lambda view: view.card.node_id):
        card = view.card
        if card.archive is None:
            continue
        at = address(card.node_id)
        objection = _objection(request, view, at)
        if objection is not None or at is None:
            objections.append(objection or f"No address of {card.name} is known.")
            continue
        is_self = card.node_id == request.self_id
        seconds = 0.0 if is_self else round_trip(card.node_id)
        candidate = ArchiveCandidate(
            node_id=card.node_id,
            node_name=card.name,
            address=archive_address(at, card.archive),
            round_trip_seconds=seconds,
            reason=_reason(card, seconds, is_self=is_self) + _doubt(view),
            free_bytes=free_bytes.get(card.node_id, card.archive.free_bytes),
            is_own=is_self,
        )
        lacks_room = candidate.free_bytes < request.needed_bytes
        way = math.inf if seconds is None else seconds
        rank = (view.liveness is Liveness.SUSPECT, lacks_room, is_self, way, card.node_id)
        found.append((rank, candidate))
    found.sort(key=lambda pair: pair[0])
    return ArchiveChoice(tuple(candidate for _, candidate in found), tuple(objections))


def _objection(request: ArchiveRequest, view: NodeView, address: str | None) -> str | None:
    card = view.card
    archive = card.archive
    if request.node_id not in ("", card.node_id):
        return f"The request names the archive of node {request.node_id[:12]}, not {card.name}."
    if view.liveness.is_tombstone or (
        view.liveness is Liveness.SUSPECT
        and (not request.takes_suspects or card.node_id in request.lost)
    ):
        return f"{card.name} is {view.liveness.name.lower()}."
    if card.node_id in request.distrusted:
        return f"The archive of {card.name} {request.distrusted[card.node_id]}."
    if card.protocol_min > PROTOCOL_MAX or card.protocol_max < PROTOCOL_MIN:
        return f"{card.name} speaks protocol {card.protocol_min} to {card.protocol_max}."
    if address is None or archive is None:
        return f"No address of {card.name} is known."
    if archive.capacity_bytes < request.needed_bytes:
        return (
            f"The archive of {card.name} has {bytes_text(archive.capacity_bytes)}, "
            f"{bytes_text(request.needed_bytes)} are needed."
        )
    if request.arithmetic not in ("", archive.arithmetic):
        return (
            f"The archive of {card.name} computes with {archive.arithmetic}, the session's "
            f"was made with {request.arithmetic}: its bits would be others."
        )
    return None


def _reason(card: Card, seconds: float | None, *, is_self: bool) -> str:
    if is_self:
        return (
            f"What is evicted stays in the memory of {card.name} itself, which serves the "
            "verifier: no other node has an archive with room."
        )
    if seconds is None:
        return f"What is evicted goes to {card.name}, the way there is not measured."
    return f"What is evicted goes to {card.name}, round trip {seconds * 1e3:.2f} ms."


def _doubt(view: NodeView) -> str:
    if view.liveness is not Liveness.SUSPECT:
        return ""
    return f" {view.card.name} is suspect, and no other node has an archive with room."


def archive_address(node_address: str, offer: ArchiveOffer) -> str:
    """host:port of the archive on the node that answers at `node_address`."""
    host, _ = parse_address(node_address)
    return f"[{host}]:{offer.port}" if ":" in host else f"{host}:{offer.port}"
