from __future__ import annotations

from dataclasses import replace
from random import Random

from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.membership.events import Heard, Tick
from kakeya_fleet.fleet.membership.exchange import HOT_CARDS, answer, follow_up, opening
from kakeya_fleet.fleet.membership.membership import Membership, step
from kakeya_fleet.fleet.membership.registry import Registry
from scripts.simulator.cards import NOW_UNIX, signed, simulated_card, verify


def member(index: int, known: range = range(0)) -> Membership:
    state = Membership(Registry(signed(simulated_card(index)), verify, now=0.0))
    cards = [signed(simulated_card(other)) for other in known]
    step(state, Heard("", cards, (), NOW_UNIX), 0.0, Random(0))
    return state


def test_strangers_are_shown_the_own_card_however_often_it_was_told() -> None:
    state = member(1)
    for _ in range(50):
        message = opening(state)
        assert [card.card.name for card in message.cards] == ["node-1"]


def test_a_peer_is_first_of_all_told_what_is_held_against_it() -> None:
    state = member(1, range(2, 40))
    rumours = [Rumour(simulated_card(i).node_id, 1, Liveness.SUSPECT) for i in range(2, 40)]
    for _ in range(3):
        step(state, Heard("", (), rumours, NOW_UNIX), 0.0, Random(0))
    for _ in range(50):
        message = opening(state, simulated_card(7).node_id)
        assert message.rumours[0].node_id == simulated_card(7).node_id
        assert len(message.cards) <= HOT_CARDS
        assert len(message.rumours) <= 33


def test_who_introduces_itself_is_shown_the_own_card_however_often_it_was_told() -> None:
    state = member(1, range(2, 40))
    newcomer = opening(member(90))
    for _ in range(50):
        told = [card.card.name for card in answer(state, newcomer).cards]
        assert told.count("node-1") == 1


def test_equal_roots_need_no_digest_and_no_second_round() -> None:
    one, other = member(1, range(2, 4)), member(2, range(1, 4))
    replied = answer(other, opening(one, simulated_card(2).node_id))
    assert one.registry.root_hash() == other.registry.root_hash()
    assert replied.digest is None
    assert follow_up(one, replied, Random(0)) is None


def test_two_rounds_bring_two_strangers_together() -> None:
    one, other = member(1, range(10, 30)), member(2, range(20, 40))
    rng = Random(0)
    message = opening(one)
    for _ in range(2):
        step(other, Heard(message.sender_id, message.cards, message.rumours, NOW_UNIX), 0.0, rng)
        replied = answer(other, message)
        heard = Heard(replied.sender_id, replied.cards, replied.rumours, NOW_UNIX)
        step(one, heard, 0.0, rng)
        further = follow_up(one, replied, rng)
        if further is not None:
            message = further
    assert one.registry.root_hash() == other.registry.root_hash()
    assert len(one.registry) == 32


def test_wanted_registers_come_with_what_is_said_of_them() -> None:
    state = member(1, range(2, 4))
    suspect = simulated_card(2)
    step(
        state,
        Heard("", (), (Rumour(suspect.node_id, 1, Liveness.SUSPECT),), NOW_UNIX),
        0.0,
        Random(0),
    )
    key = int(suspect.node_id[:16], 16)
    message = replace(opening(member(9)), wanted_node_keys=(key, 12345))
    replied = answer(state, message)
    assert [card.card.node_id for card in replied.cards] == [suspect.node_id]
    assert [rumour.liveness for rumour in replied.rumours] == [Liveness.SUSPECT]


def test_forgotten_nodes_are_no_news() -> None:
    state = member(1, range(2, 4))
    dead = simulated_card(2)
    assert state.registry.declare(dead.node_id, 1, Liveness.DEAD, 0.0)
    step(state, Tick(), 0.0, Random(0))
    step(state, Tick(), 90_000.0, Random(0))
    message = opening(state, simulated_card(3).node_id)
    assert dead.node_id not in {card.card.node_id for card in message.cards}
