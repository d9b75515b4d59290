"""The file to which an agent of this machine writes its log, if it is one.

An agent logs to its standard error and opens no file itself: where that leads is the
affair of whoever started it. On Linux /proc tells (proc(5)); elsewhere nobody does.
"""

from __future__ import annotations

import os
from pathlib import Path


def error_stream(process_id: int) -> str:
    """Where the standard error of a process leads, as Linux names it; empty when nobody tells."""
    try:
        return os.readlink(f"/proc/{process_id}/fd/2")
    except OSError:
        return ""


def log_file(process_id: int) -> Path | None:
    """The regular file that the process logs to and that can be read; None without one."""
    path = Path(error_stream(process_id) or "/")
    return path if path.is_absolute() and path.is_file() and os.access(path, os.R_OK) else None
