import math
from dataclasses import replace

import pytest

from kakeya import FleetSnapshot, SessionsSnapshot, UnexpectedError
from kakeya_fleet.node.cli.asking.told_values import sanitized
from tests.support.fleet_scene import sample, session, status


def test_texts_are_one_line_however_deep_they_lie() -> None:
    def told(label: str) -> SessionsSnapshot:
        return SessionsSnapshot((session("a", label="mine"), session("b", label=label)))

    assert sanitized(told("your\x1b[2J\ns")) == told("your[2J s")


def test_a_value_without_them_is_itself() -> None:
    told = FleetSnapshot("home", (status("mini-1"),))
    assert sanitized(told) is told


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_outside_the_contract(number: float) -> None:
    with pytest.raises(UnexpectedError, match="for tokens_per_second, which is no quantity"):
        sanitized(replace(sample(1.0, 41.0), tokens_per_second=number))
