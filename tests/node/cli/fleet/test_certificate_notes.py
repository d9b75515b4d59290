"""What `fleet status` says of certificates that no keeper has renewed."""

from pathlib import Path

import pytest

from kakeya import Liveness
from kakeya_fleet.node.cli.fleet.notes import note_lines
from tests.node.cli.fleet.test_fleet_table import status
from tests.support.members import first_keeper, member

DAY = 86_400.0


@pytest.mark.parametrize(
    ("age", "words"),
    [
        (3.4 * DAY, []),
        (5 * DAY, ["late's certificate ends in 2.0 days, and no keeper has renewed it: start a"]),
        (8 * DAY, ["late's certificate has ended, and no keeper has renewed it: start a keeper"]),
    ],
)
def test_a_certificate_that_no_keeper_renewed_in_time_is_told(
    tmp_path: Path, age: float, words: list[str]
) -> None:
    keeper = first_keeper(tmp_path / "a", "home")
    late = member(tmp_path / "b", keeper, age=age).member.certificate.hex()
    good = keeper.member.certificate.hex()
    nodes = [
        status("fine", certificate=good),
        status("late", certificate=late),
        status("plain"),
        status("gone", Liveness.DEAD, certificate=late),
    ]
    lines = note_lines(nodes, (), [])
    assert [line[: len(word)] for line, word in zip(lines, words, strict=True)] == words
