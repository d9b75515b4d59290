"""Calls to each peer from this machine, and from each peer to the asked node."""

from __future__ import annotations

import asyncio
import time

from kakeya import KakeyaError, NodeStatus, NodeUnreachable, Timeouts, Unimplemented
from kakeya.v1 import capability_pb2
from kakeya_fleet.fleet.diagnosis import reach
from kakeya_fleet.fleet.diagnosis.finding import Finding, not_run, ok
from kakeya_fleet.node.cli.asking.access import Callers
from kakeya_fleet.node.cli.doctor.answers import answer_at
from kakeya_fleet.node.cli.doctor.site import ANSWER_SECONDS, Site

PROBE_SECONDS = 2.0
"""What a peer may wait for the asked node; the peer itself is waited for twice as long."""

_TIMEOUTS = Timeouts(connect=ANSWER_SECONDS, unary=ANSWER_SECONDS)


async def to_peers(site: Site) -> list[Finding]:
    """Calls every address of every peer's card, all at once."""
    missing = _alone(reach.TO_PEERS, site)
    if missing:
        return missing
    callers = Callers(site.address)
    calls = [
        _visit(callers, peer, address)
        for peer in site.peers
        for address in (peer.card.addresses if peer.card else ())
    ]
    return reach.to_peers(await asyncio.gather(*calls), site.unvisited_count)


async def from_peers(site: Site) -> list[Finding]:
    """Has every peer call the asked node, at the address that the peer itself would take."""
    missing = _alone(reach.FROM_PEERS, site)
    if missing or site.node is None:
        return missing
    card, callers = site.node.card, Callers(site.address)
    probes = await asyncio.gather(*(_probe(callers, peer, card.node_id) for peer in site.peers))
    return reach.from_peers(probes, card.name, card.addresses)


def _alone(check: str, site: Site) -> list[Finding]:
    """The line of a site without peers; none when there are some."""
    if site.node is None:
        return [not_run(check, site.absence)]
    if not site.peers:
        return [ok(check, f"{site.node.card.name} knows no other node")]
    return []


async def _visit(callers: Callers, peer: NodeStatus, address: str) -> reach.Visit:
    began = time.monotonic()
    liveness = peer.liveness.value
    try:
        async with callers.client(address, _TIMEOUTS) as client:
            node = await client.fleet.node()
    except Unimplemented:
        return reach.Visit(peer.name, address, reach.Answer.NOT_A_NODE, liveness=liveness)
    except KakeyaError:
        return reach.Visit(peer.name, address, await answer_at(address), liveness=liveness)
    seconds = time.monotonic() - began
    is_it = node.card.node_id == peer.node_id
    answer = reach.Answer.NODE if is_it else reach.Answer.OTHER_NODE
    return reach.Visit(peer.name, address, answer, seconds, liveness)


async def _probe(callers: Callers, peer: NodeStatus, node_id: str) -> reach.Probe:
    connection = callers.connection(peer.address, _TIMEOUTS)
    request = capability_pb2.ProbePeerRequest(node_id=node_id, timeout_seconds=PROBE_SECONDS)
    try:
        answer = await connection.unary(connection.capability.ProbePeer, request, 2 * PROBE_SECONDS)
    except KakeyaError as error:
        if error.reason == "NODE_NOT_FOUND":
            return reach.Probe(peer.name, is_unknown=True)
        did_not = "it does not answer in time"
        fault = did_not if isinstance(error, NodeUnreachable) else error.problem.rstrip(".")
        return reach.Probe(peer.name, fault=fault)
    finally:
        await connection.close()
    return reach.Probe(peer.name, answer.reachable, answer.round_trip_seconds)
