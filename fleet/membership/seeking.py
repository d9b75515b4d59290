"""Calls to those of whom nothing is known but an address, and to the dead."""

from __future__ import annotations

from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.membership.events import DialAddress, Effect, Exchange
from kakeya_fleet.fleet.membership.randomness import Randomness
from kakeya_fleet.fleet.membership.state import MAX_SEEDS, Membership


def dial(state: Membership, now: float, rng: Randomness) -> list[Effect]:
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


def found(state: Membership, address: str) -> list[Effect]:
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
