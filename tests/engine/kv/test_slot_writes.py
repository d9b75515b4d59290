"""Where the keys of consecutive positions go."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.engine.contracts.positions import (
    COARSE_SEGMENT,
    FINE_SLOTS,
    Placement,
    contiguous_placement,
    ring_placement,
)
from kakeya_fleet.engine.kv.slot_writes import writes

Asked = tuple[Placement, int, int]
"""A placement, the first position, and how many."""


@st.composite
def _of_rings(draw: st.DrawFn) -> Asked:
    placement = ring_placement(draw(st.integers(0, 80)), draw(st.integers(1, 2500)), 8192)
    return placement, draw(st.integers(0, 8192)), draw(st.integers(0, placement.slots))


@st.composite
def _of_ranges(draw: st.DrawFn) -> Asked:
    origin = FINE_SLOTS + COARSE_SEGMENT * draw(st.integers(-2, 3))
    placement = contiguous_placement(origin + draw(st.integers(1, 4000)), origin)
    first = draw(st.integers(0, placement.slots))
    return placement, origin + first, draw(st.integers(0, placement.slots - first))


@given(st.one_of(_of_rings(), _of_ranges()))
def test_each_position_goes_to_its_slot_in_as_few_pieces_as_there_can_be(asked: Asked) -> None:
    placement, start, count = asked
    found = writes(placement, start, count)
    where = [
        (write.token + index, sum(placement.segments[: write.segment]) + write.slot + index)
        for write in found
        for index in range(write.count)
    ]
    assert where == [(token, placement.slot(start + token)) for token in range(count)]
    assert all(write.slot + write.count <= placement.segments[write.segment] for write in found)
    for one, other in pairwise(found):
        assert one.segment != other.segment or other.slot != one.slot + one.count
