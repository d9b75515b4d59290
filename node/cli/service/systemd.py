"""systemd's manager of a user, asked through systemctl, loginctl and journalctl."""

from __future__ import annotations

import os
import pwd
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from kakeya_fleet.node.app.supervisor import ENDED
from kakeya_fleet.node.cli.service.asked_program import ask, tried
from kakeya_fleet.node.cli.service.definition import Definition
from kakeya_fleet.node.cli.service.manager import Condition, Installed, State
from kakeya_fleet.node.cli.service.names import UNIT_PREFIX, UNIT_SUFFIX, unit_name
from kakeya_fleet.node.cli.service.systemd_unit import config_file_of, unit_text
from kakeya_fleet.node.cli.shell.failure import CommandFailed

_SYSTEMCTL = ("systemctl", "--user", "--no-ask-password")
_ASKED = "ActiveState,SubState,MainPID,NRestarts,StatusText,Result,InvocationID,ExecMainStatus"
_STATES = {
    "active": State.RUNNING,
    "activating": State.STARTING,
    "reloading": State.RUNNING,
    "deactivating": State.STOPPING,
    "failed": State.FAILED,
}
LAST_LINE_COUNT = 5


class Systemd:
    """The manager of this process's user; units in `folder`."""

    kind = "systemd"
    keeps_log = True

    def __init__(self, folder: Path, version: int) -> None:
        self._folder = folder
        self._version = version

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Systemd:
        """The one that runs. Raises `CommandFailed` (SERVICE_UNSUPPORTED) where none does."""
        done = tried((*_SYSTEMCTL, "show", "--property=Version"))
        version = re.search(r"Version=\D*(\d+)", done.stdout)
        if done.returncode or version is None:
            cause = " ".join(done.stderr.split()) or "it tells no version"
            raise CommandFailed(
                "SERVICE_UNSUPPORTED",
                f"no systemd manages services for this user here ({cause.rstrip('.')}): log in as "
                "the user whose node it is, not by su or sudo, or keep `fleet join` running by "
                "other means.",
            )
        home = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
        return cls(Path(home) / "systemd" / "user", int(version[1]))

    def file_of(self, name: str) -> Path:
        """The unit's file."""
        return self._folder / unit_name(name)

    def content_of(self, service: Definition) -> bytes:
        """The unit's text."""
        return unit_text(service, self._version).encode()

    def installed(self) -> list[Installed]:
        """Units of nodes, by name."""
        files = sorted(self._folder.glob(f"{UNIT_PREFIX}*{UNIT_SUFFIX}"))
        found = ((file, config_file_of(_text(file))) for file in files)
        return [Installed(file, config) for file, config in found if config is not None]

    def start(self, name: str) -> None:
        """Starts it anew, now and at each login."""
        unit = unit_name(name)
        ask((*_SYSTEMCTL, "daemon-reload"))
        ask((*_SYSTEMCTL, "enable", unit))
        # One that failed too often would be refused.
        tried((*_SYSTEMCTL, "reset-failed", unit))
        ask((*_SYSTEMCTL, "restart", "--no-block", unit))

    def stop(self, name: str, seconds: float) -> None:
        """Stops it, now and at each login."""
        ask((*_SYSTEMCTL, "disable", "--now", unit_name(name)), seconds)

    def forget(self, name: str) -> None:
        """Has systemd forget the unit."""
        ask((*_SYSTEMCTL, "daemon-reload"))
        tried((*_SYSTEMCTL, "reset-failed", unit_name(name)))

    def condition(self, name: str) -> Condition:
        """As `systemctl show` tells."""
        out = ask((*_SYSTEMCTL, "show", unit_name(name), f"--property={_ASKED}"))
        return condition_of(dict(line.split("=", 1) for line in out.splitlines() if "=" in line))

    def log_command(self, name: str) -> str:
        """The journal's."""
        return f"journalctl --user --follow --unit {shlex.quote(unit_name(name))}"

    def last_words(self, name: str) -> str:
        """As the journal has them."""
        words = ("journalctl", "--user", "--no-pager", "--output=cat", f"--lines={LAST_LINE_COUNT}")
        done = tried((*words, f"--unit={unit_name(name)}"))
        lines = done.stdout.splitlines() if not done.returncode else []
        return "\n".join(line for line in lines if not line.startswith("-- "))

    def without_login(self) -> str:
        """Lingering, which only the user himself or root may ask for."""
        user = _user()
        if "Linger=yes" in tried(("loginctl", "show-user", user, "--property=Linger")).stdout:
            return ""
        if not tried(("loginctl", "--no-ask-password", "enable-linger", user)).returncode:
            return "it runs without a login too: lingering is enabled for this user"
        return (
            "it runs while you are logged in; to run it without a login: "
            f"sudo loginctl enable-linger {user}"
        )


def condition_of(shown: Mapping[str, str]) -> Condition:
    """What `systemctl show` says, by property."""
    state = _STATES.get(shown.get("ActiveState", ""), State.STOPPED)
    if shown.get("SubState") == "auto-restart":
        state = State.FAILING
    detail = shown.get("StatusText", "")
    if state in (State.FAILED, State.FAILING):
        result, code = shown.get("Result", ""), shown.get("ExecMainStatus", "0")
        kind = "signal" if result in ("signal", "core-dump") else "exit code"
        told = f"{kind} {code}" if code != "0" else result
        detail = detail.removeprefix(ENDED) if detail.startswith(ENDED) else told
    return Condition(
        state,
        process_id=int(shown.get("MainPID") or 0),
        run=shown.get("InvocationID", ""),
        restart_count=int(shown.get("NRestarts") or 0),
        detail=detail,
    )


def _user() -> str:
    """The name, or the number of a user without one."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, ValueError):
        return ""
