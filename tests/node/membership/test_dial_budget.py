from __future__ import annotations

from kakeya_fleet.node.admission.limits import MembershipLimits
from kakeya_fleet.node.membership.dial_budget import DialBudget

LIMITS = MembershipLimits()


def test_each_introducer_has_a_burst_and_a_rate_of_its_own() -> None:
    now = 0.0
    budget = DialBudget(lambda: now)
    assert sum(budget.take("10.0.0.66") for _ in range(1000)) == LIMITS.dial_burst
    assert budget.take("10.0.0.5")
    now = 10.0
    assert sum(budget.take("10.0.0.66") for _ in range(1000)) == 10 * LIMITS.dials_a_second


def test_any_number_of_introducers_takes_bounded_memory() -> None:
    budget = DialBudget(lambda: 0.0)
    assert all(budget.take(f"host-{index}") for index in range(10 * LIMITS.introducers))
    assert len(budget) == LIMITS.introducers


def test_what_is_gone_of_a_burst_is_shown_until_it_is_back() -> None:
    now = 0.0
    budget = DialBudget(lambda: now)
    assert (budget.most_taken, budget.refused_count) == (0, 0)
    for _ in range(LIMITS.dial_burst + 3):
        budget.take("10.0.0.66")
    budget.take("10.0.0.7")
    assert (budget.most_taken, budget.refused_count) == (LIMITS.dial_burst, 3)
    now = LIMITS.dial_burst / LIMITS.dials_a_second
    assert budget.most_taken == 0
