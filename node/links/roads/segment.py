"""Shared memory without a name: nothing of it is left when its processes have ended.

A memfd on Linux, elsewhere a temporary file that is unlinked before it is used. Other
processes get its descriptor, by inheritance or over a Unix socket.
"""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.node.links.roads.contract import RoadFailed

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ZEROS = bytes(1 << 20)
if sys.platform == "linux":
    _SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class SegmentBudget:
    """Bytes of shared memory that the roads of one builder may take together."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0

    def take(self, byte_count: int) -> None:
        """Raises `RoadFailed` when they are more than are left."""
        left = self._limit_bytes - self._used_bytes
        if byte_count > left:
            raise RoadFailed(
                f"a segment of {byte_count} bytes is more than the {left} bytes left of the "
                f"{self._limit_bytes} that roads may take of the shared memory"
            )
        self._used_bytes += byte_count

    def give_back(self, byte_count: int) -> None:
        """They are free again."""
        self._used_bytes -= byte_count


class Segment:
    """A mapped segment. `descriptor` belongs to it until `close`."""

    def __init__(
        self, descriptor: int, byte_count: int, budget: SegmentBudget | None = None
    ) -> None:
        """Maps what is open. Raises `RoadFailed`, and closes the descriptor then."""
        self.descriptor = descriptor
        self._byte_count = byte_count
        self._budget = budget
        try:
            size = os.fstat(descriptor).st_size
            if size != byte_count:
                raise RoadFailed(f"the segment has {size} bytes, not {byte_count}")
            self._view: NDArray[np.uint8] | None = np.frombuffer(
                mmap.mmap(descriptor, byte_count), np.uint8
            )
        except (OSError, RoadFailed) as error:
            os.close(descriptor)
            raise RoadFailed(f"the segment cannot be mapped: {error}") from error

    @property
    def view(self) -> NDArray[np.uint8]:
        """All of its bytes. Raises `RoadFailed` after `close`."""
        if self._view is None:
            raise RoadFailed("the segment is closed")
        return self._view

    def close(self) -> None:
        """Gives it up; the memory is free when copies in flight have ended too."""
        if self._view is None:
            return
        self._view = None
        os.close(self.descriptor)
        if self._budget is not None:
            self._budget.give_back(self._byte_count)


async def make_segment(byte_count: int, budget: SegmentBudget, directory: Path | None) -> Segment:
    """A new one, its memory reserved: a full host says so here, not by killing a process later.

    `directory` holds the file in place of the host's memory; it never has a name there.
    Raises `RoadFailed`.
    """
    budget.take(byte_count)
    reserving = asyncio.create_task(asyncio.to_thread(_reserved, byte_count, directory))
    try:
        return Segment(await asyncio.shield(reserving), byte_count, budget)
    except asyncio.CancelledError:
        reserving.add_done_callback(_close_reserved)
        budget.give_back(byte_count)
        raise
    except OSError as error:
        budget.give_back(byte_count)
        raise RoadFailed(
            f"no shared memory for a segment of {byte_count} bytes: {error.strerror}"
        ) from error
    except RoadFailed:
        budget.give_back(byte_count)
        raise


def handed_over(descriptor: int, byte_count: int, directory: Path | None) -> Segment:
    """Maps what another process made by the same rules as `make_segment`.

    Raises `RoadFailed` where it could still be cut short, which Linux alone can tell and files
    in a `directory` always can; the descriptor is closed then.
    """
    if directory is None and not _is_sealed(descriptor):
        os.close(descriptor)
        raise RoadFailed("the segment is not sealed: who made it could cut it short")
    return Segment(descriptor, byte_count)


def seal(descriptor: int) -> None:
    """Keeps the size of a memfd: who cuts it short kills all who touch it. Raises `OSError`."""
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)


def _is_sealed(descriptor: int) -> bool:
    """Whether its size is kept; taken for granted where a system has no seals."""
    if sys.platform != "linux":
        return True
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:
        # Files of a disk have no seals.
        return False


def anonymous_file(directory: Path | None) -> int:
    """The descriptor of a file in memory, or in `directory`, that has no name. Raises `OSError`."""
    if sys.platform == "linux" and directory is None:
        return os.memfd_create("kakeya-road", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with tempfile.TemporaryFile(dir=directory) as file:
        return os.dup(file.fileno())


def _reserved(byte_count: int, directory: Path | None) -> int:
    descriptor = anonymous_file(directory)
    try:
        if sys.platform == "linux":
            os.posix_fallocate(descriptor, 0, byte_count)
            if directory is None:
                seal(descriptor)
        else:
            # macOS maps holes of a file and kills who touches them on a full disk.
            for begin in range(0, byte_count, len(_ZEROS)):
                os.pwrite(descriptor, _ZEROS[: byte_count - begin], begin)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _close_reserved(reserving: asyncio.Task[int]) -> None:
    if not reserving.cancelled() and reserving.exception() is None:
        os.close(reserving.result())
