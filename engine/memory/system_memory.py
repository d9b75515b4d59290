"""How much memory this process may have: the machine's, or what its control groups leave.

A container's limit is that of a control group: cgroup v2's `memory.max`
(https://docs.kernel.org/admin-guide/cgroup-v2.html), v1's `memory.limit_in_bytes`. Groups lie in
each other and each one's limit holds. Without a limit, and where there are no groups, it is the
machine's memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath

import psutil

PROC = Path("/proc/self")
ARENAS = 2
"""Heaps of a process: one of the event loop's thread, and one for all others."""
_NO_LIMIT = 1 << 62
"""Version 1 says so many bytes or more, where version 2 says "max"; no machine has them."""
_M_ARENA_MAX = -8
"""Of malloc.h."""


@dataclass(frozen=True, slots=True)
class _Files:
    """What a version of control groups calls them."""

    limit: str
    usage: str
    # Pages of files that the kernel gives back before it refuses any: they are free.
    reclaimable: str


_VERSION_2 = _Files("memory.max", "memory.current", "inactive_file")
_VERSION_1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """One control group's: bytes that it may have, and those that it has and cannot give back."""

    limit_bytes: int
    used_bytes: int

    @property
    def free_bytes(self) -> int:
        """Bytes that its processes can take."""
        return max(0, self.limit_bytes - self.used_bytes)


def total_bytes() -> int:
    """Bytes that this process may have at most."""
    own = (limit.limit_bytes for limit in memory_limits())
    return min((int(psutil.virtual_memory().total), *own))


def available_bytes() -> int:
    """Bytes that this process can take now without swapping, and without being killed for it."""
    own = (limit.free_bytes for limit in memory_limits())
    return min((int(psutil.virtual_memory().available), *own))


def give_back() -> None:
    """Gives freed memory back to the machine, which glibc keeps for the next to come.

    A freed block of up to 32 MiB stays in the heap otherwise, see M_MMAP_THRESHOLD in
    mallopt(3). Other C libraries give it back by themselves. It takes half a second a GB.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def bound_arenas() -> None:
    """Has all threads to come share `ARENAS` heaps; before there are threads.

    glibc makes one for each thread, up to eight a core, and no thread uses what another freed: the
    heaps of some twenty threads each grow to the most that any of them needed at once. Other C
    libraries share by themselves.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        library.mallopt(_M_ARENA_MAX, ARENAS)


def memory_limits(proc: Path = PROC) -> list[MemoryLimit]:
    """The limits of the control groups that hold the process whose folder in /proc is `proc`."""
    named = tuple(_lines(proc / "cgroup"))
    limits = (_limit(group, files) for group, files in _groups(proc, named))
    return [limit for limit in limits if limit is not None]


@lru_cache(maxsize=4)
def _groups(proc: Path, named: tuple[str, ...]) -> tuple[tuple[Path, _Files], ...]:
    """The folders of the process's groups and of those that hold them, innermost first.

    `named` are the lines of its file `cgroup`. Looked for once: a mount takes no other place.
    """
    return tuple(_found_groups(proc, named))


def _found_groups(proc: Path, named: Sequence[str]) -> Iterator[tuple[Path, _Files]]:
    mounts = _mounts(proc)
    for line in named:
        _, controllers, path = line.split(":", 2)
        files = _VERSION_1 if "memory" in controllers.split(",") else _VERSION_2
        if (controllers and files is _VERSION_2) or files not in mounts:
            continue
        mount, root = mounts[files]
        # Inside a container's own name space the path may be one of outside.
        inner = PurePosixPath(path)
        below = inner.relative_to(root) if inner.is_relative_to(root) else PurePosixPath()
        folder = mount / below
        folder = folder if folder.is_dir() else mount
        yield folder, files
        while folder != mount:
            folder = folder.parent
            yield folder, files


def _mounts(proc: Path) -> dict[_Files, tuple[Path, str]]:
    """Where the memory controllers are mounted, and which group is there. See proc(5)."""
    found: dict[_Files, tuple[Path, str]] = {}
    for line in _lines(proc / "mountinfo"):
        head, _, tail = line.partition(" - ")
        fields, (kind, _, options) = head.split(), tail.split(maxsplit=2)
        if kind == "cgroup2":
            found[_VERSION_2] = Path(fields[4]), fields[3]
        elif kind == "cgroup" and "memory" in options.split(","):
            found[_VERSION_1] = Path(fields[4]), fields[3]
    return found


def _limit(group: Path, files: _Files) -> MemoryLimit | None:
    """A group's limit; None for one without, of which nothing else is read."""
    limit = _number(group / files.limit)
    if limit is None or limit >= _NO_LIMIT:
        return None
    usage = _number(group / files.usage)
    if usage is None:
        return None
    given_back = 0
    for line in _lines(group / "memory.stat"):
        name, _, value = line.partition(" ")
        if name == files.reclaimable:
            given_back = int(value)
    return MemoryLimit(limit, max(0, usage - given_back))


def _number(path: Path) -> int | None:
    """A file's number; None where it is no number ("max") or there is no such file."""
    line = next(iter(_lines(path)), "")
    return int(line) if line.isdecimal() else None


def _lines(path: Path) -> list[str]:
    """A file's lines; none where this process cannot read it, as outside Linux."""
    try:
        return path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return []
