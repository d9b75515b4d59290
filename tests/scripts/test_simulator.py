"""The simulator of membership: it repeats itself, weighs messages truly, and finds what is broken.

Storms are parametrised by their seed; hypothesis prints the faults that it chose.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya.v1 import capability_pb2
from kakeya_fleet.fleet.cards.card import PROTOCOL_MAX, PROTOCOL_MIN
from kakeya_fleet.fleet.cards.liveness import Liveness, Rumour
from kakeya_fleet.fleet.membership.events import Heard, Reached
from kakeya_fleet.fleet.membership.exchange import ExchangeAnswer, ExchangeMessage, answer, opening
from kakeya_fleet.fleet.membership.membership import step
from kakeya_fleet.fleet.membership.registry import Registry
from kakeya_fleet.fleet.membership.round_robin import RoundRobin
from kakeya_fleet.fleet.membership.state import Membership
from kakeya_fleet.node.membership.capability_wire import digest_to_wire, rumours_to_wire
from kakeya_fleet.node.membership.card_wire import signed_from_wire, signed_to_wire
from scripts.plot.membership import draw
from scripts.simulator import calls, kept_rows
from scripts.simulator.cards import FLEET_NAME, NOW_UNIX, signed, simulated_card, verify
from scripts.simulator.faults import Weather, between, long_tailed, one_way, two_sides, whole
from scripts.simulator.fleet import SimulatedFleet
from scripts.simulator.kept_rows import KeptRows
from scripts.simulator.measures import agrees, all_hold, all_hold_as, false_deaths, nearest_rank
from scripts.simulator.plan import LOSS, News, Plan, jobs, summary
from scripts.simulator.randomness import QuickRandom
from scripts.simulator.shared_storage import LONGEST_SECONDS
from scripts.simulator.storms import STORMS, storm
from scripts.simulator.table import table
from scripts.simulator.wire_size import answer_bytes, request_bytes

TINY = Plan(
    news=(News(8, 0.0, 2, 2), News(8, LOSS, 1, 1)),
    deaths={2: 2},
    idle=(2, 8),
    memory=(8,),
    hours=0.002,
    hours_runs=1,
    storm_seeds=0,
    storm_seconds=0.0,
)


def lived(fleet: SimulatedFleet, rng: QuickRandom) -> tuple[object, ...]:
    """Half a minute with news, a death, loss and a restart; all that can be seen of it."""
    nodes = list(fleet.nodes.values())
    fleet.run(2.0)
    fleet.announce(rng.choice(nodes))
    fleet.kill(nodes[3])
    fleet.run(14.0)
    fleet.restart(nodes[3], nodes[4].membership.registry.own.card.addresses)
    fleet.run(10.0)
    roots = [node.membership.registry.root_hash() for node in fleet.nodes.values()]
    # Which of them are equal: how one is computed is the storage's own.
    equal = [roots.index(root) for root in roots]
    return fleet.network.sent_count, fleet.network.sent_bytes, fleet.burials, equal


def keep_apart(fleet: SimulatedFleet) -> None:
    """Gives every node of a shared fleet storage of its own, with the same in it."""
    fleet._common = None
    cards = [node.membership.registry.own for node in fleet.nodes.values()]
    for node in fleet.nodes.values():
        shared = node.membership
        own = Membership(Registry(shared.registry.own, verify, now=0.0), settings=shared.settings)
        step(own, Heard("", cards, (), NOW_UNIX), 0.0, Random(0))
        for card in cards:
            step(own, Reached(card.card.node_id), 0.0, Random(0))
            own.hot_cards.cool(card.card.node_id)
        own.peers = RoundRobin()
        own.peers._order = list(shared.peers._order)
        own.peers._present = set(own.peers._order)
        node.membership = own


@pytest.mark.parametrize("seed", range(2))
def test_shared_storage_takes_the_same_steps_as_one_of_its_own(seed: int) -> None:
    found = []
    for is_shared in (True, False):
        rng = QuickRandom(seed)
        fleet = SimulatedFleet(24, rng, weather=Weather(loss=0.05), shared=True)
        if not is_shared:
            keep_apart(fleet)
        found.append(lived(fleet, rng))
    assert found[0] == found[1]


def test_a_seed_repeats_all_and_another_does_not() -> None:
    runs = []
    for seed in (1, 1, 2):
        rng = QuickRandom(seed)
        runs.append(lived(SimulatedFleet(8, rng, weather=Weather(loss=0.2)), rng))
    assert runs[0] == runs[1] != runs[2]


def test_shared_storage_refuses_to_run_until_cards_grow_old() -> None:
    fleet = SimulatedFleet(2, QuickRandom(1), shared=True)
    fleet.run(2.0)
    fleet.agenda.now = LONGEST_SECONDS + 1.0
    with pytest.raises(ValueError, match="600 s at most"):
        fleet.run(3.0)


def test_bytes_are_those_of_the_wire() -> None:
    fleet = SimulatedFleet(9, QuickRandom(1))
    first, second = list(fleet.nodes.values())[:2]
    registry = first.membership.registry
    for index in range(3):
        fleet.announce(list(fleet.nodes.values())[index + 2])
    rumours = (
        Rumour(second.node_id, 1, Liveness.SUSPECT),
        Rumour(second.node_id, 300, Liveness.LEFT, bytes(64)),
    )
    cards = tuple(node.membership.registry.own for node in fleet.living())
    keys = tuple(record.entry.node_key for record in registry.records())
    for message in (
        opening(first.membership, second.node_id),
        ExchangeMessage(first.node_id, registry.root_hash(), cards, rumours, keys),
    ):
        request = capability_pb2.ExchangeCapabilitiesRequest(
            sender_node_id=message.sender_id,
            fleet_name=FLEET_NAME,
            protocol_min=PROTOCOL_MIN,
            protocol_max=PROTOCOL_MAX,
            root_hash=message.root_hash,
            cards=map(signed_to_wire, message.cards),
            rumours=rumours_to_wire(message.rumours),
            wanted_node_keys=message.wanted_node_keys,
        )
        assert request_bytes(message) == len(request.SerializeToString())
    apart = answer(first.membership, ExchangeMessage(second.node_id, bytes(32), (), ()))
    assert apart.digest is not None
    for told in (apart, ExchangeAnswer(first.node_id, bytes(32), cards, rumours, None)):
        response = capability_pb2.ExchangeCapabilitiesResponse(
            sender_node_id=told.sender_id,
            root_hash=told.root_hash,
            cards=map(signed_to_wire, told.cards),
            rumours=rumours_to_wire(told.rumours),
        )
        if told.digest is not None:
            response.digest.extend(digest_to_wire(told.digest.lines))
            response.digest_first_key = told.digest.first_key
            response.digest_last_key = told.digest.last_key
        assert answer_bytes(told) == len(response.SerializeToString())


def test_a_simulated_card_is_one_of_the_wire() -> None:
    own = signed(simulated_card(3))
    assert signed_from_wire(signed_to_wire(own)) == own


@pytest.mark.parametrize("name", STORMS)
def test_storms_are_weathered(name: str) -> None:
    seed = 1
    found = storm(name, seed, 40.0)
    assert found["kept"], f"{name} at seed {seed}: {found}"


nodes = st.integers(0, 7)
faults = st.one_of(
    st.tuples(st.just("sides"), st.sets(nodes, min_size=1, max_size=7)),
    st.tuples(st.just("one way"), st.tuples(nodes, nodes)),
    st.tuples(st.just("weather"), st.floats(0.0, 0.4), st.floats(0.0, 0.5)),
    st.tuples(st.just("news"), nodes),
    st.tuples(st.just("freeze"), nodes),
)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32), chosen=st.lists(faults, max_size=5), count=st.integers(2, 8))
def test_whatever_the_network_did_all_agree_after_it(
    seed: int, chosen: list[tuple[object, ...]], count: int
) -> None:
    fleet = SimulatedFleet(count, QuickRandom(seed))
    ids = list(fleet.nodes)
    for fault in chosen:
        match fault:
            case ("sides", set(side)):
                fleet.network.is_cut = two_sides({ids[index % count] for index in side})
            case ("one way", (int(source), int(target))):
                fleet.network.is_cut = one_way(ids[source % count], ids[target % count])
            case ("weather", float(loss), float(duplicates)):
                fleet.network.weather = Weather(loss, duplicates, long_tailed(0.01))
            case ("news", int(index)):
                fleet.announce(fleet.nodes[ids[index % count]])
            case ("freeze", int(index)):
                fleet.nodes[ids[index % count]].freeze()
        fleet.run(8.0)
    fleet.network.is_cut, fleet.network.weather = whole, Weather()
    for node in fleet.living():
        node.thaw()
    assert fleet.run(120.0, until=lambda: agrees(fleet))


def test_the_dead_are_remembered_by_all_who_knew_them() -> None:
    fleet = SimulatedFleet(5, QuickRandom(1))
    fleet.run(3.0)
    victim = fleet.living()[0]
    fleet.kill(victim)
    fleet.run(60.0)
    assert all_hold_as(fleet, victim.node_id, Liveness.DEAD)


def without_digests(monkeypatch: pytest.MonkeyPatch) -> SimulatedFleet:
    """Ten nodes that know each other, whose answers bring what is hot and nothing else."""

    def hot_alone(state: Membership, message: ExchangeMessage) -> ExchangeAnswer:
        return replace(answer(state, message), digest=None)

    monkeypatch.setattr(calls, "answer", hot_alone)
    fleet = SimulatedFleet(10, QuickRandom(3))
    fleet.run(3.0)
    return fleet


def test_news_rides_on_messages_without_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = without_digests(monkeypatch)
    announced = fleet.announce(fleet.living()[4])
    assert fleet.run(8.0, until=all_hold(fleet, announced))


def test_farewells_ride_on_messages_without_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = without_digests(monkeypatch)
    leaver = fleet.living()[4]
    fleet.leave(leaver)
    assert fleet.run(8.0, until=lambda: all_hold_as(fleet, leaver.node_id, Liveness.LEFT))


def test_delays_are_where_they_should_be() -> None:
    rng = QuickRandom(1)
    assert all(0.1 <= between(0.1, 0.2)(rng) <= 0.2 for _ in range(100))
    drawn = sorted(long_tailed(0.02)(rng) for _ in range(2001))
    assert 0.018 <= drawn[1000] <= 0.022
    assert drawn[0] > 0.0
    assert drawn[-1] > 0.2


def test_a_process_that_is_gone_or_frozen_dies_no_false_death() -> None:
    fleet = SimulatedFleet(4, QuickRandom(2))
    fleet.run(3.0)
    dead, frozen, cut, _ = fleet.living()
    fleet.kill(dead)
    frozen.freeze()
    fleet.run(60.0)
    assert fleet.burials
    assert false_deaths(fleet.burials) == []
    fleet.network.is_cut = two_sides({cut.node_id})
    fleet.run(60.0)
    assert {burial.subject for burial in false_deaths(fleet.burials)} >= {cut.node_id}


def test_a_report_says_what_was_missed(tmp_path: Path) -> None:
    rows = [job() for job in jobs(TINY)]
    figures = summary(rows)
    draw(figures, tmp_path / "picture.svg")
    assert "bound" in (tmp_path / "picture.svg").read_text()
    assert [row["samples"] for row in figures["news"]] == [4, 1]
    assert all(row["kept"] for row in figures["news"])
    assert "MISSED" not in table(figures)
    bad = [{**row, "rounds_held": [None]} if row["kind"] == "news" else row for row in rows]
    bad = [{**row, "false_deaths": 1} if row["kind"] == "hours of loss" else row for row in bad]
    missed = summary(bad)
    assert not any(row["kept"] for row in (*missed["news"], *missed["hours_of_loss"]))
    assert table(missed).count("MISSED") == 3
    assert nearest_rank([3.0, 1.0, 2.0], 0.99) == 3.0


def test_an_interrupted_run_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    todo = [job for job in jobs(TINY) if job.kind in ("idle", "memory")]
    path = tmp_path / "rows.jsonl"
    kept = KeptRows(path)
    rows = [{**job(), "processor_seconds": 0.0} for job in todo]
    for job, row in zip(todo[:-1], rows[:-1], strict=True):
        kept.keep(job, row)
    with path.open("a") as file:
        file.write('{"code": "cut sh')
    again = KeptRows(path)
    assert [again.of(job) for job in todo] == [*rows[:-1], None]
    again.keep(todo[-1], rows[-1])
    assert [KeptRows(path).of(job) for job in todo] == rows
    # A row of other code is none of these.
    monkeypatch.setattr(kept_rows, "code_digest", lambda: "other")
    assert [KeptRows(path).of(job) for job in todo] == [None] * len(todo)
