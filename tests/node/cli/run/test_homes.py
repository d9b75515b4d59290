"""What nodes say of themselves, as a choice of one of them takes it."""

from __future__ import annotations

import pytest

from kakeya_fleet.node.cli.run.drafters import loadable_drafters
from kakeya_fleet.node.cli.run.homes import Reach


@pytest.mark.parametrize(
    ("near", "authority", "keeper", "everywhere", "problem"),
    [
        (True, False, False, False, ""),
        (True, True, False, False, ""),
        (False, False, False, True, "without an authority"),
        (False, True, False, True, "owner and keepers alone"),
        (False, True, True, False, "a path on this machine"),
        (False, True, True, True, ""),
    ],
)
def test_who_may_be_told_to_load(
    near: bool, authority: bool, keeper: bool, everywhere: bool, problem: str
) -> None:
    reach = Reach(frozenset({"n"} if near else ()), authority, keeper, everywhere)
    found = reach.problem("n")
    assert problem in found
    assert bool(found) == bool(problem)


def test_every_node_can_load_ngrams_and_what_was_trained_for_a_shipped_verifier() -> None:
    found = {each.name: each for each in loadable_drafters()}
    assert found["ngram"].fits("any", "any")
    assert not found["tiny-dflash"].fits("any", "any")
    assert set(found) == {"ngram", "tiny-dflash"}
