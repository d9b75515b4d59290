from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.cards.signed_message import left_message
from kakeya_fleet.fleet.membership.digest import LAST_KEY, MAX_DIGEST_LINES, DigestPart
from kakeya_fleet.fleet.membership.reconciliation import (
    MAX_CARDS_A_MESSAGE,
    MAX_WANTED_KEYS,
    missing_from,
    select,
)
from kakeya_fleet.fleet.membership.registry import Registry
from scripts.simulator.cards import NOW_UNIX, sign, signed, simulated_card, verify
from tests.support.breadth import again


def registry_of(own: int, held: Iterable[tuple[int, int, int, Liveness]]) -> Registry:
    """`held`: (index, incarnation, sequence, liveness)."""
    registry = Registry(signed(simulated_card(own)), verify, now=0.0)
    for index, incarnation, sequence, liveness in held:
        card = replace(simulated_card(index), incarnation=incarnation, sequence=sequence)
        registry.merge_cards([signed(card)], now=0.0, now_unix=NOW_UNIX)
        if liveness is Liveness.LEFT:
            farewell = sign(card.public_key, left_message(card.node_id, incarnation))
            registry.merge_rumours([Rumour(card.node_id, incarnation, liveness, farewell)], 0.0)
        else:
            registry.declare(card.node_id, incarnation, liveness, 0.0)
    return registry


def exchange(caller: Registry, receiver: Registry, rng: Random) -> None:
    """Digest, what the caller sends and wants, and what comes back."""
    missing = missing_from(caller, receiver.digest_part(0), rng)
    receiver.merge_cards(missing.cards, now=0.0, now_unix=NOW_UNIX)
    receiver.merge_rumours(missing.rumours, 0.0)
    back = select(receiver, missing.wanted_node_keys)
    caller.merge_cards(back.cards, now=0.0, now_unix=NOW_UNIX)
    caller.merge_rumours(back.rumours, 0.0)


held_nodes = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(1, 3),
        st.integers(0, 2),
        st.sampled_from([Liveness.ALIVE, Liveness.SUSPECT, Liveness.LEFT]),
    ),
    max_size=8,
)


@again(4)
@given(held_nodes, held_nodes, st.integers(0, 2**32))
@settings(deadline=None, max_examples=40)
def test_one_exchange_makes_two_nodes_agree(
    one: list[tuple[int, int, int, Liveness]],
    other: list[tuple[int, int, int, Liveness]],
    seed: int,
) -> None:
    caller, receiver = registry_of(90, one), registry_of(91, other)
    exchange(caller, receiver, Random(seed))
    assert caller.root_hash() == receiver.root_hash()
    assert not missing_from(caller, receiver.digest_part(0), Random(seed))
    assert not missing_from(receiver, caller.digest_part(0), Random(seed))


def test_a_tombstone_is_told_to_those_who_know_the_node_only() -> None:
    dead = [(1, 1, 0, Liveness.DEAD)]
    knows, stranger = registry_of(90, dead), registry_of(91, [])
    exchange(stranger, knows, Random(0))
    exchange(knows, stranger, Random(0))
    assert simulated_card(1).node_id not in stranger
    believer = registry_of(92, [(1, 1, 0, Liveness.ALIVE)])
    exchange(believer, knows, Random(0))
    assert believer.liveness(simulated_card(1).node_id) is Liveness.SUSPECT
    assert knows.liveness(simulated_card(1).node_id) is Liveness.DEAD


def test_a_suspicion_travels_without_the_card_that_is_known() -> None:
    suspects = registry_of(90, [(1, 1, 0, Liveness.SUSPECT)])
    believes = registry_of(91, [(1, 1, 0, Liveness.ALIVE)])
    missing = missing_from(suspects, believes.digest_part(0), Random(0))
    assert [rumour.node_id for rumour in missing.rumours] == [simulated_card(1).node_id]
    assert [card.card.node_id for card in missing.cards] == [simulated_card(90).node_id]


def test_messages_are_bounded_and_repeating_them_tells_all() -> None:
    big = registry_of(90, [(index, 1, 0, Liveness.ALIVE) for index in range(80)])
    small = registry_of(91, [])
    rng = Random(3)
    missing = missing_from(big, small.digest_part(0), rng)
    assert len(missing.cards) == MAX_CARDS_A_MESSAGE
    assert len(missing_from(small, big.digest_part(0), rng).wanted_node_keys) == 81
    assert MAX_WANTED_KEYS >= 1024
    exchange(big, small, rng)
    exchange(big, small, rng)
    assert big.root_hash() == small.root_hash()


def test_what_the_other_refuses_does_not_block_the_rest() -> None:
    big = registry_of(300, [(index, 1, 0, Liveness.ALIVE) for index in range(200)])
    seen: set[str] = set()
    rng = Random(1)
    for _ in range(30):
        missing = missing_from(big, DigestPart(()), rng)
        seen.update(card.card.node_id for card in missing.cards)
    assert len(seen) == 201


def test_a_large_digest_is_told_in_parts_that_cover_every_key_once() -> None:
    registry = registry_of(0, [(index, 1, 0, Liveness.ALIVE) for index in range(1, 2500)])
    parts = [registry.digest_part(0)]
    while parts[-1].last_key != LAST_KEY:
        parts.append(registry.digest_part(parts[-1].last_key + 1))
    assert [len(part.lines) for part in parts] == [1024, 1024, 452]
    lines = sorted(record.entry for record in registry.records())
    assert sum((part.lines for part in parts), ()) == tuple(lines)
    assert (parts[0].first_key, parts[-1].last_key) == (0, (1 << 64) - 1)
    assert all(one.last_key + 1 == two.first_key for one, two in pairwise(parts))


def test_nobody_is_told_of_a_node_because_a_part_of_a_digest_leaves_it_out() -> None:
    knows = registry_of(90, [(index, 1, 0, Liveness.ALIVE) for index in range(1200)])
    missing = missing_from(
        knows,
        knows.digest_part(sorted(record.entry for record in knows.records())[100].node_key),
        Random(0),
    )
    assert not missing


def test_nodes_whose_keys_are_one_make_no_part_longer_than_a_message() -> None:
    """Two ids that begin alike cost their maker 2**32 tries: peers refuse a line too many."""
    registry = registry_of(0, [(index, 1, 0, Liveness.ALIVE) for index in range(1, 1024)])
    first, second = list(registry._ids_by_key)[:2]
    registry._ids_by_key[first] |= registry._ids_by_key[second]
    part = registry.digest_part(0)
    assert len(part.lines) <= MAX_DIGEST_LINES
    assert part.last_key != LAST_KEY
