"""Amounts of bytes as they are typed."""

from __future__ import annotations

import click
import pytest

from kakeya_fleet.node.cli.asking.amount import Amount


@pytest.mark.parametrize(
    ("typed", "count"), [("512MiB", 512 << 20), ("6 GiB", 6 << 30), ("1000", 1000), (77, 77)]
)
def test_with_a_unit_or_as_a_whole_number(typed: object, count: int) -> None:
    assert Amount().convert(typed, None, None) == count


@pytest.mark.parametrize(
    ("typed", "says"),
    [("6GB", "no whole number of bytes"), ("-1", "no whole number"), ("0", "0 bytes hold nothing")],
)
def test_others_are_refused_with_an_example(typed: str, says: str) -> None:
    with pytest.raises(click.BadParameter, match=says) as caught:
        Amount().convert(typed, None, None)
    assert "512MiB" in caught.value.message


def test_none_at_all_where_that_means_something() -> None:
    assert Amount(or_none=True).convert("0", None, None) == 0
