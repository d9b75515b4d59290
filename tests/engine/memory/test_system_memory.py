"""What a process may have in control groups of both versions, as the kernel's files tell."""

import os
from pathlib import Path

import psutil
import pytest

from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.engine.memory.system_memory import MemoryLimit, memory_limits

MIB = 1 << 20
UNLIMITED = 9_223_372_036_854_771_712
"""What version 1 says where nothing was set: the largest number of whole pages."""


class Groups:
    """Files as the kernel shows them to a process."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.mount = folder / "cgroup"
        self.proc.mkdir()
        self.mount.mkdir()

    def process(self, cgroup: str, mountinfo: str) -> None:
        (self.proc / "cgroup").write_text(cgroup)
        (self.proc / "mountinfo").write_text(mountinfo.replace("MOUNT", str(self.mount)))

    def group(self, path: str, **files: object) -> None:
        folder = self.mount / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("__", ".")).write_text(f"{text}\n")


@pytest.fixture
def groups(tmp_path: Path) -> Groups:
    return Groups(tmp_path)


def test_each_group_around_a_process_limits_it(groups: Groups) -> None:
    groups.process("0::/user/fleet\n", "30 23 0:27 / MOUNT rw - cgroup2 cgroup2 rw,nsdelegate\n")
    groups.group("")
    groups.group("user", memory__max=900 * MIB, memory__current=300 * MIB)
    stat = f"anon {400 * MIB}\ninactive_file {50 * MIB}\nactive_file 7"
    groups.group("user/fleet", memory__max="max", memory__current=1, memory__stat=stat)
    assert memory_limits(groups.proc) == [MemoryLimit(900 * MIB, 300 * MIB)]
    groups.group("user/fleet", memory__max=700 * MIB, memory__current=450 * MIB)
    own, around = memory_limits(groups.proc)
    assert own == MemoryLimit(700 * MIB, 400 * MIB), "pages of files are given back"
    assert (own.free_bytes, around.free_bytes) == (300 * MIB, 600 * MIB)


def test_a_container_sees_its_own_group_as_the_root(groups: Groups) -> None:
    """With a name space of its own, and without one, where the path is that of outside."""
    groups.group("", memory__max=700 * MIB, memory__current=800 * MIB)
    for path, root in (("/", "/"), ("/docker/abc", "/docker/abc"), ("/docker/abc", "/")):
        groups.process(f"0::{path}\n", f"30 23 0:27 {root} MOUNT rw - cgroup2 cgroup2 rw\n")
        (limit,) = memory_limits(groups.proc)
        assert limit.limit_bytes == 700 * MIB
        assert limit.free_bytes == 0, "more than the limit, while it is lowered"


def test_version_1_has_the_memory_controller_apart(groups: Groups) -> None:
    groups.process(
        "9:name=systemd:/\n4:memory:/fleet\n1:cpu,cpuacct:/x\n0::/\n",
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
        "32 31 0:29 / /elsewhere rw - cgroup cgroup rw,cpu\n"
        "35 31 0:32 / MOUNT rw,relatime shared:3 - cgroup cgroup rw,memory\n",
    )
    groups.group("", memory__limit_in_bytes=UNLIMITED, memory__usage_in_bytes=5)
    stat = f"inactive_file 3\ntotal_inactive_file {20 * MIB}"
    groups.group(
        "fleet",
        memory__limit_in_bytes=700 * MIB,
        memory__usage_in_bytes=120 * MIB,
        memory__stat=stat,
    )
    # Nothing limits the root.
    assert memory_limits(groups.proc) == [MemoryLimit(700 * MIB, 100 * MIB)]


def test_without_groups_nothing_limits(groups: Groups) -> None:
    assert memory_limits(groups.proc) == []


def test_the_least_of_machine_and_groups_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = psutil.virtual_memory()
    assert 0 < system_memory.available_bytes() <= system_memory.total_bytes() <= machine.total
    limits = [MemoryLimit(1 << 62, 0), MemoryLimit(8 * MIB, 5 * MIB), MemoryLimit(9 * MIB, 0)]
    monkeypatch.setattr(system_memory, "memory_limits", lambda: limits)
    assert system_memory.total_bytes() == 8 * MIB
    assert system_memory.available_bytes() == 3 * MIB


@pytest.mark.skipif(not Path("/proc/self/cgroup").exists(), reason="no control groups here")
def test_this_process_can_read_its_own() -> None:
    assert all(limit.limit_bytes > 0 for limit in memory_limits(Path(f"/proc/{os.getpid()}")))
