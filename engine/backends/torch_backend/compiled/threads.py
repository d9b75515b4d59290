"""Threads of the library's own, for what is no forward of a decoder."""

from __future__ import annotations

from functools import lru_cache

import torch

from kakeya_fleet.engine.backends.torch_backend.compiled.library import Library


def threads_for(numbers: int, of_one: int) -> int:
    """As many as there is work for; the bits are those of any."""
    return max(1, min(torch.get_num_threads(), numbers // of_one))


@lru_cache(maxsize=1)
def workers_of(found: Library, process: int) -> int:  # noqa: ARG001 - a fork has no threads
    """Threads of the process's own, for as long as it lives: they sleep between calls."""
    workers: int = found.functions.kakeya_workers()
    return workers
