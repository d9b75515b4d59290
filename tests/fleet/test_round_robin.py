from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.fleet.membership.round_robin import RoundRobin


@given(st.integers(1, 20), st.integers(0, 2**32))
@settings(deadline=None)
def test_each_pass_visits_every_peer_once(count: int, seed: int) -> None:
    rng, order = Random(seed), RoundRobin()
    for index in range(count):
        order.add(str(index), rng)
    for _ in range(3):
        assert {order.visit(rng) for _ in range(count)} == {str(i) for i in range(count)}


def test_passes_are_shuffled() -> None:
    rng, order = Random(0), RoundRobin()
    for index in range(10):
        order.add(str(index), rng)
    passes = {tuple(order.visit(rng) for _ in range(10)) for _ in range(5)}
    assert len(passes) == 5


@given(st.integers(2, 12), st.integers(0, 12), st.integers(0, 2**32))
@settings(deadline=None)
def test_a_newcomer_is_visited_within_the_pass(count: int, visited: int, seed: int) -> None:
    rng, order = Random(seed), RoundRobin()
    for index in range(count):
        order.add(str(index), rng)
    for _ in range(visited % count):
        order.visit(rng)
    order.add("new", rng)
    left = count - visited % count
    assert "new" in [order.visit(rng) for _ in range(left + 1)]


@given(st.lists(st.tuples(st.sampled_from("avd"), st.integers(0, 4)), max_size=40))
@settings(deadline=None)
def test_only_present_peers_are_visited(actions: list[tuple[str, int]]) -> None:
    rng, order, present = Random(0), RoundRobin(), set[str]()
    for action, index in actions:
        match action:
            case "a":
                order.add(str(index), rng)
                present.add(str(index))
            case "d":
                order.discard(str(index))
                present.discard(str(index))
            case _:
                visited = order.visit(rng)
                assert (visited in present) if present else visited is None
        assert len(order) == len(present)


def test_a_departure_skips_nobody() -> None:
    rng, order = Random(5), RoundRobin()
    for index in range(6):
        order.add(str(index), rng)
    first = order.visit(rng)
    assert first is not None
    order.discard(first)
    rest = {order.visit(rng) for _ in range(5)}
    assert rest == {str(index) for index in range(6)} - {first}
