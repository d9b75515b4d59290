"""launchd's manager of a user's login, asked through launchctl. Untested on a Mac."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from kakeya_fleet.node.cli.service.asked_program import ask, tried
from kakeya_fleet.node.cli.service.definition import Definition
from kakeya_fleet.node.cli.service.launchd_plist import config_file_of, plist_bytes
from kakeya_fleet.node.cli.service.manager import Condition, Installed, State
from kakeya_fleet.node.cli.service.names import LABEL_PREFIX, label
from kakeya_fleet.node.cli.shell.failure import CommandFailed

GONE_SECONDS = 60.0
LOOK_SECONDS = 0.1


class Launchd:
    """The agents of this process's user."""

    kind = "launchd"
    keeps_log = False

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` has the property lists; None for the user's own."""
        self._folder = folder or Path.home() / "Library" / "LaunchAgents"
        self._domain = f"gui/{os.getuid()}"

    def file_of(self, name: str) -> Path:
        """The property list."""
        return self._folder / f"{label(name)}.plist"

    def content_of(self, service: Definition) -> bytes:
        """The property list's bytes."""
        return plist_bytes(service)

    def installed(self) -> list[Installed]:
        """Agents of nodes, by name."""
        files = sorted(self._folder.glob(f"{LABEL_PREFIX}*.plist"))
        found = ((file, config_file_of(file.read_bytes())) for file in files)
        return [Installed(file, config) for file, config in found if config is not None]

    def start(self, name: str) -> None:
        """Boots it out if it is there, and in anew."""
        if self._told(name):
            self.stop(name, GONE_SECONDS)
        tried(("launchctl", "enable", self._target(name)))
        ask(("launchctl", "bootstrap", self._domain, str(self.file_of(name))))

    def stop(self, name: str, seconds: float) -> None:
        """Boots it out, and waits until it is gone: bootout may return before."""
        if not self._told(name):
            return
        ask(("launchctl", "bootout", self._target(name)), seconds)
        deadline = time.monotonic() + seconds
        while self._told(name):
            if time.monotonic() > deadline:
                raise CommandFailed(
                    "SERVICE_FAILED",
                    f"launchd has not ended {label(name)} in {seconds:g} s: "
                    f"see `launchctl print {self._target(name)}`.",
                )
            time.sleep(LOOK_SECONDS)

    def forget(self, name: str) -> None:
        """Nothing is left of an agent that was booted out."""

    def condition(self, name: str) -> Condition:
        """As `launchctl print` tells."""
        return condition_of(self._told(name))

    def log_command(self, _name: str) -> str:
        """None: the node writes a file."""
        return ""

    def last_words(self, name: str) -> str:
        """What it wrote beside its log."""
        config_file = config_file_of(self.file_of(name).read_bytes())
        told = config_file.with_name("service.err") if config_file else None
        if told is None or not told.exists():
            return ""
        return "\n".join(told.read_text("utf-8", errors="replace").splitlines()[-5:])

    def without_login(self) -> str:
        """Agents of launchd live as long as the login."""
        return "it runs while you are logged in: have macOS log you in automatically to change that"

    def _target(self, name: str) -> str:
        return f"{self._domain}/{label(name)}"

    def _told(self, name: str) -> str:
        done = tried(("launchctl", "print", self._target(name)))
        return "" if done.returncode else done.stdout


def condition_of(told: str) -> Condition:
    """What `launchctl print` says of an agent; empty for one that is not there."""
    facts = dict(re.findall(r"^\t(state|pid|last exit code|runs) = (.+)$", told, re.MULTILINE))
    process_id = int(facts["pid"]) if facts.get("pid", "").isdigit() else 0
    code = re.match(r"\d+", facts.get("last exit code", ""))
    failed = code is not None and int(code[0]) != 0
    if process_id:
        state = State.RUNNING
    elif not told or not failed:
        state = State.STOPPED
    else:
        state = State.FAILING
    return Condition(
        state,
        process_id=process_id,
        run=str(process_id or ""),
        restart_count=max(0, int(facts.get("runs", "1")) - 1) if told else 0,
        detail=f"exit code {code[0]}" if code is not None and failed and not process_id else "",
    )
