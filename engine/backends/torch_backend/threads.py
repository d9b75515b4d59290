"""Threads of torch's forwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

MACHINE = torch.get_num_threads()
"""What torch takes by itself: a thread a core, or as OMP_NUM_THREADS says."""


class TorchThreads:
    """Those of the calling thread."""

    @property
    def count(self) -> int:
        """How many its forwards take now."""
        return torch.get_num_threads()

    def use(self, count: int) -> None:
        """Takes `count` from now on; other threads stay as they are."""
        # The first look of a thread sets its number, to the latest that any thread was given.
        torch.get_num_threads()
        torch.set_num_threads(count)
        # The latest is the machine's again.
        resetting = threading.Thread(target=torch.set_num_threads, args=(MACHINE,))
        resetting.start()
        resetting.join()


@contextmanager
def one_thread() -> Iterator[None]:
    """While it lasts forwards of the calling thread take no other."""
    threads = TorchThreads()
    before = threads.count
    threads.use(1)
    try:
        yield
    finally:
        threads.use(before)
