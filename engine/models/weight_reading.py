"""How far the reading of a model's weights has come, for whoever has it loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[int], None] | None] = ContextVar("weight_reading", default=None)
# Every byte is read into the memory that computes, and once more for the digest.
_PASSES = 2


def weights_read(byte_count: int) -> None:
    """Says that so many more bytes of weights were read by this thread."""
    listener = _listener.get()
    if listener is not None:
        listener(byte_count)


@contextmanager
def told_of_weights(total_bytes: int, progress: Callable[[int, int], None]) -> Iterator[None]:
    """While it lasts `progress` hears of (done bytes, total bytes) of what this thread reads.

    `total_bytes` are those of the weight files. It is called in this thread.
    """
    read = 0

    def more(byte_count: int) -> None:
        nonlocal read
        read += byte_count
        # Headers, and tensors that a model leaves out or keeps twice, make no whole of it.
        progress(min(read // _PASSES, total_bytes), total_bytes)

    progress(0, total_bytes)
    token = _listener.set(more)
    try:
        yield
    finally:
        _listener.reset(token)
