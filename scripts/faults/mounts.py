"""A mount table of this process's own: what it mounts ends with it (Linux, root)."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.faults.machines import run
from scripts.faults.row import NotRunHere

CLONE_NEWNS = 0x00020000
HOMES = Path("/home")


def own_mounts() -> None:
    """Moves this process, and those that it will start, into it. Raises `NotRunHere`."""
    if sys.platform != "linux":
        raise NotRunHere("mount namespaces are Linux's")
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(CLONE_NEWNS) != 0:
        raise NotRunHere(f"no mount namespace: {os.strerror(ctypes.get_errno())}")
    # Else it would be seen in the mount table of everybody.
    run("mount", "--make-rprivate", "/")


def why_no_homes() -> str:
    """Empty where /home may be another for this process, else a sentence."""
    needed = (Path(__file__), Path(sys.prefix), Path(sys.base_prefix))
    if any(path.resolve().is_relative_to(HOMES) for path in needed):
        return f"this program is below {HOMES}, and would lose its own files"
    return ""


def with_homes(names: Sequence[str]) -> list[Path]:
    """Empty homes below /home, which for this process and its children is memory from now on.

    Call `own_mounts` first. Raises `NotRunHere` where /home has what this process needs.
    """
    if why := why_no_homes():
        raise NotRunHere(why)
    run("mount", "-t", "tmpfs", "homes", str(HOMES))
    homes = [HOMES / name for name in names]
    for home in homes:
        home.mkdir()
    return homes
