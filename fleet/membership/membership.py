"""Who is in the fleet, and who is alive: SWIM (Das et al. 2002) with Lifeguard.

One step for every event. Once a period: one exchange with the next peer of a
shuffled round-robin; no answer, and some helpers are asked to probe it while it is called
once more; nobody reached it in some such rounds in a row, and it is SUSPECT; no refutation in
the time of `fleet.membership.suspicion`, and it is DEAD to those who could not reach it
themselves: what others say makes nobody more than SUSPECT. The owner refutes by raising its
incarnation. Whoever suspects a node by rounds of its own also calls it every period, so that it
learns of the suspicion first hand.

A two-node fleet takes 4 to 7 s to find a death: up to 1 s to the next exchange,
up to 0.5 s for its timeout, 4 s of suspicion, up to 1 s to the next tick.
"""

from __future__ import annotations

from collections.abc import Sequence

from kakeya_fleet.fleet.cards.card import SignedCard
from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.membership import detection, seeking
from kakeya_fleet.fleet.membership.clone_watch import Verdict
from kakeya_fleet.fleet.membership.events import (
    AddressFound,
    Changed,
    CloneFound,
    Effect,
    Event,
    ExchangeFailed,
    ExchangeSucceeded,
    Heard,
    Leaving,
    NetworksChanged,
    OwnCardChanged,
    ProbeDone,
    PutOut,
    Reached,
    ReceivedCard,
    Refute,
    Removed,
    Skipped,
    Source,
    Tick,
)
from kakeya_fleet.fleet.membership.merge_rules import Usable
from kakeya_fleet.fleet.membership.randomness import Randomness, sample
from kakeya_fleet.fleet.membership.registry import MergeResult, RumourResult
from kakeya_fleet.fleet.membership.state import Membership

__all__ = ["Membership", "step"]

FAREWELLS = 3
"""Peers that are told at once when this node leaves."""


def step(state: Membership, event: Event, now: float, rng: Randomness) -> tuple[Effect, ...]:
    """Changes `state` by one event and returns what to do, in order.

    `now` is in seconds on a monotonic clock. The same state, event, time and
    randomness give the same result; nothing else is read.
    """
    match event:
        case Tick():
            return tuple(_tick(state, now, rng))
        case Heard(sender_id, cards, rumours, now_unix, host):
            source = Source(host, sender_id)
            effects = _merge(state, source, cards, rumours, (now, now_unix), rng)
            state.registry.saw(sender_id, now)
        case ExchangeSucceeded(node_id, cards, rumours, now_unix, host):
            source = Source(host, node_id)
            effects = _merge(state, source, cards, rumours, (now, now_unix), rng)
            effects += detection.answered(state, node_id, now, rng)
        case Reached(node_id):
            effects = []
            detection.reached(state, node_id, now, rng)
        case ExchangeFailed(node_id):
            effects = detection.failed(state, node_id, now, rng)
        case ProbeDone(node_id, via, outcome):
            effects = detection.probed(state, node_id, via, outcome, now)
        case OwnCardChanged(signed):
            effects = _replace_own(state, signed, now)
        case AddressFound(address):
            effects = seeking.found(state, address)
        case Leaving(signature):
            effects = _leave(state, signature, now, rng)
        case NetworksChanged(usable):
            effects = _look_again(state, usable)
        case PutOut(node_ids):
            effects = _forget(state, state.registry.put_out(node_ids))
    return tuple(effects)


def _replace_own(state: Membership, signed: SignedCard, now: float) -> list[Effect]:
    if not state.registry.replace_own(signed, now):
        return []
    state.hot_cards.heat(state.registry.own_id)
    return [Changed(state.registry.own_id)]


def _look_again(state: Membership, usable: Usable) -> list[Effect]:
    # Who was lost on the networks of before is called in the next period.
    state.dialled_at = None
    return [Changed(node_id) for node_id in state.registry.look_again(usable)]


def _tick(state: Membership, now: float, rng: Randomness) -> list[Effect]:
    late = 0.0
    if state.ticked_at is not None:
        late = max(0.0, now - state.ticked_at - state.settings.period_seconds)
    state.ticked_at = now
    if state.awareness.ticked(late):
        detection.stood_still(state, late)
    effects = detection.expire(state, now)
    effects += _forget(state, state.registry.forget_expired(now, state.settings))
    if not state.is_leaving:
        effects += detection.call_peers(state, now, rng)
        effects += seeking.dial(state, now, rng)
        effects += _refute(state, now)
    return effects


def _forget(state: Membership, node_ids: Sequence[str]) -> list[Effect]:
    """Drops all that is remembered of nodes that the registry forgot."""
    for node_id in node_ids:
        detection.part(state, node_id)
        state.hot_cards.cool(node_id)
        state.hot_rumours.cool(node_id)
    return [Removed(node_id) for node_id in node_ids]


def _merge(
    state: Membership,
    source: Source,
    cards: Sequence[ReceivedCard],
    rumours: Sequence[Rumour],
    times: tuple[float, float],
    rng: Randomness,
) -> list[Effect]:
    """Cards first: a rumour counts only about a card that is held."""
    now, now_unix = times
    merged = state.registry.merge_cards(cards, now=now, now_unix=now_unix, source=source)
    told = state.registry.merge_rumours(rumours, now)
    for node_id in merged.merged:
        state.hot_cards.heat(node_id)
        _welcome(state, node_id, rng)
    for node_id in told.merged:
        state.hot_rumours.heat(node_id)
        detection.hear_of(state, node_id, now)
    effects = _forget(state, merged.displaced)
    effects += [Changed(node_id) for node_id in dict.fromkeys(merged.merged + told.merged)]
    effects += [CloneFound(node_id, must_yield=False) for node_id in merged.clones]
    effects += _defend(state, merged, told)
    effects += _refute(state, now)
    if merged.skipped or told.skipped:
        effects.append(Skipped(source.node_id, merged.skipped, told.skipped))
    return effects


def _welcome(state: Membership, node_id: str, rng: Randomness) -> None:
    """A newer card of the node was merged."""
    if not state.is_live_peer(node_id):
        return
    if node_id not in state.peers:
        is_new = state.registry.is_stranger(node_id)
        (state.newcomers if is_new else state.peers).add(node_id, rng)
    if state.registry.liveness(node_id) is Liveness.ALIVE:
        state.suspicions.pop(node_id, None)
        state.doubts.pop(node_id, None)


def _defend(state: Membership, merged: MergeResult, told: RumourResult) -> list[Effect]:
    """Answers cards under the own key that are not this process's, and accusations."""
    own = state.registry.own
    effects: list[Effect] = []
    needed = own.card.incarnation + 1 if told.accused else -1
    for heard in merged.own:
        verdict = state.clone_watch.judge(own, heard, state.settings.period_seconds)
        is_same_life = heard.card.incarnation == own.card.incarnation
        if verdict is Verdict.YIELD or is_same_life:
            must_yield = verdict is Verdict.YIELD
            effects.append(CloneFound(own.card.node_id, must_yield=must_yield))
        if verdict is Verdict.RISE:
            needed = max(needed, heard.card.incarnation + 1)
    state.needed = max(state.needed, needed)
    return effects


def _refute(state: Membership, now: float) -> list[Effect]:
    """Rises above what is held against this node, at most once a period.

    Suspicions last four periods and more, so that nothing is lost by it, and a flood of
    forged ones costs one signature and one changed card a period.
    """
    if state.needed <= state.rising_to or state.is_leaving:
        return []
    if state.refuted_at is not None and now - state.refuted_at < state.settings.period_seconds:
        return []
    state.rising_to, state.refuted_at = state.needed, now
    return [Refute(state.needed)]


def _leave(state: Membership, signature: bytes, now: float, rng: Randomness) -> list[Effect]:
    """Marks this node as LEFT and tells a few peers at once."""
    state.registry.leave(signature, now)
    state.is_leaving = True
    own_id = state.registry.own_id
    state.hot_rumours.heat(own_id)
    live = [node_id for node_id in state.registry.nodes() if state.is_live_peer(node_id)]
    farewells = sample(live, FAREWELLS, rng)
    timeout = state.settings.farewell_seconds
    return [
        Changed(own_id),
        *(detection.call(state, node_id, now, timeout) for node_id in farewells),
    ]
