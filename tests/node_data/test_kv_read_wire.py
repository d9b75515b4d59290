"""The layout of reads of keys and values, and of their answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kakeya_fleet.engine.restoration.keys_values_source import KvRead
from kakeya_fleet.node.links.protocol.tensor import TensorDtype
from kakeya_fleet.node.roles.archive.kv_read_wire import (
    MOST_REFUSAL_BYTES,
    BadRead,
    piece_from_wire,
    piece_to_wire,
    reads_from_wire,
    reads_to_wire,
    refusal_from_wire,
    refusal_to_wire,
    stored_from_wire,
    stored_to_wire,
)


def test_reads_and_pieces_keep_their_layout() -> None:
    reads = [KvRead(0, 3, 9), KvRead((1 << 64) - 1, 1 << 40, (1 << 40) + 8192)]
    tensor = reads_to_wire(reads)
    assert (tensor.name, tensor.shape) == ("read", (2, 24))
    assert bytes(tensor.data[:24]) == b"".join(number.to_bytes(8, "little") for number in (0, 3, 9))
    assert reads_from_wire(tensor) == reads
    for dtype in (np.float32, np.uint16):
        numbers = np.arange(2 * 3 * 5 * 4).astype(dtype).reshape(2, 3, 5, 4)
        piece = piece_to_wire(12, 77, numbers)
        assert (piece.name, piece.first_position, piece.shape) == ("kv.12", 77, (2, 3, 5, 4))
        back = piece_from_wire(piece, 12)
        assert back.dtype == dtype
        assert np.array_equal(back, numbers)
        with pytest.raises(BadRead):
            piece_from_wire(piece, 1)
    for bad in (
        replace(tensor, name="reads"),
        replace(tensor, shape=(48,)),
        replace(tensor, shape=(3, 16)),
        replace(tensor, dtype=TensorDtype.FLOAT32),
    ):
        with pytest.raises(BadRead):
            reads_from_wire(bad)
    with pytest.raises(BadRead):
        stored_from_wire(tensor)
    assert stored_from_wire(stored_to_wire(1 << 40)) == 1 << 40
    assert refusal_from_wire(refusal_to_wire("nein: \u00fc")) == "nein: \u00fc"
    assert len(refusal_from_wire(refusal_to_wire("n" * 9999))) == MOST_REFUSAL_BYTES
