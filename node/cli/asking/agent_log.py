"""The file to which an agent of this machine writes its log, if it is one.

With `--log-file` the agent says which; else it logs to its standard error alone: where that leads
is the affair of whoever started it. On Linux /proc tells (proc(5)); elsewhere nobody does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kakeya_fleet.node.cli.asking.local_agents import LocalAgent


def error_stream(process_id: int) -> str:
    """Where the standard error of a process leads, as Linux names it; empty when nobody tells."""
    try:
        return os.readlink(f"/proc/{process_id}/fd/2")
    except OSError:
        return ""


def log_file(agent: LocalAgent) -> Path | None:
    """The regular file that the agent logs to and that can be read; None without one."""
    for told in (agent.log_file, error_stream(agent.process_id)):
        path = Path(told or "/")
        if path.is_absolute() and path.is_file() and os.access(path, os.R_OK):
            return path
    return None
