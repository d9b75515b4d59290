"""Allocations that the machine refuses, told by name: in a load, and among sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kakeya_fleet.engine.errors import OutOfKvMemory, OutOfMemory

# How allocators say it, which raise RuntimeError: torch's for the processor, for CUDA and MPS, and
# MLX's for Metal. MLX's for the processor does not look at what malloc gave it: that ends the
# process.
_REFUSALS = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "Unable to allocate",
)


@contextmanager
def told_as_shortage() -> Iterator[None]:
    """Raises `OutOfKvMemory` where the machine has not the memory that its budget promised."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_refusal(error):
            raise
        raise OutOfKvMemory(
            f"the machine has no memory left ({error}), and the session stays as it is: close"
            " sessions or other programs, or start the node with a smaller kv_budget_bytes"
        ) from error


@contextmanager
def told_as_unloadable(folder: Path) -> Iterator[None]:
    """Raises `OutOfMemory` where the machine has not the memory that was free before the load."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_refusal(error):
            raise
        raise OutOfMemory(
            f"{folder} does not fit into the memory that is left ({error}); close other programs,"
            " or choose a smaller model or smaller --weights",
            path=str(folder),
        ) from error


def _is_refusal(error: MemoryError | RuntimeError) -> bool:
    return isinstance(error, MemoryError) or any(each in str(error) for each in _REFUSALS)
