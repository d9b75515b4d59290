"""Folders of models that this machine made or fetched itself: locks, room, and what is whole."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kakeya_fleet.engine.errors import ModelCacheUnwritable

SPARE_BYTES = 64 << 20
"""Of the disk, that stay free besides a model's weights: for its tokenizer, and for others."""
ROOM = "make room (`fleet models clear`, `fleet rm`), or set XDG_CACHE_HOME to"


def cache_base() -> Path:
    """`$XDG_CACHE_HOME/kakeya`, by default in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "kakeya"


@contextmanager
def locked(folder: Path, name: str, *, wait: bool) -> Iterator[bool]:
    """While it lasts nobody else has the lock `name` of `folder`; False if one has, without `wait`.

    Raises `OSError`.
    """
    locks = folder / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True


def check_room(folder: Path, needed_bytes: int, name: str) -> None:
    """Raises `ModelCacheUnwritable` before a byte is written that would not have room."""
    free = shutil.disk_usage(folder).free
    if needed_bytes + SPARE_BYTES > free:
        raise ModelCacheUnwritable(
            f"{name} needs {needed_bytes:,} bytes in {folder}, beside {SPARE_BYTES:,} that stay"
            f" free, and its disk has {free:,} free; {ROOM} a disk that has",
            needed_bytes=str(needed_bytes),
            free_bytes=str(free),
            path=str(folder),
        )


def flush(folder: Path) -> None:
    """Brings `folder` and all in it to the disk, so that what is renamed is whole for good."""
    for path in (*folder.rglob("*"), folder):
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def unwritable(folder: Path, name: str, error: OSError) -> ModelCacheUnwritable:
    """What is told of an error of the disk."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    cause = "the disk is full" if full else str(error)
    return ModelCacheUnwritable(
        f"{name} cannot be kept in {folder} ({cause}); {ROOM} a folder that you may write",
        path=str(folder),
    )
