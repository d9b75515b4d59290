"""A mount table of this process's own: what it mounts ends with it (Linux, root)."""

from __future__ import annotations

import ctypes
import os
import sys

from scripts.faults.machines import run
from scripts.faults.row import NotRunHere

CLONE_NEWNS = 0x00020000


def own_mounts() -> None:
    """Moves this process, and those that it will start, into it. Raises `NotRunHere`."""
    if sys.platform != "linux":
        raise NotRunHere("mount namespaces are Linux's")
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(CLONE_NEWNS) != 0:
        raise NotRunHere(f"no mount namespace: {os.strerror(ctypes.get_errno())}")
    # Else it would be seen in the mount table of everybody.
    run("mount", "--make-rprivate", "/")
