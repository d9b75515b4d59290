"""As whom an address is called: whose word counts before whose."""

from __future__ import annotations

from pathlib import Path

import pytest

from kakeya_fleet.node.cli.asking.memberships import Place, Standing, place_for
from kakeya_fleet.node.cli.shell.failure import CommandFailed

PLAIN = Place(
    Path("/s/plain"), Standing.RUNNING, address="127.0.0.1:1", peers=("10.0.0.1:1", "10.0.0.9:1")
)
HOME = Place(
    Path("/s/home"),
    Standing.RUNNING,
    "aa",
    "home",
    "10.0.0.5:2",
    "127.0.0.1:2",
    ("10.0.0.2:1", "10.0.0.9:1"),
)
WORK = Place(Path("/s/work"), Standing.KEPT, "bb", "work", peers=("10.0.0.3:1",))
SECOND = Place(Path("/s/second"), Standing.RUNNING, "bb", "work", "10.0.0.5:3")


@pytest.mark.parametrize(
    ("address", "places", "expected"),
    [
        ("10.0.0.7:1", [], None),
        ("10.0.0.5:2", [PLAIN, HOME], HOME),
        ("127.0.0.1:2", [PLAIN, HOME], HOME),
        ("127.0.0.1:1", [PLAIN, HOME], None),
        # Known to one of them.
        ("10.0.0.1:1", [PLAIN, HOME], None),
        ("10.0.0.2:1", [PLAIN, HOME], HOME),
        ("10.0.0.3:1", [PLAIN, HOME, WORK], WORK),
        # Known to both, or to nobody: what is secret stays so.
        ("10.0.0.9:1", [PLAIN, HOME], HOME),
        ("10.0.0.7:1", [PLAIN, HOME, WORK], HOME),
        ("10.0.0.7:1", [PLAIN, WORK], None),
        ("10.0.0.7:1", [WORK], WORK),
    ],
)
def test_an_address_is_called_by_the_node_that_knows_it_or_the_only_one(
    address: str, places: list[Place], expected: Place | None
) -> None:
    assert place_for(address, places) == expected


def test_what_a_node_tells_of_is_called_as_it_is_itself() -> None:
    places = [PLAIN, HOME]
    assert place_for("10.0.0.7:1", places, via="127.0.0.1:1") is None
    assert place_for("10.0.0.1:1", places, via="10.0.0.5:2") == HOME
    assert place_for("127.0.0.1:1", places, via="10.0.0.5:2") is None


def test_of_several_fleets_none_is_guessed() -> None:
    with pytest.raises(CommandFailed, match=r"home \(/s/home\), work \(/s/second\)") as caught:
        place_for("10.0.0.7:1", [HOME, SECOND])
    assert caught.value.reason == "FLEET_AMBIGUOUS"
    assert "KAKEYA_STATE=FOLDER" in caught.value.message


def test_the_one_of_the_environment_decides() -> None:
    named = Place(Path("/n"), Standing.NAMED, "cc", "other")
    assert place_for("10.0.0.7:1", [HOME, SECOND, named]) == named
