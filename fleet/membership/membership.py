"""Who is in the fleet, and who is alive: SWIM (Das et al. 2002) with Lifeguard.

One step for every event. Once a period: one exchange with the next peer of a
shuffled round-robin; no answer, and up to three helpers are asked to probe it
while it is called once more; nobody reached it, and it is SUSPECT; no refutation in the time of
`fleet.membership.suspicion`, and it is DEAD. The owner refutes by raising its incarnation.
Whoever suspects a node by a probe of its own also calls it every period, so
that it learns of the suspicion first hand.

A two-node fleet takes 4 to 7 s to find a death: up to 1 s to the next exchange,
up to 0.5 s for its timeout, 4 s of suspicion, up to 1 s to the next tick.
"""

from __future__ import annotations

from collections.abc import Sequence

from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.membership.awareness import MAX_LAG_SECONDS
from kakeya_fleet.fleet.membership.clone_watch import Verdict
from kakeya_fleet.fleet.membership.events import (
    AddressFound,
    Changed,
    CloneFound,
    DialAddress,
    Effect,
    Event,
    Exchange,
    ExchangeFailed,
    ExchangeSucceeded,
    Heard,
    Leaving,
    OwnCardChanged,
    ProbeDone,
    ProbeOutcome,
    ProbeVia,
    ReceivedCard,
    Refute,
    Removed,
    Skipped,
    Tick,
)
from kakeya_fleet.fleet.membership.randomness import Randomness, sample
from kakeya_fleet.fleet.membership.registry import MergeResult, RumourResult
from kakeya_fleet.fleet.membership.state import MAX_SEEDS, Call, Membership, Probe
from kakeya_fleet.fleet.membership.suspicion import Suspicion, suspicion_seconds

__all__ = ["Membership", "step"]

# Own suspicions that are called again each period, besides the regular exchange.
MAX_RECALLS = 3
# Peers that are told at once when this node leaves.
FAREWELLS = 3


def step(state: Membership, event: Event, now: float, rng: Randomness) -> tuple[Effect, ...]:
    """Changes `state` by one event and returns what to do, in order.

    `now` is in seconds on a monotonic clock. The same state, event, time and
    randomness give the same result; nothing else is read.
    """
    match event:
        case Tick():
            return tuple(_tick(state, now, rng))
        case Heard(sender_id, cards, rumours, now_unix):
            effects = _merge(state, sender_id, cards, rumours, (now, now_unix), rng)
            state.registry.saw(sender_id, now)
        case ExchangeSucceeded(node_id, cards, rumours, now_unix):
            effects = _merge(state, node_id, cards, rumours, (now, now_unix), rng)
            _answered(state, node_id, now)
        case ExchangeFailed(node_id):
            effects = _failed(state, node_id, now, rng)
        case ProbeDone(node_id, via, outcome):
            effects = _probed(state, node_id, via, outcome, now)
        case OwnCardChanged(signed):
            effects = []
            if state.registry.replace_own(signed, now):
                state.hot_cards.heat(state.registry.own_id)
                effects.append(Changed(state.registry.own_id))
        case AddressFound(address):
            effects = _found(state, address)
        case Leaving(signature):
            effects = _leave(state, signature, now, rng)
    return tuple(effects)


def _tick(state: Membership, now: float, rng: Randomness) -> list[Effect]:
    late = 0.0
    if state.ticked_at is not None:
        late = max(0.0, now - state.ticked_at - state.settings.period_seconds)
    state.ticked_at = now
    if state.awareness.ticked(late):
        # This node stood still: what did not come in that time accuses nobody.
        state.probes.clear()
        for suspicion in state.suspicions.values():
            suspicion.since += late
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
    effects += _bury(state, now)
    for node_id in state.registry.forget_tombstones(now, state.settings.tombstone_seconds):
        state.hot_cards.cool(node_id)
        state.hot_rumours.cool(node_id)
        effects.append(Removed(node_id))
    if not state.is_leaving:
        effects += _call(state, now, rng)
        effects += _dial(state, now, rng)
    return effects


def _bury(state: Membership, now: float) -> list[Effect]:
    """Declares the suspects DEAD whose time is over."""
    node_count = state.registry.live_count()
    effects: list[Effect] = []
    for node_id, suspicion in list(state.suspicions.items()):
        seconds = suspicion_seconds(
            node_count=node_count,
            confirmation_count=suspicion.confirmation_count,
            period_seconds=state.settings.period_seconds,
            stretch=state.awareness.stretch,
        )
        if now - suspicion.since >= seconds:
            effects += _declare(state, node_id, suspicion.incarnation, Liveness.DEAD, now)
    return effects


def _call(state: Membership, now: float, rng: Randomness) -> list[Effect]:
    """The exchange of this period, and calls to the nodes that this one suspects."""
    own = [node_id for node_id, suspicion in state.suspicions.items() if suspicion.is_own]
    targets = sample(own, MAX_RECALLS, rng)
    visited = state.peers.visit(rng)
    if visited is not None and visited not in targets:
        targets.append(visited)
    effects: list[Effect] = []
    for node_id in targets:
        if node_id in state.calls or node_id in state.probes:
            continue
        effects.append(_exchange(state, node_id, now))
    return effects


def _dial(state: Membership, now: float, rng: Randomness) -> list[Effect]:
    """One dead or seed peer every `dial_seconds`; every period while alone."""
    pause = state.settings.dial_seconds if len(state.peers) else state.settings.period_seconds
    # Half a period of tolerance, as ticks come at multiples of the period only.
    pause -= state.settings.period_seconds / 2
    if state.dialled_at is not None and now - state.dialled_at < pause:
        return []
    state.dialled_at = now
    timeout = state.settings.exchange_timeout_seconds * state.awareness.stretch
    choices: list[Effect] = [
        Exchange(record.signed.card.node_id, timeout)
        for record in state.registry.records()
        if record.liveness is Liveness.DEAD
    ]
    known = _live_addresses(state)
    choices += [DialAddress(seed, timeout) for seed in state.seeds if seed not in known]
    if not choices:
        return []
    return [choices[int(rng.random() * len(choices))]]


def _found(state: Membership, address: str) -> list[Effect]:
    """Keeps a new address and calls it at once; the oldest make way."""
    if address in state.seeds:
        return []
    state.seeds.append(address)
    del state.seeds[:-MAX_SEEDS]
    if address in _live_addresses(state) or state.is_leaving:
        return []
    timeout = state.settings.exchange_timeout_seconds * state.awareness.stretch
    return [DialAddress(address, timeout)]


def _live_addresses(state: Membership) -> set[str]:
    """Addresses of the nodes that are not DEAD or LEFT, this one's included."""
    return {
        address
        for record in state.registry.records()
        if not record.liveness.is_tombstone
        for address in record.signed.card.addresses
    }


def _merge(
    state: Membership,
    sender_id: str,
    cards: Sequence[ReceivedCard],
    rumours: Sequence[Rumour],
    times: tuple[float, float],
    rng: Randomness,
) -> list[Effect]:
    """Cards first: a rumour counts only about a card that is held."""
    now, now_unix = times
    merged = state.registry.merge_cards(cards, now=now, now_unix=now_unix)
    told = state.registry.merge_rumours(rumours, now)
    for node_id in merged.merged:
        state.hot_cards.heat(node_id)
        _welcome(state, node_id, rng)
    for node_id in told.merged:
        state.hot_rumours.heat(node_id)
        record = state.registry.record(node_id)
        if record.liveness is Liveness.SUSPECT:
            state.suspicions[node_id] = Suspicion(record.version.incarnation, now, is_own=False)
        else:
            _part(state, node_id)
    effects: list[Effect] = [
        Changed(node_id) for node_id in dict.fromkeys(merged.merged + told.merged)
    ]
    effects += [CloneFound(node_id, must_yield=False) for node_id in merged.clones]
    effects += _defend(state, merged, told)
    if merged.skipped or told.skipped:
        effects.append(Skipped(sender_id, merged.skipped, told.skipped))
    return effects


def _welcome(state: Membership, node_id: str, rng: Randomness) -> None:
    """A newer card of the node was merged."""
    if not state.is_live_peer(node_id):
        return
    state.peers.add(node_id, rng)
    if state.registry.liveness(node_id) is Liveness.ALIVE:
        state.suspicions.pop(node_id, None)


def _part(state: Membership, node_id: str) -> None:
    """The node is DEAD or LEFT."""
    state.peers.discard(node_id)
    state.suspicions.pop(node_id, None)
    state.probes.pop(node_id, None)
    state.calls.pop(node_id, None)
    state.ways.pop(node_id, None)


def _defend(state: Membership, merged: MergeResult, told: RumourResult) -> list[Effect]:
    """Answers cards under the own key that are not this process's, and accusations."""
    own = state.registry.own
    effects: list[Effect] = []
    needed = own.card.incarnation + 1 if told.accused else -1
    for heard in merged.own:
        verdict = state.clone_watch.judge(own, heard)
        is_same_life = heard.card.incarnation == own.card.incarnation
        if verdict is Verdict.YIELD or is_same_life:
            must_yield = verdict is Verdict.YIELD
            effects.append(CloneFound(own.card.node_id, must_yield=must_yield))
        if verdict is Verdict.RISE:
            needed = max(needed, heard.card.incarnation + 1)
    if needed > state.rising_to and not state.is_leaving:
        state.rising_to = needed
        effects.append(Refute(needed))
    return effects


def _answered(state: Membership, node_id: str, now: float) -> None:
    """The node answered this one directly."""
    state.calls.pop(node_id, None)
    state.awareness.answered()
    _shown_alive(state, node_id, now)


def _shown_alive(state: Membership, node_id: str, now: float) -> None:
    """A sign of life ends a probe and puts a suspicion off; only the owner refutes it."""
    state.registry.saw(node_id, now)
    state.probes.pop(node_id, None)
    if node_id in state.suspicions:
        state.suspicions[node_id].restart(now)


def _failed(state: Membership, node_id: str, now: float, rng: Randomness) -> list[Effect]:
    """A direct exchange failed: asks helpers and calls once more, then accuses."""
    call = state.calls.pop(node_id, None)
    if call is None or not state.is_live_peer(node_id):
        return []
    if now - call.started_at > call.timeout_seconds + MAX_LAG_SECONDS:
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
        _exchange(state, node_id, now),
        *(ProbeVia(node_id, helper, timeout) for helper in helpers),
    ]


def _helpers(state: Membership, node_id: str, rng: Randomness) -> list[str]:
    """Up to `helper_count` ALIVE peers, with the one that reached the node last.

    In a fleet that one node holds together it is the one that can help.
    """
    able = [
        record.signed.card.node_id
        for record in state.registry.records()
        if record.liveness is Liveness.ALIVE
    ]
    able = [peer for peer in able if peer not in (node_id, state.registry.own_id)]
    helpers = sample(able, state.settings.helper_count, rng)
    way = state.ways.get(node_id)
    if way in able and way not in helpers:
        helpers[0] = way
    return helpers


def _exchange(state: Membership, node_id: str, now: float) -> Exchange:
    """Starts a call whose failure counts."""
    timeout = state.settings.exchange_timeout_seconds * state.awareness.stretch
    state.calls[node_id] = Call(now, timeout)
    return Exchange(node_id, timeout)


def _probed(
    state: Membership, node_id: str, via: str, outcome: ProbeOutcome, now: float
) -> list[Effect]:
    probe = state.probes.get(node_id)
    if probe is None or via not in probe.awaited:
        return []
    probe.awaited.discard(via)
    match outcome:
        case ProbeOutcome.REACHED:
            _shown_alive(state, node_id, now)
            state.ways[node_id] = via
            return []
        case ProbeOutcome.UNREACHED:
            probe.unreached_count += 1
        case ProbeOutcome.SILENT:
            state.awareness.helpers_silent(1)
    return [] if probe.awaited else _conclude(state, node_id, now)


def _conclude(state: Membership, node_id: str, now: float) -> list[Effect]:
    """No helper reached the node; who has not answered by now is silent."""
    probe = state.probes.pop(node_id)
    state.awareness.helpers_silent(len(probe.awaited - {state.registry.own_id}))
    return _accuse(state, node_id, now, is_confirmed=probe.unreached_count > 0)


def _accuse(state: Membership, node_id: str, now: float, *, is_confirmed: bool) -> list[Effect]:
    record = state.registry.record(node_id)
    suspicion = state.suspicions.get(node_id)
    if suspicion is not None:
        if is_confirmed:
            suspicion.confirm()
        return []
    incarnation = record.version.incarnation
    state.suspicions[node_id] = Suspicion(incarnation, now, is_own=True)
    return _declare(state, node_id, incarnation, Liveness.SUSPECT, now)


def _declare(
    state: Membership, node_id: str, incarnation: int, liveness: Liveness, now: float
) -> list[Effect]:
    if not state.registry.merge_rumour(Rumour(node_id, incarnation, liveness), now):
        return []
    state.hot_rumours.heat(node_id)
    if liveness.is_tombstone:
        _part(state, node_id)
    return [Changed(node_id)]


def _leave(state: Membership, signature: bytes, now: float, rng: Randomness) -> list[Effect]:
    """Marks this node as LEFT and tells a few peers at once."""
    state.registry.leave(signature, now)
    state.is_leaving = True
    own_id = state.registry.own_id
    state.hot_rumours.heat(own_id)
    live = [node_id for node_id in state.registry.nodes() if state.is_live_peer(node_id)]
    farewells = sample(live, FAREWELLS, rng)
    return [Changed(own_id), *(_exchange(state, node_id, now) for node_id in farewells)]
