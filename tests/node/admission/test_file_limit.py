"""Descriptors: how many are the node's own."""

import pytest

from kakeya_fleet.node.admission.file_limit import reserve_of


@pytest.mark.parametrize(("limit", "reserve"), [(100, 50), (256, 64), (1024, 128), (65536, 8192)])
def test_an_eighth_is_kept_for_the_node(limit: int, reserve: int) -> None:
    assert reserve_of(limit) == reserve
