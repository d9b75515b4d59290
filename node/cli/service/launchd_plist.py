"""The property list of a node's launchd agent, as launchd.plist(5) has it, and back."""

from __future__ import annotations

import plistlib
from pathlib import Path
from xml.parsers.expat import ExpatError

from kakeya_fleet.node.cli.service.definition import RESTART_SECONDS, Definition
from kakeya_fleet.node.cli.service.names import label


def plist_bytes(service: Definition) -> bytes:
    """The agent: started at login, and again when it fails.

    The node's log is a file that it rotates itself; `StandardErrorPath` has only what comes
    before the log is open, or from beside it.
    """
    return plistlib.dumps(
        {
            "Label": label(service.name),
            "ProgramArguments": list(service.command),
            "EnvironmentVariables": dict(service.environment),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": RESTART_SECONDS,
            "ExitTimeOut": service.stop_seconds,
            "ProcessType": "Interactive",
            "SoftResourceLimits": {"NumberOfFiles": service.descriptors},
            "StandardOutPath": "/dev/null",
            "StandardErrorPath": str(service.state / "service.err"),
            "Umask": 0o077,
        }
    )


def config_file_of(content: bytes) -> Path | None:
    """The configuration that an agent's node reads; None for an agent of somebody else."""
    try:
        arguments = plistlib.loads(content)["ProgramArguments"]
        return Path(arguments[arguments.index("--config") + 1])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, ExpatError):
        return None
