"""The text of a node's systemd user unit, and what is read back of one.

systemd.unit(5), systemd.service(5) and systemd.exec(5) have the keys. Only what a user's
manager can do without root is asked for: `systemd-analyze verify --user` must be silent.
"""

from __future__ import annotations

import json
from pathlib import Path

from kakeya_fleet.node.cli.service.definition import (
    ENDED_BY_SIGNAL,
    LATEST_RESTART_SECONDS,
    NOT_RESTARTED,
    RESTART_SECONDS,
    START_LIMIT_COUNT,
    START_LIMIT_SECONDS,
    Definition,
)

GROWING_DELAY_VERSION = 254
"""The first systemd that lets the delay between restarts grow."""
_CONFIG_KEY = "Config="


def unit_text(service: Definition, systemd_version: int) -> str:
    """The unit. Its last section is for `config_file_of`: systemd skips what begins with X-."""
    program, *arguments = service.command
    growing = systemd_version >= GROWING_DELAY_VERSION
    lines = [
        "# Written by `fleet service install`, which writes it anew.",
        "[Unit]",
        f"Description=Kakeya Fleet node {_specifiers(service.name)}",
        f"StartLimitIntervalSec={START_LIMIT_SECONDS}",
        f"StartLimitBurst={START_LIMIT_COUNT}",
        "",
        "[Service]",
        "# Started is ready: the node says so when everything is loaded, however long that takes.",
        "Type=notify",
        "NotifyAccess=main",
        "TimeoutStartSec=infinity",
        f"ExecStart={' '.join([_quoted(program), *(_argument(each) for each in arguments)])}",
        *(f"Environment={_quoted(f'{key}={value}')}" for key, value in service.environment),
        "Restart=on-failure",
        f"RestartSec={RESTART_SECONDS}",
        *(["RestartSteps=5", f"RestartMaxDelaySec={LATEST_RESTART_SECONDS}"] if growing else []),
        f"RestartPreventExitStatus={_codes(NOT_RESTARTED)}",
        f"SuccessExitStatus={_codes(ENDED_BY_SIGNAL)}",
        "# The node drains at SIGTERM, and ends its own processes after that.",
        "KillSignal=SIGTERM",
        "KillMode=mixed",
        f"TimeoutStopSec={service.stop_seconds}",
        f"LimitNOFILE={service.descriptors}",
        "# No PrivateTmp: nodes of one machine meet in its shared memory and temporary files. No",
        "# MemoryDenyWriteExecute: tensor libraries compile kernels.",
        "NoNewPrivileges=yes",
        "LockPersonality=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "SystemCallArchitectures=native",
        "UMask=0077",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
        "[X-Kakeya]",
        f"{_CONFIG_KEY}{json.dumps(str(service.config_file))}",
    ]
    return "\n".join(lines) + "\n"


def config_file_of(text: str) -> Path | None:
    """The configuration that a unit's node reads; None for a unit of somebody else."""
    for line in reversed(text.splitlines()):
        if line.startswith(_CONFIG_KEY):
            try:
                return Path(str(json.loads(line.removeprefix(_CONFIG_KEY))))
            except ValueError:
                return None
    return None


def _codes(codes: tuple[int, ...]) -> str:
    return " ".join(map(str, codes))


def _specifiers(text: str) -> str:
    """The text as systemd reads it: a percent sign begins a specifier."""
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{_specifiers(escaped)}"'


def _argument(text: str) -> str:
    """Quoted for ExecStart, where a dollar sign begins a variable, but not in the program."""
    return _quoted(text.replace("$", "$$"))
