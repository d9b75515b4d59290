"""Memory in pages of 2 MiB, where Linux has them for those who ask.

What a forward reads whole, weights and long contexts, is read faster so: within a page a processor
reads ahead, and not beyond it. What decoding reaches of the memory's speed: see
scripts/bench/decode.py, and of the pages https://docs.kernel.org/admin-guide/mm/transhuge.html
"""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache

import torch
from torch import Tensor

PAGE_BYTES = 2 << 20
# https://man7.org/linux/man-pages/man2/madvise.2.html
_MADV_HUGEPAGE = 14


def empty_on_large_pages(*shape: int, dtype: torch.dtype) -> Tensor:
    """A tensor whose numbers are anything, and have no memory before they are written.

    It is in small pages where the machine has no others to give, or is told to give none.
    """
    found = torch.empty(*shape, dtype=dtype)
    first = -(-found.data_ptr() // PAGE_BYTES) * PAGE_BYTES
    end = (found.data_ptr() + found.nbytes) // PAGE_BYTES * PAGE_BYTES
    if first < end and sys.platform == "linux":
        # A kernel without large pages refuses, and nothing is lost.
        _system().madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), _MADV_HUGEPAGE)
    return found


@lru_cache(maxsize=1)
def _system() -> ctypes.CDLL:
    return ctypes.CDLL(None)
