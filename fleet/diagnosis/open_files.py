"""Whether a process can open further files and connections."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, ok

CHECK = "open_files"

NEARLY = 0.8
FEW = 1024
"""What shells give. An agent raises it to the hard limit, so fewer is the system's will."""


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """Descriptors that a process has open, and its limits; `whose` names it."""

    whose: str
    used: int
    soft: int
    hard: int
    """-1 in `soft` and `hard` stands for no limit."""


def open_files(files: OpenFiles) -> Finding:
    """Whether there are enough."""
    if files.soft < 0:
        return ok(CHECK, f"{files.whose} has {files.used} open, without a limit")
    told = f"{files.whose} has {files.used} of {files.soft} open"
    if files.used >= NEARLY * files.soft:
        return Finding(
            CHECK,
            Level.PROBLEM,
            f"{told}: nearly all",
            "Each connection and each file takes one; without any left, it refuses callers.",
            "Raise the limit (`ulimit -Hn`, LimitNOFILE= of systemd) and start the agent again; "
            "`fleet limits` shows who holds connections.",
        )
    if 0 <= files.hard < FEW:
        return Finding(
            CHECK,
            Level.WARNING,
            f"{files.whose} may open {files.hard} files at most",
            "The hard limit of this system or its service manager is low.",
            "Raise it (LimitNOFILE= of systemd, `docker run --ulimit nofile=65536`) and start the "
            "agent again.",
        )
    return ok(CHECK, told)
