"""Coalescing: each thing is told of soon, and not too often."""

import math

from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.node.watch.pacer import Pacer

steps = st.lists(
    st.tuples(
        st.floats(0.0, 0.5),
        st.sampled_from("abc"),
        st.sampled_from((0.1, 0.25, 1.0)),
    ),
    max_size=60,
)


@given(steps)
def test_every_change_is_told_within_its_interval_and_none_twice(
    changes: list[tuple[float, str, float]],
) -> None:
    pacer: Pacer[str] = Pacer()
    now = 0.0
    told: dict[str, list[float]] = {key: [] for key in "abc"}
    waiting: dict[str, tuple[float, float]] = {}

    def take(until: float) -> None:
        while (due := pacer.next_due) is not None and due <= until:
            for key in pacer.take(due):
                latest, least = waiting.pop(key)
                assert due <= latest + 1e-9
                if told[key]:
                    assert due - told[key][-1] >= least - 1e-9
                told[key].append(due)

    for pause, key, interval in changes:
        now += pause
        take(now)
        pacer.mark(key, now, interval)
        latest, least = waiting.get(key, (math.inf, math.inf))
        waiting[key] = (min(latest, now + interval), min(least, interval))
    take(math.inf)
    assert waiting == {}
    assert pacer.next_due is None


def test_what_was_quiet_is_due_at_once_and_then_waits() -> None:
    pacer: Pacer[str] = Pacer()
    pacer.mark("a", 10.0, 0.1)
    assert pacer.next_due == 10.0
    assert pacer.take(10.0) == ["a"]
    pacer.mark("a", 10.01, 0.1)
    assert pacer.take(10.05) == []
    assert pacer.take(10.11) == ["a"]


def test_an_urgent_change_overtakes_a_patient_one() -> None:
    pacer: Pacer[str] = Pacer()
    pacer.mark("a", 0.0, 1.0)
    pacer.take(0.0)
    pacer.mark("a", 0.2, 1.0)
    assert pacer.next_due == 1.0
    pacer.mark("a", 0.3, 0.1)
    assert pacer.next_due == 0.3


def test_what_is_no_more_is_not_told() -> None:
    pacer: Pacer[str] = Pacer()
    pacer.mark("a", 0.0, 1.0)
    pacer.forget("a")
    assert pacer.take(5.0) == []
    assert pacer.next_due is None
