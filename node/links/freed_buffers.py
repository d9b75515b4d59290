"""The C library keeps the memory of freed buffers for the next chunks of tensors.

glibc gives a freed buffer beyond its threshold back to the system, which then hands out
each chunk's memory page by page, and zeroed: half the pace of a link of 1 MiB chunks. The
threshold rises to the size of the largest buffer that was freed, up to 32 MiB, and that
from which free memory is given back to twice that (mallopt(3), M_MMAP_THRESHOLD).
"""

from __future__ import annotations

from functools import cache

# Just below the largest that glibc takes as an example.
_EXAMPLE_BYTES = 31 << 20


@cache
def keep_freed_buffers() -> None:
    """Once in a process: at most 62 MiB of what it has freed stay with it."""
    # Zeros that nobody reads take no memory.
    bytes(_EXAMPLE_BYTES)
