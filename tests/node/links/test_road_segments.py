"""What another end of a road may do to a segment, and ask of it."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from pathlib import Path

import pytest

from kakeya_fleet.engine.backends.mlx_ring.protocol import Pieces
from kakeya_fleet.node.links.roads.contract import RoadFailed
from kakeya_fleet.node.links.roads.meeting import Meeting, connected, host_digest
from kakeya_fleet.node.links.roads.segment import SegmentBudget, handed_over, make_segment
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


@pytest.mark.skipif(sys.platform != "linux", reason="seals are Linux's")
@pytest.mark.parametrize("made", ["memory without seals", "a file"])
async def test_a_segment_that_could_be_cut_short_is_not_taken(made: str, tmp_path: Path) -> None:
    """By a peer of this host, whose first cut would end this process with SIGBUS."""
    liar = (
        os.memfd_create("liar", os.MFD_ALLOW_SEALING)
        if made == "memory without seals"
        else os.open(tmp_path / "liar", os.O_RDWR | os.O_CREAT)
    )
    os.ftruncate(liar, 1 << 20)
    with pytest.raises(RoadFailed, match="not sealed"):
        handed_over(os.dup(liar), 1 << 20, None)
    os.close(liar)


@pytest.mark.parametrize("form", ["@{}", "{}/listening", "@{}-kakeya-road", "{}/../kakeya-road-x"])
async def test_sockets_of_other_programs_get_nothing(form: str, tmp_path: Path) -> None:
    address = form.format(tmp_path)
    with socket.socket(socket.AF_UNIX) as listening:
        if not address.endswith("-x"):
            listening.bind("\0" + address[1:] if address.startswith("@") else address)
            listening.listen()
        with pytest.raises(RoadFailed, match="no address of a meeting"):
            await connected(address)
        listening.setblocking(False)
        with pytest.raises((BlockingIOError, OSError)):
            listening.accept()


@pytest.mark.parametrize(("piece_bytes", "slot_count"), [(1, 1 << 20), (4095, 4), (4096, 65)])
async def test_a_segment_in_too_many_pieces_is_refused(piece_bytes: int, slot_count: int) -> None:
    """Each piece is a frame of its own, and an entry of a list in the agent."""
    terms = {
        "host": host_digest(),
        "socket": f"@kakeya-road-{secrets.token_hex(16)}",
        "piece_bytes": str(piece_bytes),
        "slot_count": str(slot_count),
    }
    plan = await SharedMemoryRoads().answer(secrets.token_bytes(32), terms)
    with pytest.raises(RoadFailed, match="too finely"):
        await plan.build(terms)


@pytest.mark.skipif(sys.platform != "linux", reason="seals are Linux's")
async def test_a_caller_that_leaves_in_the_middle_of_a_meeting_is_a_road_that_failed() -> None:
    """It is no fault of this end: nothing of it is an error in the log."""
    nonce = secrets.token_bytes(32)
    pieces = Pieces(4096, 4)
    meeting = Meeting(None)
    terms = {
        "host": host_digest(),
        "socket": meeting.address,
        "piece_bytes": str(pieces.piece_bytes),
        "slot_count": str(pieces.slot_count),
    }
    plan = await SharedMemoryRoads().answer(nonce, terms)
    building = asyncio.create_task(plan.build(terms))
    comer = await meeting.next_comer()
    segment = await make_segment(pieces.segment_bytes, SegmentBudget(1 << 20), None)
    os.pwrite(segment.descriptor, nonce, 0)
    socket.send_fds(comer, [b"\0"], [segment.descriptor])
    comer.close()
    with pytest.raises(RoadFailed, match="broke off the meeting"):
        await building
    segment.close()
    meeting.close()
