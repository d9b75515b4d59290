"""How many files the process may have open at once."""

from __future__ import annotations

import resource
from contextlib import suppress

MOST_FILES = 1 << 16
"""More than that no node needs."""


def raise_file_limit() -> None:
    """Raises the soft limit to the hard one, as far as the system lets it.

    Shells give 1,024 or 256 for programs that wait with select(2), which takes no more; the
    agent waits with epoll and kqueue.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    # macOS bounds it again, by kern.maxfilesperproc, whatever the hard limit says.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
