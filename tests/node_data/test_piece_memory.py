"""Memory of pieces comes back when nobody has them any more, and not before."""

from __future__ import annotations

import numpy as np

from kakeya_fleet.node.roles.archive.kv_read_wire import piece_to_wire
from kakeya_fleet.node.roles.archive.piece_memory import PieceMemory


def test_memory_is_used_again_once_the_last_reference_is_gone() -> None:
    memory = PieceMemory()
    numbers = memory.take(4096).view(np.float32).reshape(2, 2, 16, 16)
    address = numbers.__array_interface__["data"][0]
    tensor = piece_to_wire(0, 3, numbers)
    del numbers
    # What travels holds it, and so does a part of that.
    assert memory.spare_bytes == 0
    part = memoryview(tensor.data)[100:200]
    del tensor
    assert memory.spare_bytes == 0
    other = memory.take(4096)
    assert other.__array_interface__["data"][0] != address
    del part
    assert memory.spare_bytes == 4096
    again = memory.take(1000)
    assert again.__array_interface__["data"][0] == address
    assert len(again) == 1000
    assert memory.spare_bytes == 0
    # All of it comes back, though less was taken.
    del again
    assert memory.spare_bytes == 4096
    assert len(memory.take(5000)) == 5000
    assert memory.spare_bytes == 4096 + 5000


def test_what_is_kept_is_bounded() -> None:
    memory = PieceMemory(most_spare_bytes=1000)
    taken = [memory.take(400) for _ in range(5)]
    taken.clear()
    assert memory.spare_bytes == 800
