from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.cards.signed_message import left_message
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
    Reached,
    Refute,
    Removed,
    Skipped,
    Tick,
)
from kakeya_fleet.fleet.membership.exchange import opening
from kakeya_fleet.fleet.membership.membership import Membership, step
from kakeya_fleet.fleet.membership.registry import Registry
from kakeya_fleet.fleet.membership.suspicion import Doubt
from scripts.simulator.cards import NOW_UNIX, sign, signed, simulated_card, verify

OWN = signed(simulated_card(0))


def node_id(index: int) -> str:
    return simulated_card(index).node_id


class Node:
    """One membership, fed by hand."""

    def __init__(self, peers: int = 0, seeds: tuple[str, ...] = ()) -> None:
        registry = Registry(OWN, verify, now=0.0)
        self.state = Membership(registry, seeds=list(seeds))
        self.rng = Random(0)
        self.now = 0.0
        if peers:
            cards = tuple(signed(simulated_card(index)) for index in range(1, peers + 1))
            self.feed(Heard("", cards, (), NOW_UNIX))
            for card in cards:
                self.feed(Reached(card.card.node_id))

    def feed(self, event: Event, at: float | None = None) -> tuple[Effect, ...]:
        self.now = self.now if at is None else at
        return step(self.state, event, self.now, self.rng)

    def tick(self, at: float) -> list[Effect]:
        return list(self.feed(Tick(), at))

    def rumour(self, index: int, liveness: Liveness, incarnation: int = 1) -> tuple[Effect, ...]:
        rumour = Rumour(node_id(index), incarnation, liveness)
        return self.feed(Heard("", (), (rumour,), NOW_UNIX))

    def bury(self, index: int) -> None:
        """Has the node found DEAD by this one's own probes."""
        self.state.registry.declare(node_id(index), 1, Liveness.DEAD, self.now)
        self.state.peers.discard(node_id(index))

    def liveness(self, index: int) -> Liveness:
        return self.state.registry.liveness(node_id(index))


def test_a_node_alone_dials_its_seeds_every_period() -> None:
    node = Node(seeds=("10.9.9.9:1", OWN.card.addresses[0]))
    for second in range(3):
        assert node.tick(float(second)) == [DialAddress("10.9.9.9:1", 0.5)]


def test_a_silent_peer_of_a_pair_is_suspect_the_second_time_and_dead_after_four_seconds() -> None:
    node = Node(peers=1)
    again = Exchange(node_id(1), 0.5)
    assert node.tick(0.0) == [again]
    assert node.feed(ExchangeFailed(node_id(1)), 0.5) == (again,)
    assert node.liveness(1) is Liveness.ALIVE
    assert node.feed(ExchangeFailed(node_id(1)), 0.9) == (Changed(node_id(1)),)
    for second in range(1, 5):
        assert node.liveness(1) is Liveness.SUSPECT
        assert again in node.tick(float(second))
        node.feed(ExchangeFailed(node_id(1)), second + 0.5)
    # From the first failure on, not from when it was told.
    assert Changed(node_id(1)) in node.tick(5.0)
    assert node.liveness(1) is Liveness.DEAD


def silence(node: Node, target: int, at: float) -> list[ProbeVia]:
    """Ticks until `target` is called, lets it fail, and returns the helpers' probes."""
    second = at
    while Exchange(node_id(target), 0.5) not in node.tick(second):
        for call in list(node.state.calls):
            node.feed(ExchangeSucceeded(call, (), (), NOW_UNIX), second + 0.01)
        second += 1.0
    for call in list(node.state.calls):
        if call != node_id(target):
            node.feed(ExchangeSucceeded(call, (), (), NOW_UNIX), second + 0.01)
    effects = node.feed(ExchangeFailed(node_id(target)), second + 0.5)
    assert effects[0] == Exchange(node_id(target), 0.5)
    return [effect for effect in effects if isinstance(effect, ProbeVia)]


def test_one_helper_that_reaches_the_node_clears_it() -> None:
    node = Node(peers=5)
    probes = silence(node, 1, 0.0)
    assert len({probe.via for probe in probes}) == 3
    assert all(probe.via not in (node_id(0), node_id(1)) for probe in probes)
    node.feed(ProbeDone(node_id(1), probes[0].via, ProbeOutcome.UNREACHED))
    node.feed(ProbeDone(node_id(1), probes[1].via, ProbeOutcome.REACHED))
    node.feed(ProbeDone(node_id(1), probes[2].via, ProbeOutcome.UNREACHED))
    node.feed(ExchangeFailed(node_id(1)))
    assert node.liveness(1) is Liveness.ALIVE


def test_a_second_call_that_is_answered_clears_it() -> None:
    node = Node(peers=5)
    probes = silence(node, 1, 0.0)
    node.feed(ExchangeSucceeded(node_id(1), (), (), NOW_UNIX))
    for probe in probes:
        node.feed(ProbeDone(node_id(1), probe.via, ProbeOutcome.UNREACHED))
    assert node.liveness(1) is Liveness.ALIVE


def nobody_reaches(
    node: Node, outcome: ProbeOutcome = ProbeOutcome.UNREACHED
) -> tuple[Effect, ...]:
    """One whole round in which nobody reaches the first peer; what comes of its last failure."""
    if node_id(1) in node.state.calls:
        effects = node.feed(ExchangeFailed(node_id(1)), node.now + 0.2)
        probes = [effect for effect in effects if isinstance(effect, ProbeVia)]
    else:
        second = 0.0 if node.state.ticked_at is None else node.state.ticked_at + 1.0
        probes = silence(node, 1, second)
    for probe in probes:
        node.feed(ProbeDone(node_id(1), probe.via, outcome))
    assert node_id(1) in node.state.probes
    return node.feed(ExchangeFailed(node_id(1)))


def test_nobody_reaching_the_node_twice_in_a_row_makes_it_suspect() -> None:
    node = Node(peers=5)
    assert nobody_reaches(node) == (Exchange(node_id(1), 0.5),)
    assert node.liveness(1) is Liveness.ALIVE
    assert opening(node.state, node_id(2)).rumours == (), "a doubt is told to nobody"
    assert nobody_reaches(node) == (Changed(node_id(1)),)
    assert node.liveness(1) is Liveness.SUSPECT
    assert node.state.awareness.stretch == 1.0


def test_more_helpers_are_asked_the_longer_nobody_reaches_a_node() -> None:
    node = Node(peers=20)
    asked = [len(silence(node, 1, 0.0))]
    for _ in range(4):
        for via in node.state.probes[node_id(1)].awaited - {node.state.registry.own_id}:
            node.feed(ProbeDone(node_id(1), via, ProbeOutcome.UNREACHED))
        node.feed(ExchangeFailed(node_id(1)))
        while node_id(1) not in node.state.calls:
            node.tick(node.now + 1.0)
        effects = node.feed(ExchangeFailed(node_id(1)))
        asked.append(sum(isinstance(effect, ProbeVia) for effect in effects))
    assert asked == [3, 6, 9, 9, 9]


def test_a_sign_of_life_ends_a_doubt() -> None:
    node = Node(peers=5)
    nobody_reaches(node)
    assert node.feed(ExchangeSucceeded(node_id(1), (), (), NOW_UNIX)) == ()
    nobody_reaches(node)
    assert node.liveness(1) is Liveness.ALIVE


def test_a_doubt_that_others_share_is_evidence_of_its_own() -> None:
    node = Node(peers=5)
    nobody_reaches(node)
    doubted_at = node.now
    rumour = Rumour(node_id(1), 1, Liveness.SUSPECT)
    node.feed(Heard(node_id(2), (), (rumour,), NOW_UNIX), doubted_at + 0.3)
    suspicion = node.state.suspicions[node_id(1)]
    assert (suspicion.is_own, suspicion.since) == (True, doubted_at)


def test_nobody_is_buried_before_some_rounds_however_long_each_takes() -> None:
    node = Node(peers=5)
    nobody_reaches(node)
    nobody_reaches(node)
    suspicion = node.state.suspicions[node_id(1)]
    assert suspicion.evidence == Doubt(suspicion.since, 2, 1)
    suspicion.since -= 100.0
    node.tick(node.now + 0.3)
    assert node.liveness(1) is Liveness.SUSPECT
    suspicion.evidence.round_count = 4
    node.tick(node.now + 1.0)
    assert node.liveness(1) is Liveness.DEAD


def test_lost_answers_of_helpers_are_silence_and_stretch_the_own_timeouts() -> None:
    node = Node(peers=5)
    nobody_reaches(node)
    node.feed(ExchangeFailed(node_id(1)), node.now + 0.5)
    node.feed(ExchangeFailed(node_id(1)), node.now + 0.5)
    ticked = node.state.ticked_at
    assert ticked is not None
    for second in range(1, 4):
        node.tick(ticked + second)
    assert node.liveness(1) is Liveness.SUSPECT
    # All four others were asked in the second round.
    assert node.state.awareness.stretch == 5.0


def test_a_late_tick_accuses_nobody_and_moves_deadlines() -> None:
    node = Node(peers=1)
    node.tick(0.0)
    for second in (0.5, 0.9):
        node.feed(ExchangeFailed(node_id(1)), second)
    assert node.liveness(1) is Liveness.SUSPECT
    node.tick(100.0)
    assert node.liveness(1) is Liveness.SUSPECT
    assert node.state.awareness.stretch == 8.0


def test_a_late_tick_ends_a_doubt() -> None:
    node = Node(peers=1)
    for second in (0.0, 100.0):
        node.tick(second)
        node.feed(ExchangeFailed(node_id(1)), second + 0.5)
    assert node.liveness(1) is Liveness.ALIVE


def test_a_timeout_that_fires_late_accuses_nobody() -> None:
    node = Node(peers=1)
    node.tick(0.0)
    assert node.feed(ExchangeFailed(node_id(1)), 10.0) == ()
    assert node.liveness(1) is Liveness.ALIVE


def test_a_failure_that_nobody_asked_for_accuses_nobody() -> None:
    node = Node(peers=1)
    assert node.feed(ExchangeFailed(node_id(1)), 0.5) == ()
    assert node.feed(ExchangeFailed("ff" * 32), 0.5) == ()
    outcome = ProbeDone(node_id(1), node_id(2), ProbeOutcome.UNREACHED)
    assert node.feed(outcome, 0.5) == ()
    assert node.liveness(1) is Liveness.ALIVE


def test_accusations_are_refuted_with_the_next_incarnation_once_a_period() -> None:
    node = Node(peers=2)
    for liveness in (Liveness.SUSPECT, Liveness.DEAD):
        own = Rumour(OWN.card.node_id, 1, liveness)
        effects = node.feed(Heard("", (), (own,), NOW_UNIX))
        assert effects == ((Refute(2),) if liveness is Liveness.SUSPECT else ())
    risen = signed(replace(OWN.card, incarnation=2))
    assert node.feed(OwnCardChanged(risen)) == (Changed(OWN.card.node_id),)
    assert node.feed(OwnCardChanged(risen)) == ()
    again = Rumour(OWN.card.node_id, 2, Liveness.DEAD)
    assert node.feed(Heard("", (), (again,), NOW_UNIX), 0.9) == ()
    assert Refute(3) in node.tick(1.0)
    assert node.feed(Heard("", (), (again,), NOW_UNIX), 2.0) == ()
    assert node.liveness(0) is Liveness.ALIVE


def test_a_refutation_ends_the_suspicion() -> None:
    node = Node(peers=1)
    node.rumour(1, Liveness.SUSPECT)
    refuted = signed(replace(simulated_card(1), incarnation=2))
    node.feed(Heard("", (refuted,), (), NOW_UNIX))
    for second in range(20):
        node.tick(float(second))
        node.feed(ExchangeSucceeded(node_id(1), (), (), NOW_UNIX))
    assert node.liveness(1) is Liveness.ALIVE


def test_a_sign_of_life_puts_death_off_until_the_refutation_comes() -> None:
    node = Node(peers=1)
    node.rumour(1, Liveness.SUSPECT)
    for second in range(20):
        node.tick(float(second))
        node.feed(ExchangeSucceeded(node_id(1), (), (), NOW_UNIX), second + 0.1)
    assert node.liveness(1) is Liveness.SUSPECT


def test_hearsay_is_looked_into_after_the_least_time_and_ends_in_death_by_own_failures_alone() -> (
    None
):
    node = Node(peers=2)
    node.rumour(1, Liveness.DEAD)
    assert node.liveness(1) is Liveness.SUSPECT
    assert node.state.found(node_id(1)) is Liveness.ALIVE
    dead_at, first_failure = None, None
    for second in range(40):
        node.tick(float(second))
        # Nobody reaches the victim, the other node answers.
        while node.state.calls or node.state.probes:
            for called in list(node.state.calls):
                if called != node_id(1):
                    node.feed(ExchangeSucceeded(called, (), (), NOW_UNIX), second + 0.1)
                    continue
                for effect in node.feed(ExchangeFailed(called), second + 0.5):
                    if isinstance(effect, ProbeVia):
                        node.feed(ProbeDone(called, effect.via, ProbeOutcome.UNREACHED))
        if first_failure is None and node.state.found(node_id(1)) is Liveness.SUSPECT:
            first_failure = second + 0.5
        if dead_at is None and node.liveness(1) is Liveness.DEAD:
            dead_at = second
    assert first_failure is not None
    assert dead_at is not None
    assert dead_at - first_failure >= 4.0


def test_a_dead_peer_is_dialled_every_ten_seconds_by_whoever_has_others() -> None:
    node = Node(peers=3)
    node.bury(1)
    dialled = []
    for second in range(31):
        for effect in node.tick(float(second)):
            if isinstance(effect, Exchange):
                if effect.node_id == node_id(1):
                    dialled.append(second)
                    node.feed(ExchangeFailed(node_id(1)))
                else:
                    node.feed(ExchangeSucceeded(effect.node_id, (), (), NOW_UNIX))
    assert dialled == [0, 10, 20, 30]


def test_a_tombstone_is_forgotten_after_a_day() -> None:
    node = Node(peers=2)
    node.bury(1)
    assert Removed(node_id(1)) not in node.tick(86399.0)
    assert Removed(node_id(1)) in node.tick(86400.0)
    assert node_id(1) not in node.state.registry


def test_a_found_address_is_dialled_at_once_unless_a_member_has_it() -> None:
    node = Node(peers=1)
    assert node.feed(AddressFound("10.9.9.9:1")) == (DialAddress("10.9.9.9:1", 0.5),)
    assert node.feed(AddressFound("10.9.9.9:1")) == ()
    assert node.feed(AddressFound(simulated_card(1).addresses[0])) == ()
    for port in range(1, 1000):
        node.feed(AddressFound(f"10.8.8.8:{port}"))
    assert len(node.state.seeds) == 256


def test_leaving_tells_three_peers_at_once_and_then_keeps_still() -> None:
    node = Node(peers=5)
    signature = sign(OWN.card.public_key, left_message(OWN.card.node_id, 1))
    effects = node.feed(Leaving(signature))
    assert effects[0] == Changed(OWN.card.node_id)
    farewells = [effect for effect in effects if isinstance(effect, Exchange)]
    assert len({farewell.node_id for farewell in farewells}) == 3
    # Not that of the exchanges of every period, of which another follows.
    seconds = node.state.settings.farewell_seconds
    assert {farewell.timeout_seconds for farewell in farewells} == {seconds}
    assert node.liveness(0) is Liveness.LEFT
    accused = Rumour(OWN.card.node_id, 1, Liveness.DEAD)
    assert node.feed(Heard("", (), (accused,), NOW_UNIX)) == ()
    assert node.tick(1.0) == []


def test_a_card_of_the_own_key_from_a_forgotten_past_is_risen_above() -> None:
    node = Node()
    past = signed(replace(OWN.card, boot_id="lost", incarnation=9))
    assert node.feed(Heard("", (past,), (), NOW_UNIX)) == (Refute(10),)
    assert node.feed(Heard("", (past,), (), NOW_UNIX)) == ()


def test_a_clone_that_answers_every_rise_survives() -> None:
    node = Node()
    own_id = OWN.card.node_id
    effects: tuple[Effect, ...] = ()
    for incarnation in range(2, 20, 2):
        clone = signed(replace(OWN.card, boot_id="clone", incarnation=incarnation))
        effects = node.feed(Heard("", (clone,), (), NOW_UNIX))
        if CloneFound(own_id, must_yield=True) in effects:
            break
        risen = replace(OWN.card, incarnation=incarnation + 1)
        node.feed(OwnCardChanged(signed(risen)))
    assert effects == (CloneFound(own_id, must_yield=True),)
    assert incarnation == 8


def test_skipped_cards_and_rumours_are_reported_with_their_sender() -> None:
    node = Node()
    bad = signed(replace(simulated_card(1), announced_at_unix=float("nan")))
    good = signed(simulated_card(2))
    unknown = Rumour(node_id(7), 1, Liveness.DEAD)
    effects = node.feed(Heard("sender", (bad, good), (unknown,), NOW_UNIX))
    assert effects == (
        Changed(node_id(2)),
        Skipped("sender", ((0, "BAD_STAMP"),), ((0, "UNKNOWN_NODE"),)),
    )


def test_an_own_card_of_another_node_is_refused() -> None:
    with pytest.raises(ValueError, match="not this node's own"):
        Node().feed(OwnCardChanged(signed(simulated_card(5))))


def test_a_call_whose_answer_was_lost_does_not_shield_the_node() -> None:
    node = Node(peers=1)
    called = [bool(node.tick(float(second))) for second in range(10)]
    assert sum(called) >= 3


def test_the_helper_that_reached_a_node_is_asked_again() -> None:
    for seed in range(5):
        node = Node(peers=12)
        node.rng = Random(seed)
        probes = silence(node, 1, 0.0)
        node.feed(ProbeDone(node_id(1), probes[-1].via, ProbeOutcome.REACHED))
        node.feed(ExchangeFailed(node_id(1)))
        ticked = node.state.ticked_at
        assert ticked is not None
        again = silence(node, 1, ticked + 1.0)
        assert probes[-1].via in {probe.via for probe in again}
        assert len({probe.via for probe in again}) == 3


@pytest.mark.parametrize(
    ("outcome", "confirmation_count"), [(ProbeOutcome.UNREACHED, 1), (ProbeOutcome.SILENT, 0)]
)
def test_only_helpers_that_answer_confirm_a_suspicion(
    outcome: ProbeOutcome, confirmation_count: int
) -> None:
    node = Node(peers=5)
    for _ in range(2):
        node.state.awareness.silence = 0
        nobody_reaches(node, outcome)
    assert node.liveness(1) is Liveness.SUSPECT
    evidence = node.state.suspicions[node_id(1)].evidence
    assert evidence is not None
    assert evidence.confirmation_count == confirmation_count
