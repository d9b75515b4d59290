"""The two directions of a road that carries bytes in pieces through a segment's slots."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kakeya_fleet.engine.backends.mlx_ring.protocol import Frame, FrameKind, Pieces
from kakeya_fleet.node.links.roads.contract import RoadFailed
from kakeya_fleet.node.links.roads.road_fault import RoadFault
from kakeya_fleet.node.links.roads.segment import Segment

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A copy of this many bytes takes about 50 us, less than a hop to a thread and back.
INLINE_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Surface:
    """What a direction works with; `direction` is that of the segment's slots.

    `write` sends a frame and never waits. `executor` makes the larger copies.
    """

    segment: Segment
    pieces: Pieces
    direction: int
    write: Callable[[Frame], None]
    executor: Executor
    fault: RoadFault

    def fill(self, index: int, source: NDArray[np.uint8]) -> None:
        """Copies into the slot of piece `index`. Raises `RoadFailed`."""
        np.copyto(self._slot(index, source.nbytes), source)

    def empty(self, index: int, target: NDArray[np.uint8]) -> None:
        """Copies out of the slot of piece `index`. Raises `RoadFailed`."""
        np.copyto(target, self._slot(index, target.nbytes))

    async def copied(
        self, copy: Callable[[int, NDArray[np.uint8]], None], index: int, own: NDArray[np.uint8]
    ) -> None:
        """Runs `fill` or `empty`, beside the event loop when it takes long.

        Coroutines see no view of the segment: the traceback of an error would keep
        it mapped. Raises `RoadFailed`.
        """
        if own.nbytes <= INLINE_BYTES:
            copy(index, own)
            return
        await asyncio.get_running_loop().run_in_executor(self.executor, copy, index, own)
        self.fault.check()

    def _slot(self, index: int, byte_count: int) -> NDArray[np.uint8]:
        return self.pieces.slot(self.segment.view, self.direction, index, byte_count)


class _Direction:
    """One transfer after the other; a deadline or a cancellation amid one ends the road."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._turn = asyncio.Lock()
        self._news = asyncio.Event()
        self._index = 0
        self._is_amid = False

    @asynccontextmanager
    async def _transfer(self, what: str, seconds: float) -> AsyncIterator[None]:
        fault = self._surface.fault
        try:
            async with asyncio.timeout(seconds) as limit, self._turn:
                fault.check()
                self._is_amid = False
                try:
                    yield
                except asyncio.CancelledError:
                    # The other end counts on the pieces that were to come.
                    if self._is_amid and not limit.expired():
                        fault.fail(f"{what} bytes was broken off")
                    raise
        except TimeoutError:
            fault.fail(f"{what} bytes took longer than {seconds:g} s")
            raise RoadFailed(fault.reason) from None


class PieceSender(_Direction):
    """The direction out."""

    def __init__(self, surface: Surface) -> None:
        super().__init__(surface)
        self._free_count = surface.pieces.slot_count

    def taken(self) -> None:
        """The oldest filled slot is free again."""
        if self._free_count == self._surface.pieces.slot_count:
            self._surface.fault.fail("the other side freed a slot that was not filled")
        self._free_count += 1
        self._news.set()

    async def send(self, data: memoryview, seconds: float) -> None:
        """Puts all of `data` into slots, as they become free. Raises `RoadFailed`."""
        surface = self._surface
        source = np.frombuffer(data, np.uint8)
        async with self._transfer(f"sending {data.nbytes}", seconds):
            begin = 0
            for byte_count in surface.pieces.lengths(data.nbytes):
                await surface.fault.wait(self._news, lambda: self._free_count > 0)
                self._is_amid = True
                self._free_count -= 1
                piece = source[begin : begin + byte_count]
                await surface.copied(surface.fill, self._index, piece)
                surface.write(Frame(FrameKind.PIECE, byte_count))
                self._index += 1
                begin += byte_count


class PieceReceiver(_Direction):
    """The direction in, when the other side fills slots as it likes."""

    def __init__(self, surface: Surface) -> None:
        super().__init__(surface)
        self._filled: deque[int] = deque()

    def filled(self, byte_count: int) -> None:
        """The next slot holds so many bytes."""
        if len(self._filled) == self._surface.pieces.slot_count:
            self._surface.fault.fail("the other side filled a slot that was not free")
        self._filled.append(byte_count)
        self._news.set()

    async def receive(self, byte_count: int, seconds: float) -> memoryview:
        """The next `byte_count` bytes. Raises `RoadFailed`."""
        surface = self._surface
        async with self._transfer(f"receiving {byte_count}", seconds):
            received = np.empty(byte_count, np.uint8)
            lengths = surface.pieces.lengths(byte_count)
            begin = 0
            self._begin(lengths)
            for length in lengths:
                await surface.fault.wait(self._news, lambda: bool(self._filled))
                self._is_amid = True
                if self._filled[0] != length:
                    surface.fault.fail(
                        f"a piece has {self._filled[0]} bytes where {length} were announced"
                    )
                    surface.fault.check()
                piece = received[begin : begin + length]
                await surface.copied(surface.empty, self._index, piece)
                self._filled.popleft()
                self._index += 1
                begin += length
                self._freed()
        return received.data

    def _begin(self, lengths: list[int]) -> None:
        """A transfer of these pieces starts."""

    def _freed(self) -> None:
        """A piece was copied out of its slot."""
        self._surface.write(Frame(FrameKind.TAKEN))


class AskingReceiver(PieceReceiver):
    """The direction in, when a slot is filled only on request, because waiting costs a core."""

    def __init__(self, surface: Surface) -> None:
        super().__init__(surface)
        self._wanted: deque[int] = deque()

    def _begin(self, lengths: list[int]) -> None:
        self._wanted.extend(lengths)
        for _ in range(self._surface.pieces.slot_count):
            self._freed()

    def _freed(self) -> None:
        """Asks for one more piece of this transfer, if there is one."""
        if self._wanted:
            self._is_amid = True
            self._surface.write(Frame(FrameKind.RECEIVE, self._wanted.popleft()))
