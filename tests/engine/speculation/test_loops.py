"""Which text counts as repeating itself."""

import random

import pytest

from kakeya_fleet.engine.speculation.loops import LEAST_REPEATED, LONGEST_PERIOD, LoopWatch


@pytest.mark.parametrize("period", [1, 2, 3, 7, LONGEST_PERIOD])
def test_a_text_said_three_times_in_a_row_is_looped(period: int) -> None:
    watch = LoopWatch()
    said = list(range(period))
    needed = period + max(2 * period, LEAST_REPEATED)
    text = (said * needed)[: needed + 20]
    found = [watch.after([token]) for token in text]
    assert found.index(True) + 1 == needed
    assert all(found[needed - 1 :])
    assert not watch.after([-1])


def test_new_text_and_text_said_twice_are_not_looped() -> None:
    rng = random.Random(3)
    phrase = [rng.randrange(50) for _ in range(12)]
    watch = LoopWatch()
    assert not any(watch.after([token]) for token in [*phrase, 99, *phrase, 98, *phrase])
    assert not LoopWatch().after(range(LONGEST_PERIOD + 1, 400))
    # A period longer than is looked for: a table's rows, say.
    assert not LoopWatch().after([*range(LONGEST_PERIOD + 1)] * 9)
