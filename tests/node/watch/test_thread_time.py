"""A thread's account: what the kernel tells, and what is left when it tells nothing."""

import errno
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from kakeya_fleet.node.watch.thread_time import OwnThreadTimes


class Faults(list[OSError]):
    """Those that an account told."""


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """The kernel's file of this thread, to be written by a test."""
    folder = tmp_path / str(threading.get_native_id())
    folder.mkdir()
    path = folder / "schedstat"
    path.write_text("1500000000 250000000 7\n")
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps the account")
def test_the_kernel_tells_of_this_thread(faults: Faults) -> None:
    times = OwnThreadTimes(faults.append)
    before, began = times.read(), time.thread_time()
    while time.thread_time() - began < 0.05:
        pass
    after = times.read()
    times.close()
    assert after.on_core - before.on_core == pytest.approx(0.05, abs=0.02)
    assert not faults


def test_nanoseconds_are_told_as_seconds(account: Path, tmp_path: Path, faults: Faults) -> None:
    times = OwnThreadTimes(faults.append, str(tmp_path))
    told = times.read()
    assert (told.on_core, told.ready) == (1.5, 0.25)
    account.write_text("2500000000 1250000000 9\n")
    told = times.read()
    times.close()
    assert (told.on_core, told.ready) == (2.5, 1.25)


def test_where_nothing_is_told_the_time_on_a_core_is(
    account: Path, tmp_path: Path, faults: Faults
) -> None:
    account.write_text("0 0 0\n")
    for folder in (tmp_path, tmp_path / "nowhere"):
        told = OwnThreadTimes(faults.append, str(folder)).read()
        assert told.ready is None
        assert 0 < told.on_core <= time.thread_time()
    assert not faults


def test_a_file_that_cannot_be_opened_or_read_is_told_once(
    account: Path, tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    times = OwnThreadTimes(faults.append, str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", refuse)
        assert times.read().ready is None
        assert times.read().ready is None
    assert len(faults) == 1
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        assert OwnThreadTimes(faults.append, str(tmp_path)).read().ready is None
    assert len(faults) == 2
