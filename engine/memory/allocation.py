"""Allocations that the machine refuses, told as what sessions together leave no room for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kakeya_fleet.engine.errors import OutOfKvMemory

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
    except MemoryError as error:
        raise _shortage(error) from error
    except RuntimeError as error:
        if not any(refusal in str(error) for refusal in _REFUSALS):
            raise
        raise _shortage(error) from error


def _shortage(error: Exception) -> OutOfKvMemory:
    return OutOfKvMemory(
        f"the machine has no memory left ({error}), and the session stays as it is: close"
        " sessions or other programs, or start the node with a smaller kv_budget_bytes"
    )
