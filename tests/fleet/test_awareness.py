from __future__ import annotations

from kakeya_fleet.fleet.membership.awareness import Awareness


def test_a_tick_in_time_stretches_nothing() -> None:
    awareness = Awareness()
    assert not awareness.ticked(0.25)
    assert awareness.stretch == 1.0


def test_lateness_stretches_by_steps_of_a_quarter_second_up_to_eight() -> None:
    awareness = Awareness()
    assert awareness.ticked(0.6)
    assert awareness.stretch == 3.0
    assert awareness.ticked(1e9)
    assert awareness.stretch == 8.0
    for _ in range(7):
        assert not awareness.ticked(0.0)
    assert awareness.stretch == 1.0


def test_silent_helpers_stretch_until_exchanges_are_answered() -> None:
    awareness = Awareness()
    awareness.helpers_silent(3)
    awareness.ticked(0.0)
    assert awareness.stretch == 4.0
    awareness.helpers_silent(100)
    assert awareness.stretch == 8.0
    for _ in range(7):
        awareness.answered()
    assert awareness.stretch == 1.0
