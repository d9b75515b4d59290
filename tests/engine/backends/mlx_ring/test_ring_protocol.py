"""What an agent and the child of its ring say to each other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_fleet.engine.backends.mlx_ring.protocol import (
    HEADER_BYTES,
    Frame,
    FrameKind,
    FrameReader,
    Pieces,
    RingStart,
    is_proof,
    proof,
)

WITH_TEXT = (FrameKind.START, FrameKind.FAILED)
frames = st.one_of(
    st.builds(
        lambda kind, text: Frame(kind, len(text), text),
        st.sampled_from(WITH_TEXT),
        st.binary(max_size=300),
    ),
    st.builds(
        Frame,
        st.sampled_from([kind for kind in FrameKind if kind not in WITH_TEXT]),
        st.integers(0, 2**32 - 1),
    ),
)


@settings(deadline=None, max_examples=30)
@given(st.lists(frames, max_size=8), st.data())
def test_frames_survive_any_cuts(said: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(frame.packed() for frame in said)
    reader = FrameReader()
    heard: list[Frame] = []
    while stream:
        count = data.draw(st.integers(1, len(stream)))
        heard += reader.feed(stream[:count])
        stream = stream[count:]
    assert heard == said


@pytest.mark.parametrize(
    "junk", [bytes(8), b"GET / HT", bytes([FrameKind.FAILED, 0, 0, 0, 255, 255, 255, 255])]
)
def test_what_is_no_frame_is_refused(junk: bytes) -> None:
    with pytest.raises(ValueError, match=r"FrameKind|bytes of text"):
        FrameReader().feed(junk)


@settings(deadline=None)
@given(st.integers(1, 50), st.integers(1, 5), st.integers(0, 400))
def test_pieces_are_all_of_it_and_their_slots_never_overlap(
    piece_bytes: int, slot_count: int, byte_count: int
) -> None:
    pieces = Pieces(piece_bytes, slot_count)
    lengths = pieces.lengths(byte_count)
    assert sum(lengths) == byte_count
    assert all(length == piece_bytes for length in lengths[:-1])
    assert 0 not in lengths
    segment = np.zeros(pieces.segment_bytes, np.uint8)
    for direction in (0, 1):
        for index in range(slot_count):
            slot = pieces.slot(segment, direction, index, piece_bytes)
            assert slot.nbytes == piece_bytes
            slot += 1
            again = pieces.slot(segment, direction, index + slot_count, piece_bytes)
            assert np.shares_memory(slot, again)
    assert not segment[:HEADER_BYTES].any()
    assert (segment[HEADER_BYTES:] == 1).all()


@pytest.mark.parametrize(("piece_bytes", "slot_count"), [(0, 1), (1, 0), (-1, -1), (1 << 29, 2)])
def test_a_division_that_another_end_must_not_ask_for(piece_bytes: int, slot_count: int) -> None:
    with pytest.raises(ValueError, match="slots of"):
        Pieces(piece_bytes, slot_count)


def test_each_end_has_a_proof_of_its_own() -> None:
    nonce = bytes(range(32))
    said = proof(nonce, "rank 0")
    assert is_proof(said, nonce, "rank 0")
    assert not is_proof(said, nonce, "rank 1")
    assert not is_proof(said, nonce[::-1], "rank 0")
    assert nonce not in said


def test_what_the_child_is_told_arrives() -> None:
    start = RingStart("ab" * 32, 1, 4 << 20, 2, 10.0)
    (frame,) = FrameReader().feed(start.frame().packed())
    assert RingStart.unpacked(frame.text) == start
    assert start.pieces == Pieces(4 << 20, 2)
