"""How many files the process may have open at once, and how many of them are its own."""

from __future__ import annotations

import resource
from contextlib import suppress


def raise_file_limit(most: int) -> None:
    """Raises the soft limit to the hard one or to `most`, as far as the system lets it.

    Shells give 1,024 or 256 for programs that wait with select(2), which takes no more; the
    agent waits with epoll and kqueue.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    # macOS bounds it again, by kern.maxfilesperproc, whatever the hard limit says.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def reserve_of(limit: int) -> int:
    """Descriptors that others' connections leave free: an eighth, 64 at least, half at most."""
    return min(max(64, limit // 8), limit // 2)
