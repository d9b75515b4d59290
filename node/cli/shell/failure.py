"""What a command says when something expected goes wrong, and its exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command."""

    OK = 0
    NEGATIVE = 1
    USAGE = 2
    FLEET_ERROR = 3
    INTERRUPTED = 130


class CommandFailed(Exception):
    """An expected failure: one sentence of what is wrong and how to mend it.

    `reason` is UPPER_SNAKE_CASE, `metadata` is for programs.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        exit_code: ExitCode = ExitCode.FLEET_ERROR,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})
        self.exit_code = exit_code


def report(failure: CommandFailed, *, as_json: bool) -> int:
    """Writes the failure to stderr (JSON: to stdout, one object) and returns its exit code."""
    if as_json:
        error = {
            "reason": failure.reason,
            "message": failure.message,
            "metadata": failure.metadata,
        }
        sys.stdout.write(json.dumps({"error": error}) + "\n")
    else:
        from kakeya_fleet.node.cli.terminal.output import note

        note(f"fleet: {failure.message}")
    return int(failure.exit_code)
