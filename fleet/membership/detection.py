"""The failure detector: who is called, who is asked to help, and whom this node buries.

A failed exchange asks up to three helpers and calls once more. When nobody reached the
node in this round, this node doubts it, says nothing yet, and begins another round with more
helpers. After `rounds_to_suspicion` in a row it is SUSPECT by this node's own evidence, of which
all are told, and called every period. A death is found as soon as if all had been told at once:
its time begins with the first round.
"""

from __future__ import annotations

from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.membership.awareness import MAX_LAG_SECONDS
from kakeya_fleet.fleet.membership.events import (
    Changed,
    Effect,
    Exchange,
    ProbeOutcome,
    ProbeVia,
)
from kakeya_fleet.fleet.membership.randomness import Randomness, sample
from kakeya_fleet.fleet.membership.state import Call, Membership, Probe
from kakeya_fleet.fleet.membership.suspicion import (
    Doubt,
    Suspicion,
    least_rounds,
    least_seconds,
    rounds_to_suspicion,
    suspicion_seconds,
)

MAX_RECALLS = 3
"""Suspects that are called again each period, besides the exchanges with one peer and one
newcomer: with the second calls, no more than 10 calls a period, whatever cards arrive, and
two for each further round of a doubt, of which those who have answered alone are the subject."""

MORE_HELPERS = 2
"""Times as many helpers again are asked at most, the longer nobody reaches a node."""


def stood_still(state: Membership, late_seconds: float) -> None:
    """Notes that the tick came late: what did not come in that time accuses nobody."""
    state.probes.clear()
    state.doubts.clear()
    for suspicion in state.suspicions.values():
        suspicion.since += late_seconds


def expire(state: Membership, now: float) -> list[Effect]:
    """Ends calls and probes that were never answered, and declares DEAD whose time is over."""
    # Every call is answered in time; one that was not must not keep its node from being called.
    grace_seconds = MAX_LAG_SECONDS + state.settings.period_seconds
    state.calls = {
        node_id: call
        for node_id, call in state.calls.items()
        if now - call.started_at <= call.timeout_seconds + grace_seconds
    }
    effects: list[Effect] = []
    for node_id in [key for key, probe in state.probes.items() if now >= probe.expires_at]:
        effects += _conclude(state, node_id, now)
    return effects + _bury(state, now)


def call_peers(state: Membership, now: float, rng: Randomness) -> list[Effect]:
    """The exchange of this period, and calls to the nodes that are suspect."""
    targets = sample(_to_recall(state, now), MAX_RECALLS, rng)
    # However many cards arrive, those who answered are called as often as without them.
    for visited in (state.peers.visit(rng), state.newcomers.visit(rng)):
        if visited is not None and visited not in targets:
            targets.append(visited)
    return [
        call(state, node_id, now)
        for node_id in targets
        if node_id not in state.calls and node_id not in state.probes
    ]


def call(
    state: Membership, node_id: str, now: float, timeout_seconds: float | None = None
) -> Exchange:
    """Starts an exchange whose failure counts; its time is that of every period by default."""
    timeout = timeout_seconds
    if timeout is None:
        timeout = state.settings.exchange_timeout_seconds * state.awareness.stretch
    state.calls[node_id] = Call(now, timeout)
    return Exchange(node_id, timeout)


def hear_of(state: Membership, node_id: str, now: float) -> None:
    """The node's liveness rose by what others say: SUSPECT, or LEFT by its own word."""
    record = state.registry.record(node_id)
    if record.liveness is Liveness.SUSPECT:
        doubt = state.doubts.pop(node_id, None)
        since = now if doubt is None else doubt.since
        state.suspicions[node_id] = Suspicion(record.version.incarnation, since, doubt)
    else:
        part(state, node_id)


def part(state: Membership, node_id: str) -> None:
    """The node is DEAD or LEFT."""
    state.peers.discard(node_id)
    state.newcomers.discard(node_id)
    state.suspicions.pop(node_id, None)
    state.doubts.pop(node_id, None)
    state.probes.pop(node_id, None)
    state.calls.pop(node_id, None)
    state.ways.pop(node_id, None)


def answered(state: Membership, node_id: str, now: float, rng: Randomness) -> list[Effect]:
    """The node answered this one directly."""
    state.calls.pop(node_id, None)
    state.awareness.answered()
    reached(state, node_id, now, rng)
    return _shown_alive(state, node_id, now)


def reached(state: Membership, node_id: str, now: float, rng: Randomness) -> None:
    """The node answered a call of this one: it is no stranger any more."""
    state.registry.reached(node_id, now)
    if node_id in state.newcomers:
        state.newcomers.discard(node_id)
        state.peers.add(node_id, rng)


def failed(state: Membership, node_id: str, now: float, rng: Randomness) -> list[Effect]:
    """A direct exchange failed: asks helpers and calls once more, then doubts or accuses."""
    ended = state.calls.pop(node_id, None)
    if ended is None or not state.is_live_peer(node_id):
        return []
    if now - ended.started_at > ended.timeout_seconds + MAX_LAG_SECONDS:
        # The timeout itself came late: this node stood still, not the other.
        return []
    own_id = state.registry.own_id
    if node_id in state.probes:
        state.probes[node_id].awaited.discard(own_id)
        return [] if state.probes[node_id].awaited else _conclude(state, node_id, now)
    helpers = _helpers(state, node_id, rng)
    if not helpers:
        return _accuse(state, node_id, now, is_confirmed=True)
    timeout = state.settings.probe_timeout_seconds * state.awareness.stretch
    # ProbeVia may take twice its timeout; a period more, and the events were lost.
    expires_at = now + 2 * timeout + state.settings.period_seconds
    state.probes[node_id] = Probe({own_id, *helpers}, expires_at)
    return [
        call(state, node_id, now),
        *(ProbeVia(node_id, helper, timeout) for helper in helpers),
    ]


def probed(
    state: Membership, node_id: str, via: str, outcome: ProbeOutcome, now: float
) -> list[Effect]:
    """A helper told whether it reached the node, or nothing."""
    probe = state.probes.get(node_id)
    if probe is None or via not in probe.awaited:
        return []
    probe.awaited.discard(via)
    match outcome:
        case ProbeOutcome.REACHED:
            state.ways[node_id] = via
            return _shown_alive(state, node_id, now)
        case ProbeOutcome.UNREACHED:
            probe.unreached_count += 1
        case ProbeOutcome.SILENT:
            state.awareness.helpers_silent(1)
    return [] if probe.awaited else _conclude(state, node_id, now)


def _to_recall(state: Membership, now: float) -> list[str]:
    """Whom this node could not reach, and of whom it heard so and no refutation in time."""
    patience = least_seconds(
        node_count=state.registry.live_count(),
        period_seconds=state.settings.period_seconds,
        stretch=state.awareness.stretch,
    )
    return [
        node_id
        for node_id, suspicion in state.suspicions.items()
        if (suspicion.is_own or now - suspicion.since >= patience)
        and not state.registry.is_stranger(node_id)
    ] + [node_id for node_id in state.doubts if node_id not in state.calls]


def _bury(state: Membership, now: float) -> list[Effect]:
    """Declares those suspects DEAD whom this node itself could not reach in their time."""
    node_count = state.registry.live_count()
    effects: list[Effect] = []
    for node_id, suspicion in list(state.suspicions.items()):
        evidence = suspicion.evidence
        if evidence is None or evidence.round_count < least_rounds(node_count):
            continue
        seconds = suspicion_seconds(
            node_count=node_count,
            confirmation_count=evidence.confirmation_count,
            period_seconds=state.settings.period_seconds,
            stretch=state.awareness.stretch,
        )
        if now - suspicion.since >= seconds:
            effects += _declare(state, node_id, suspicion.incarnation, Liveness.DEAD, now)
    return effects


def _shown_alive(state: Membership, node_id: str, now: float) -> list[Effect]:
    """A sign of life ends a probe, a doubt and own evidence; only the owner refutes a suspicion."""
    state.registry.saw(node_id, now)
    state.probes.pop(node_id, None)
    state.doubts.pop(node_id, None)
    suspicion = state.suspicions.get(node_id)
    if suspicion is not None and suspicion.answered(now):
        return [Changed(node_id)]
    return []


def _helpers(state: Membership, node_id: str, rng: Randomness) -> list[str]:
    """Up to `helper_count` ALIVE peers for each round of a doubt, and who reached it last.

    In a fleet that one node holds together it is the one that can help.
    """

    def is_able(peer: str) -> bool:
        return peer != node_id and state.found(peer) is Liveness.ALIVE

    suspicion = state.suspicions.get(node_id)
    evidence = state.doubts.get(node_id) or (suspicion and suspicion.evidence)
    more = min(evidence.round_count, MORE_HELPERS) if evidence else 0
    helpers = state.peers.sample(state.settings.helper_count * (1 + more), is_able, rng)
    way = state.ways.get(node_id)
    if way is not None and way not in helpers and way in state.peers and is_able(way):
        helpers[0] = way
    return helpers


def _conclude(state: Membership, node_id: str, now: float) -> list[Effect]:
    """No helper reached the node; who has not answered by now is silent."""
    probe = state.probes.pop(node_id)
    state.awareness.helpers_silent(len(probe.awaited - {state.registry.own_id}))
    return _accuse(state, node_id, now, is_confirmed=probe.unreached_count > 0)


def _accuse(state: Membership, node_id: str, now: float, *, is_confirmed: bool) -> list[Effect]:
    """Nobody reached the node: a doubt, and behind a doubt a suspicion."""
    suspicion = state.suspicions.get(node_id)
    if suspicion is not None:
        return [Changed(node_id)] if suspicion.failed(now, is_confirmed=is_confirmed) else []
    doubt = state.doubts.setdefault(node_id, Doubt(now))
    doubt.failed(is_confirmed=is_confirmed)
    if doubt.round_count < rounds_to_suspicion(state.registry.live_count()):
        return [call(state, node_id, now)]
    del state.doubts[node_id]
    incarnation = state.registry.record(node_id).version.incarnation
    state.suspicions[node_id] = Suspicion(incarnation, doubt.since, doubt)
    return _declare(state, node_id, incarnation, Liveness.SUSPECT, now)


def _declare(
    state: Membership, node_id: str, incarnation: int, liveness: Liveness, now: float
) -> list[Effect]:
    if not state.registry.declare(node_id, incarnation, liveness, now):
        return []
    state.hot_rumours.heat(node_id)
    if liveness.is_tombstone:
        part(state, node_id)
    return [Changed(node_id)]
