"""A systemd that manages a user's services, in namespaces of its own, gone with its process.

It needs root, once: a mount namespace with an empty /run that says that systemd booted the
machine, and a group of processes (cgroup v2) that is its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

MANAGER = Path("/lib/systemd/systemd")
START_SECONDS = 20.0
_BEGIN = """
set -e
echo $$ > "$1/cgroup.procs"
exec unshare --mount --cgroup sh -ec '
mount --make-rprivate /
umount --recursive /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs none /run
mkdir -p /run/systemd/system
exec "$0" --user --log-target=null
' "$2"
"""


def what_is_missing() -> str:
    """Why there can be no such manager here; empty where there can."""
    if os.geteuid() != 0:
        return "a user's systemd of its own namespaces needs root"
    if not MANAGER.exists() or not shutil.which("systemctl") or not shutil.which("unshare"):
        return "systemd or unshare is not installed"
    group = _groups()
    if group is None:
        return "there are no process groups of cgroup v2"
    try:
        (own := group / f"kakeya-probe-{os.getpid()}").mkdir()
        own.rmdir()
    except OSError as error:
        return f"process groups cannot be made ({error.strerror})"
    probe = subprocess.run(
        ["unshare", "--mount", "--cgroup", "mount", "-t", "tmpfs", "none", "/run"],
        capture_output=True,
        check=False,
    )
    return "" if not probe.returncode else "namespaces cannot be made"


@contextmanager
def user_manager(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Runs one; gives `environment` with what `systemctl --user` needs to ask it."""
    # Below 108 bytes: its sockets lie in it.
    runtime = Path(tempfile.mkdtemp(prefix="um-"))
    runtime.chmod(0o700)
    groups = _groups()
    assert groups is not None
    group = groups / f"kakeya-{runtime.name}"
    group.mkdir()
    own = {**environment, "XDG_RUNTIME_DIR": str(runtime)}
    process = subprocess.Popen(["sh", "-c", _BEGIN, "sh", str(group), str(MANAGER)], env=own)
    try:
        deadline = time.monotonic() + START_SECONDS
        while subprocess.run(
            ["systemctl", "--user", "show", "--property=Version"],
            env=own,
            capture_output=True,
            check=False,
        ).returncode:
            assert process.poll() is None, "systemd ended"
            assert time.monotonic() < deadline, "systemd does not answer"
            time.sleep(0.05)
        yield own
    finally:
        with suppress(OSError):
            (group / "cgroup.kill").write_text("1")
        process.kill()
        process.wait()
        _remove(group)
        shutil.rmtree(runtime, ignore_errors=True)


def _groups() -> Path | None:
    places = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
    return next((each for each in places if (each / "cgroup.controllers").exists()), None)


def _remove(group: Path) -> None:
    """Removes the group and those in it, once the kernel has taken their processes away."""
    folders = sorted(group.rglob("*/"), key=lambda path: len(path.parts), reverse=True)
    deadline = time.monotonic() + START_SECONDS
    for folder in (*folders, group):
        while folder.exists():
            with suppress(OSError):
                folder.rmdir()
            assert time.monotonic() < deadline, f"{folder} stays"
