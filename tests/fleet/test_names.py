"""Names that several nodes have, and one that is free."""

from __future__ import annotations

import pytest

from kakeya_fleet.fleet.views.names import free_name, shared_names


@pytest.mark.parametrize(
    ("name", "taken", "free"),
    [
        ("mini-1", {"mini-1"}, "mini-2"),
        ("mini-1", {"mini-1", "mini-2", "mini-3"}, "mini-4"),
        ("mini-09", {"mini-09"}, "mini-10"),
        ("box", {"box"}, "box-2"),
        ("box", {"box", "box-2"}, "box-3"),
        ("7", {"7"}, "8"),
    ],
)
def test_the_free_name_is_the_next_that_nobody_has(name: str, taken: set[str], free: str) -> None:
    assert free_name(name, taken) == free


def test_names_of_several_nodes_are_told_with_their_ids() -> None:
    named = [("c", "box"), ("a", "mini"), ("b", "box"), ("d", "other")]
    assert shared_names(named) == {"box": ("c", "b")}
    assert shared_names([]) == {}
