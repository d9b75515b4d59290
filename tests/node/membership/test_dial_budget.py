from __future__ import annotations

from kakeya_fleet.node.membership.dial_budget import (
    DIAL_BURST,
    DIALS_A_SECOND,
    MAX_INTRODUCERS,
    DialBudget,
)


def test_each_introducer_has_a_burst_and_a_rate_of_its_own() -> None:
    now = 0.0
    budget = DialBudget(lambda: now)
    assert sum(budget.take("10.0.0.66") for _ in range(1000)) == DIAL_BURST
    assert budget.take("10.0.0.5")
    now = 10.0
    assert sum(budget.take("10.0.0.66") for _ in range(1000)) == 10 * DIALS_A_SECOND


def test_any_number_of_introducers_takes_bounded_memory() -> None:
    budget = DialBudget(lambda: 0.0)
    assert all(budget.take(f"host-{index}") for index in range(10 * MAX_INTRODUCERS))
    assert len(budget) == MAX_INTRODUCERS
