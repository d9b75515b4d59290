from __future__ import annotations

from collections.abc import Sequence

import pytest

from kakeya_fleet.fleet.diagnosis.applications import Way, applications
from kakeya_fleet.fleet.diagnosis.finding import Level

AT = "192.168.1.5:7601"


@pytest.mark.parametrize(
    ("ways", "levels", "words"),
    [
        (None, [Level.NOT_RUN], "no authority"),
        ([], [Level.OK], "no way in here"),
        ([Way("gRPC", AT), Way("HTTPS", "h:1")], [Level.OK], f"{AT} (gRPC), h:1 (HTTPS)"),
        ([Way("gRPC", AT, "nothing answers there")], [Level.PROBLEM], "nobody gets in at"),
        (
            [Way("HTTPS", AT, is_named=False), Way("gRPC", AT)],
            [Level.WARNING, Level.OK],
            f"clients of HTTP do not trust {AT}",
        ),
    ],
)
def test_ways_for_applications_are_told_by_what_a_client_finds_there(
    ways: Sequence[Way] | None, levels: list[Level], words: str
) -> None:
    found = applications(ways)
    assert [each.level for each in found] == levels
    assert any(words in f"{each.what} {each.cause}" for each in found)
    assert all(each.mend for each in found if each.level in (Level.WARNING, Level.PROBLEM))
