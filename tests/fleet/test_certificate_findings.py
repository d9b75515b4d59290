from __future__ import annotations

import pytest

from kakeya_fleet.fleet.diagnosis.certificates import DAY, Membership, certificates
from kakeya_fleet.fleet.diagnosis.finding import Level

WEEK = 7 * DAY


@pytest.mark.parametrize(
    ("membership", "levels", "words"),
    [
        (None, [Level.NOT_RUN], "no authority"),
        (Membership(6.5 * DAY, WEEK, 2, 1), [Level.OK, Level.OK], "1 keeper of 2 answer"),
        (Membership(3.4 * DAY, WEEK, 2, 2), [Level.OK, Level.OK], "good for 3.4 days"),
        (Membership(2 * DAY, WEEK, 2, 2), [Level.WARNING, Level.OK], "ends in 2.0 days"),
        (Membership(0.5 * DAY, WEEK, 2, 0), [Level.PROBLEM, Level.WARNING], "no keeper answers"),
        (
            Membership(3 * DAY, WEEK, 2, 0),
            [Level.OK, Level.WARNING],
            "this node's ends in 3.0 days",
        ),
        (
            Membership(6 * DAY, WEEK, 2, 2, tensors_in_clear=True),
            [Level.OK, Level.OK, Level.WARNING],
            "--trusted-network: its rings and groups carry hidden states",
        ),
        (Membership(-DAY, WEEK, 1, 1), [Level.PROBLEM, Level.WARNING], "has one keeper"),
    ],
)
def test_a_certificate_is_told_by_what_is_left_of_it_and_who_could_renew_it(
    membership: Membership | None, levels: list[Level], words: str
) -> None:
    found = certificates(membership)
    assert [each.level for each in found] == levels
    assert words in " ".join(f"{each.what} {each.cause}" for each in found)
    for each in found:
        assert bool(each.mend) == (each.level in (Level.WARNING, Level.PROBLEM))
