"""Threads of the library's own."""

from __future__ import annotations

import ctypes
import weakref
from functools import lru_cache

import torch

from kakeya_fleet.engine.backends.torch_backend.compiled.library import Library


class Workers:
    """Threads for one call at a time, which end with it; ctypes takes it as what it points to."""

    def __init__(self, found: Library) -> None:
        pointer = found.functions.kakeya_workers()
        self._as_parameter_ = ctypes.c_void_p(pointer)
        weakref.finalize(self, found.functions.kakeya_free_workers, pointer)


def threads_for(numbers: int, of_one: int) -> int:
    """As many as there is work for; the bits are those of any."""
    return max(1, min(torch.get_num_threads(), numbers // of_one))


@lru_cache(maxsize=1)
def workers_of(found: Library, process: int) -> int:  # noqa: ARG001 - a fork has no threads
    """Threads of the process's own, for as long as it lives: they sleep between calls."""
    workers: int = found.functions.kakeya_workers()
    return workers
