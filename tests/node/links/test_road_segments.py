"""What another end of a road may do to a segment, and ask of it."""

from __future__ import annotations

import os
import secrets
import sys

import pytest

from kakeya_fleet.node.links.roads.contract import RoadFailed
from kakeya_fleet.node.links.roads.meeting import host_digest
from kakeya_fleet.node.links.roads.segment import SegmentBudget, make_segment
from kakeya_fleet.node.links.roads.shared_memory_road import SharedMemoryRoads


@pytest.mark.skipif(sys.platform != "linux", reason="seals are Linux's")
async def test_a_segment_that_was_handed_over_is_not_cut_short() -> None:
    segment = await make_segment(1 << 20, SegmentBudget(1 << 20), None)
    other = os.dup(segment.descriptor)
    for size in (0, 2 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(other, size)
    os.pwrite(other, b"x", 5)
    assert segment.view[5] == ord("x")
    segment.close()
    os.close(other)


@pytest.mark.parametrize(("piece_bytes", "slot_count"), [(1, 1 << 20), (4095, 4), (4096, 65)])
async def test_a_segment_in_too_many_pieces_is_refused(piece_bytes: int, slot_count: int) -> None:
    """Each piece is a frame of its own, and an entry of a list in the agent."""
    terms = {
        "host": host_digest(),
        "socket": "@nobody",
        "piece_bytes": str(piece_bytes),
        "slot_count": str(slot_count),
    }
    plan = await SharedMemoryRoads().answer(secrets.token_bytes(32), terms)
    with pytest.raises(RoadFailed, match="too finely"):
        await plan.build(terms)
