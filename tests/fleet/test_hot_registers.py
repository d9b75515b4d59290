from __future__ import annotations

from kakeya_fleet.fleet.membership.hot_registers import REPEATS, HotRegisters


def test_news_is_told_a_bounded_number_of_times() -> None:
    hot = HotRegisters()
    hot.heat("a")
    times = 0
    while hot.take(8, node_count=50):
        times += 1
    assert times == REPEATS * 6


def test_the_least_told_come_first_and_of_equals_the_newest() -> None:
    hot = HotRegisters()
    for name in "abc":
        hot.heat(name)
    assert hot.take(2, 50) == ["c", "b"]
    assert hot.take(2, 50) == ["a", "c"]
    hot.heat("b")
    assert hot.take(1, 50) == ["b"]


def test_cooled_is_told_no_more() -> None:
    hot = HotRegisters()
    hot.heat("a")
    hot.cool("a")
    hot.cool("never")
    assert hot.take(1, 50) == []
    assert len(hot) == 0
