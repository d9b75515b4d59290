from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.membership.events import (
    AddressFound,
    Effect,
    Event,
    Exchange,
    ExchangeFailed,
    ExchangeSucceeded,
    Heard,
    OwnCardChanged,
    ProbeDone,
    ProbeOutcome,
    ProbeVia,
    Reached,
    Refute,
    Tick,
)
from kakeya_fleet.fleet.membership.exchange import opening
from kakeya_fleet.fleet.membership.membership import Membership, step
from kakeya_fleet.fleet.membership.registry import Registry
from scripts.simulator.cards import NOW_UNIX, signed, simulated_card, verify

PEERS = 5
indices = st.integers(1, PEERS)
incarnations = st.integers(1, 4)


class MembershipMachine(RuleBasedStateMachine):
    """Any events in any order, answered or not, timely or late."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.now = 0.0
        self.rng = Random(seed)
        own = signed(simulated_card(0))
        self.state = Membership(Registry(own, verify, now=0.0))
        self.pending: list[Effect] = []
        self.highest: dict[str, int] = {}

    def feed(self, event: Event) -> None:
        for effect in step(self.state, event, self.now, self.rng):
            if isinstance(effect, Exchange | ProbeVia):
                self.pending.append(effect)
            elif isinstance(effect, Refute):
                own = self.state.registry.own.card
                assert effect.incarnation > own.incarnation
                risen = signed(replace(own, incarnation=effect.incarnation, sequence=0))
                self.feed(OwnCardChanged(risen))

    def buried(self) -> set[str]:
        registry = self.state.registry
        return {each for each in registry.nodes() if registry.liveness(each) is Liveness.DEAD}

    @rule(late=st.sampled_from([0.0, 0.0, 0.1, 0.3, 60.0]))
    def tick(self, late: float) -> None:
        self.now += 1.0 + late
        self.feed(Tick())

    @rule(index=indices, incarnation=incarnations, sequence=st.integers(0, 2))
    def card(self, index: int, incarnation: int, sequence: int) -> None:
        card = replace(simulated_card(index), incarnation=incarnation, sequence=sequence)
        self.feed(Heard("", (signed(card),), (), NOW_UNIX))

    @rule(
        index=st.integers(0, PEERS),
        incarnation=incarnations,
        liveness=st.sampled_from([Liveness.ALIVE, Liveness.SUSPECT, Liveness.DEAD]),
    )
    def rumour(self, index: int, incarnation: int, liveness: Liveness) -> None:
        rumour = Rumour(simulated_card(index).node_id, incarnation, liveness)
        before = self.buried()
        self.feed(Heard("", (), (rumour,), NOW_UNIX))
        assert self.buried() == before

    @rule(outcome=st.sampled_from(ProbeOutcome), good=st.booleans(), pick=st.integers(0, 99))
    def answer(self, outcome: ProbeOutcome, good: bool, pick: int) -> None:
        if not self.pending:
            return
        effect = self.pending.pop(pick % len(self.pending))
        if isinstance(effect, ProbeVia):
            self.feed(ProbeDone(effect.node_id, effect.via, outcome))
        elif isinstance(effect, Exchange) and good:
            self.feed(ExchangeSucceeded(effect.node_id, (), (), NOW_UNIX))
        elif isinstance(effect, Exchange):
            self.feed(ExchangeFailed(effect.node_id))

    @rule(index=indices)
    def ping(self, index: int) -> None:
        self.feed(Reached(simulated_card(index).node_id))

    @rule(port=st.integers(1, 5))
    def address(self, port: int) -> None:
        self.feed(AddressFound(f"10.0.0.9:{port}"))

    @rule(index=indices)
    def open_exchange(self, index: int) -> None:
        message = opening(self.state, simulated_card(index).node_id)
        assert len(message.cards) <= 9

    @invariant()
    def this_node_is_alive_to_itself(self) -> None:
        registry = self.state.registry
        assert registry.liveness(registry.own_id) is Liveness.ALIVE

    @invariant()
    def every_suspect_and_nobody_else_has_a_suspicion(self) -> None:
        registry = self.state.registry
        suspects = {
            node_id
            for node_id in registry.nodes()
            if registry.liveness(node_id) is Liveness.SUSPECT
        }
        assert set(self.state.suspicions) == suspects

    @invariant()
    def live_peers_and_nobody_else_are_visited(self) -> None:
        registry = self.state.registry
        live = {node_id for node_id in registry.nodes() if self.state.is_live_peer(node_id)}
        newcomers = {node_id for node_id in live if registry.is_stranger(node_id)}
        assert all(node_id in self.state.newcomers for node_id in newcomers)
        assert all(node_id in self.state.peers for node_id in live - newcomers)
        assert len(self.state.newcomers) == len(newcomers)
        assert len(self.state.peers) == len(live - newcomers)
        assert set(self.state.probes) <= live
        assert set(self.state.calls) <= live

    @invariant()
    def incarnations_never_fall(self) -> None:
        registry = self.state.registry
        for node_id in registry.nodes():
            held = registry.card(node_id).incarnation
            assert held >= self.highest.get(node_id, 0)
            self.highest[node_id] = held


TestMembershipMachine = MembershipMachine.TestCase
TestMembershipMachine.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
