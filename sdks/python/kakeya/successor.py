"""A session that was lost, opened anew: on another node, or on its own when that is back."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from kakeya.connection import Connection
from kakeya.errors import (
    ArchiveFull,
    Draining,
    GroupLost,
    KakeyaError,
    ModelLoading,
    ModelNotFound,
    NoArchive,
    NodeNotFound,
    NoPlacement,
    SessionNotFound,
    TransportError,
    UnexpectedError,
)
from kakeya.generated import wire
from kakeya.generated.values import Liveness, ModelOffer, Role
from kakeya.place import MAX_APPEND_TOKENS, Place, open_session
from kakeya.roster import Roster
from kakeya.v1 import runtime_pb2
from kakeya.watch_values import NodeStatus

LOST = (TransportError, Draining, GroupLost, SessionNotFound)
"""The session is gone, or its node is, or is going: it must be opened anew."""

NOBODY_YET = (NoPlacement, TransportError, Draining, ModelNotFound, ModelLoading)
"""What nodes and the network say while the one that could go on is being started."""


@dataclass(frozen=True, slots=True)
class Opening:
    """How a session was asked for, and who else could serve it."""

    request: runtime_pb2.CreateSessionRequest
    roster: Roster
    traceparent: str = ""


async def succeed(
    lost: Place, opening: Opening, history: Sequence[int], *, forgotten: bool = False
) -> Place:
    """The session at `lost`, opened anew on a live node, with the same history.

    The node must serve the same weights. Nodes that compute alike, by number format,
    back end, arithmetic and threads of a forward, come first, then those alike but for the
    threads, then those alike but for the arithmetic, alive ones before suspects, then the
    nearest. The node that had
    the session is asked before all others when it has `forgotten` it, else not at all.
    Keys and values are kept there as they were, also where the first node chose how.
    Raises the error of the last node that was tried, and NoPlacement when there is none
    to try.
    """
    offer = wire.model_offer(lost.opened.model)
    nodes = await opening.roster.nodes(lost.connection.address)
    failure: KakeyaError = NoPlacement(
        f"no {'' if forgotten else 'other '}live node serves {offer.model_id} with the same "
        "weights: start a second verifier, or wait for this one",
        metadata={"weights_digest": offer.weights_digest},
    )
    opening = _kept_alike(lost, opening)

    def way(node: NodeStatus) -> str:
        # The node that had it was called already, whichever of its ports others are told of.
        known = lost.connection.address if _had_it(node, lost) else ""
        return opening.roster.ways.to(node) or known

    candidates = _candidates([node for node in nodes if way(node)], offer)
    # Sorting is stable: the others keep their order.
    candidates.sort(key=lambda pair: not _had_it(pair[0], lost))
    for node, there in candidates:
        if _had_it(node, lost) and not forgotten:
            continue
        try:
            there_opening = replace(opening, traceparent=lost.traceparent)
            connection = opening.roster.connection(way(node), node.node_id)
            return await _open_there(connection, there.model_id, offer, there_opening, history)
        except KakeyaError as error:
            failure = error
    raise failure


def _kept_alike(lost: Place, opening: Opening) -> Opening:
    """The opening with the lost session's strategy and codec: another's stream would differ."""
    request = runtime_pb2.CreateSessionRequest()
    request.CopyFrom(opening.request)
    # Nodes of an earlier version do not tell.
    request.kv_strategy = lost.opened.kv_strategy or request.kv_strategy
    if lost.opened.codec:
        request.restorer.codec = lost.opened.codec
    return replace(opening, request=request)


def _had_it(node: NodeStatus, lost: Place) -> bool:
    node_id = lost.opened.plan.verifier.node_id
    here = (node.address, node.applications_address)
    return lost.connection.address in here or (node_id != "" and node.node_id == node_id)


def _numbers(offer: ModelOffer) -> tuple[str, str, str]:
    """What equal weights are taken as."""
    return offer.dtype, offer.backend, offer.quantization


def _candidates(
    nodes: Sequence[NodeStatus], offer: ModelOffer
) -> list[tuple[NodeStatus, ModelOffer]]:
    def rank(pair: tuple[NodeStatus, ModelOffer]) -> tuple[bool, bool, bool, bool, float]:
        node, there = pair
        other_numbers = _numbers(there) != _numbers(offer)
        # Last bits of logits, which seldom decide a token: never worth another number format.
        other_arithmetic = there.arithmetic != offer.arithmetic
        # Still more seldom of influence on a bit.
        other_threads = there.thread_count != offer.thread_count
        suspect = node.liveness is not Liveness.ALIVE
        distance = node.round_trip_seconds or 0.0
        return other_numbers, other_arithmetic, other_threads, suspect, distance

    serving = [
        (node, there)
        for node in nodes
        if node.liveness in (Liveness.ALIVE, Liveness.SUSPECT)
        for there in node.models
        if there.role is Role.VERIFIER
        and offer.weights_digest
        and there.weights_digest == offer.weights_digest
    ]
    return sorted(serving, key=rank)


async def _open_there(
    connection: Connection,
    model_id: str,
    offer: ModelOffer,
    opening: Opening,
    history: Sequence[int],
) -> Place:
    place = await _open_as_far_as_possible(connection, opening, model_id, history)
    try:
        if place.opened.model.weights_digest != offer.weights_digest:
            raise UnexpectedError(
                f"{connection.address} serves {model_id} with other weights than its card says"
            )
        for start in range(place.opened.history_length, len(history), MAX_APPEND_TOKENS):
            await place.append(history[start : start + MAX_APPEND_TOKENS], start, 0)
    except KakeyaError:
        with suppress(KakeyaError):
            await place.close(connection.timeouts.leave)
        raise
    return place


async def _open_as_far_as_possible(
    connection: Connection,
    opening: Opening,
    model_id: str,
    history: Sequence[int],
) -> Place:
    """Opens what was asked for, but for named helpers that are lost too.

    A proposer and an archive's place never change a token: a named one that cannot be
    had any more gives way to any other, and a fixed proposer at last to the planner.
    """
    request = runtime_pb2.CreateSessionRequest()
    request.CopyFrom(opening.request)
    request.model_id = model_id
    while True:
        request.request_id = secrets.token_hex(16)
        try:
            return await open_session(connection, request, history, opening.traceparent)
        except (NoPlacement, ModelNotFound, NodeNotFound):
            if request.speculation.proposer_node_id:
                request.speculation.proposer_node_id = ""
            elif request.speculation.mode == runtime_pb2.SPECULATION_MODE_FIXED:
                request.speculation.Clear()
            else:
                raise
        except (NoArchive, ArchiveFull):
            if not request.restorer.node_id:
                raise
            request.restorer.node_id = ""
