"""The messages of one exchange, from both sides.

    caller: opening(...) ------------------------------> answer(...)
    caller: follow_up(...), when the roots differed ----> answer(...)

The receiver of a message first gives its cards and rumours to `step` as
`Heard` (the caller its first answer as `ExchangeSucceeded`), then builds the
next one, so that what was merged is in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.fleet.cards.card import SignedCard
from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.membership.digest import LAST_KEY, DigestPart
from kakeya_fleet.fleet.membership.membership import Membership
from kakeya_fleet.fleet.membership.randomness import Randomness
from kakeya_fleet.fleet.membership.reconciliation import missing_from, select

HOT_CARDS = 8
HOT_RUMOURS = 32


@dataclass(frozen=True, slots=True)
class ExchangeMessage:
    """What a caller sends; `root_hash` is 32 bytes."""

    sender_id: str
    root_hash: bytes
    cards: tuple[SignedCard, ...]
    rumours: tuple[Rumour, ...]
    wanted_node_keys: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ExchangeAnswer:
    """What is sent back; `digest` is None when the roots are equal."""

    sender_id: str
    root_hash: bytes
    cards: tuple[SignedCard, ...]
    rumours: tuple[Rumour, ...]
    digest: DigestPart | None


def opening(state: Membership, peer_id: str = "") -> ExchangeMessage:
    """The first message to a peer; to an unknown one, the own card comes along."""
    cards, rumours = _hot(state, peer_id)
    if peer_id not in state.registry and state.registry.own not in cards:
        cards = (state.registry.own, *cards)
    own_id = state.registry.own_id
    return ExchangeMessage(own_id, state.registry.root_hash(), cards, rumours)


def answer(state: Membership, message: ExchangeMessage) -> ExchangeAnswer:
    """The answer to a message whose cards and rumours `step` has merged.

    Whoever introduces itself may know nobody here: with the own card in the first answer it
    has whom to say farewell to, should it leave before it hears of more.
    """
    registry = state.registry
    if message.wanted_node_keys:
        wanted = select(registry, message.wanted_node_keys)
        cards, rumours = wanted.cards, wanted.rumours
    else:
        cards, rumours = _hot(state, message.sender_id)
        is_introduced = any(card.card.node_id == message.sender_id for card in message.cards)
        if is_introduced and registry.own not in cards:
            cards = (registry.own, *cards)
    root_hash = registry.root_hash()
    digest = None if root_hash == message.root_hash else _next_part(state)
    return ExchangeAnswer(registry.own_id, root_hash, cards, rumours, digest)


def follow_up(
    state: Membership, received: ExchangeAnswer, rng: Randomness
) -> ExchangeMessage | None:
    """The next message after an answer that `step` has merged; None when all is told."""
    if received.digest is None:
        return None
    missing = missing_from(state.registry, received.digest, rng)
    if not missing:
        return None
    return ExchangeMessage(
        state.registry.own_id,
        state.registry.root_hash(),
        missing.cards,
        missing.rumours,
        missing.wanted_node_keys,
    )


def _next_part(state: Membership) -> DigestPart:
    """Parts follow each other from answer to answer, so that all is told in turn."""
    part = state.registry.digest_part(state.digest_told)
    state.digest_told = 0 if part.last_key == LAST_KEY else part.last_key + 1
    return part


def _hot(state: Membership, peer_id: str) -> tuple[tuple[SignedCard, ...], tuple[Rumour, ...]]:
    """News for a peer; first of all what is held against the peer itself."""
    registry = state.registry
    node_count = registry.live_count()
    rumours: list[Rumour] = []
    if peer_id in registry and registry.liveness(peer_id) is not Liveness.ALIVE:
        rumours.append(registry.record(peer_id).rumour)
    for node_id in state.hot_rumours.take(HOT_RUMOURS, node_count):
        record = registry.record(node_id)
        if node_id != peer_id and record.liveness is not Liveness.ALIVE:
            rumours.append(record.rumour)
    hot = state.hot_cards.take(HOT_CARDS, node_count)
    return tuple(registry.record(node_id).signed for node_id in hot), tuple(rumours)
