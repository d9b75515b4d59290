"""What the control plane says, between the wire and the domain; cards apart."""

from __future__ import annotations

from collections.abc import Iterable

from kakeya.v1 import capability_pb2
from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.membership.digest import LAST_KEY, DigestEntry, DigestPart
from kakeya_fleet.node.membership.card_wire import card_to_wire
from kakeya_fleet.node.membership.fleet_watch import Change, NodeState, Removed
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.trust.statement_wire import ROLES

_LIVENESSES = {liveness.value: liveness for liveness in Liveness}


def rumours_to_wire(rumours: Iterable[Rumour]) -> list[capability_pb2.Rumour]:
    """The messages of statements."""
    return [
        capability_pb2.Rumour(
            node_id=rumour.node_id,
            incarnation=rumour.incarnation,
            liveness=rumour.liveness.value,  # type: ignore[arg-type]  # the enum's own numbers
            signature=rumour.signature,
        )
        for rumour in rumours
    ]


def rumours_from_wire(
    messages: Iterable[capability_pb2.Rumour], metrics: NodeMetrics
) -> tuple[Rumour, ...]:
    """The statements; one whose liveness or node id is none is skipped and counted."""
    rumours = []
    for message in messages:
        liveness = liveness_from_wire(message.liveness)
        if liveness is None:
            metrics.rumours_skipped.labels(rule="UNKNOWN_LIVENESS").inc()
        elif not is_node_id(message.node_id):
            metrics.rumours_skipped.labels(rule="BAD_NODE_ID").inc()
        else:
            rumours.append(
                Rumour(message.node_id, message.incarnation, liveness, message.signature)
            )
    return tuple(rumours)


def digest_to_wire(entries: Iterable[DigestEntry]) -> list[capability_pb2.DigestEntry]:
    """The messages of a digest."""
    return [
        capability_pb2.DigestEntry(
            node_key=entry.node_key,
            incarnation=entry.incarnation,
            sequence=entry.sequence,
            card_hash=entry.card_hash,
            liveness_incarnation=entry.liveness_incarnation,
            liveness=entry.liveness.value,  # type: ignore[arg-type]
        )
        for entry in entries
    ]


def digest_from_wire(answer: capability_pb2.ExchangeCapabilitiesResponse) -> DigestPart | None:
    """The digest without the entries whose liveness is not known here; None without any."""
    if not answer.digest:
        return None
    entries = []
    for message in answer.digest:
        liveness = liveness_from_wire(message.liveness)
        if liveness is not None:
            entries.append(
                DigestEntry(
                    node_key=message.node_key,
                    incarnation=message.incarnation,
                    sequence=message.sequence,
                    card_hash=message.card_hash,
                    liveness_incarnation=message.liveness_incarnation,
                    liveness=liveness,
                )
            )
    return DigestPart(tuple(entries), answer.digest_first_key, answer.digest_last_key or LAST_KEY)


def liveness_from_wire(number: int) -> Liveness | None:
    """The liveness of a number of the contract, None for any other."""
    return _LIVENESSES.get(number)


def is_node_id(text: str) -> bool:
    """Whether the text is a SHA-256, hexadecimal in lower case."""
    return len(text) == 64 and all(character in "0123456789abcdef" for character in text)


def state_to_wire(state: NodeState) -> capability_pb2.NodeStatus:
    """The message of one node's state."""
    card = (
        card_to_wire(state.card)
        if state.card is not None
        else capability_pb2.CapabilityCard(node_id=state.node_id)
    )
    return capability_pb2.NodeStatus(
        card=card,
        liveness=state.liveness.value,  # type: ignore[arg-type]
        age_seconds=state.age_seconds,
        round_trip_seconds=state.round_trip_seconds,
        is_self=state.is_self,
        withheld_roles=sorted(ROLES[role] for role in state.withheld_roles),
    )


def change_to_wire(change: Change) -> capability_pb2.WatchFleetResponse:
    """The message of one change."""
    if isinstance(change, Removed):
        return capability_pb2.WatchFleetResponse(removed_node_id=change.node_id)
    return capability_pb2.WatchFleetResponse(changed=state_to_wire(change))
