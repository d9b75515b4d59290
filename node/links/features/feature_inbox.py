"""Context vectors of one link, on the proposer's side: they arrive, and are waited for."""

from __future__ import annotations

import asyncio

import numpy as np

from kakeya_fleet.engine.contracts.features import ContextVectors
from kakeya_fleet.engine.sessions.feature_window import DEFAULT_POSITIONS, FeatureWindow
from kakeya_fleet.node.links.protocol.chunks import RefusedTensor, TensorFault
from kakeya_fleet.node.links.protocol.tensor import WireTensor, to_floats

FEATURES = "features"
"""Name of the tensors that carry them: [n, width], one row a position."""
# Beyond every model's positions.
MAX_POSITION = 1 << 40


class FeatureInbox:
    """The latest vectors that arrived. Belongs to the event loop's thread.

    What was taken out of it stays as it was, and may go to another thread.
    """

    def __init__(self, width: int, positions: int = DEFAULT_POSITIONS) -> None:
        """Keeps `positions` vectors of `width` values, which is also the longest tensor."""
        self._positions = positions
        self._window = FeatureWindow(width, positions)
        self._arrived = asyncio.Event()

    @property
    def tensor_bytes(self) -> int:
        """Bytes of the largest tensor that is taken."""
        return 4 * self._window.width * self._positions

    @property
    def memory_bytes(self) -> int:
        """Bytes that the window and one tensor on its way take at most."""
        return 3 * self.tensor_bytes

    @property
    def end(self) -> int:
        """The position behind the newest vector."""
        return self._window.end

    def take(self, tensor: WireTensor) -> None:
        """Adds what is new of a tensor; one behind a gap forgets what was before it.

        Raises `RefusedTensor`, with nothing added.
        """
        vectors = to_floats(tensor) if tensor.name == FEATURES else None
        if (
            vectors is None
            or vectors.ndim != 2
            or vectors.shape[1] != self._window.width
            or len(vectors) > self._positions
            or tensor.first_position > MAX_POSITION
        ):
            raise RefusedTensor(
                TensorFault.WRONG_SHAPE,
                f"{tensor.name!r} {tensor.shape} at position {tensor.first_position} is not "
                f"{FEATURES!r} [n <= {self._positions}, {self._window.width}]",
            )
        if not np.isfinite(vectors).all():
            raise RefusedTensor(
                TensorFault.NOT_FINITE, f"vectors from {tensor.first_position} on are not finite"
            )
        known = max(0, self._window.end - tensor.first_position)
        if known < len(vectors):
            self._window.extend(tensor.first_position + known, vectors[known:])
            self._arrived.set()

    def between(self, first: int, end: int) -> tuple[int, ContextVectors]:
        """The vectors from `first` to `end` that are there, and the position of the first."""
        start, vectors = self._window.since(first)
        return start, vectors[: max(0, end - start)]

    async def wait(self, end: int, seconds: float) -> bool:
        """Whether vectors up to position `end` are there, within `seconds`."""
        if self._window.end >= end:
            return True
        try:
            async with asyncio.timeout(seconds):
                while self._window.end < end:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return False
        return True
