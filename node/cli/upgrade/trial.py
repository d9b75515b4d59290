"""Whether an installed version works here, and talks with the nodes of the version before it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass

from kakeya_fleet.fleet.cards.card import PROTOCOL_MAX, PROTOCOL_MIN
from kakeya_fleet.node.cli.shell.failure import CommandFailed

TRIAL_SECONDS = 60.0
# Its own process and its own code: nothing of the new version is imported here.
_VERSION = ("-P", "-m", "kakeya_fleet.node.cli", "--version")
_PROTOCOL = (
    "-P",
    "-c",
    "import json, kakeya_fleet.node.cli.join.command, kakeya_fleet.fleet.cards.card as c; "
    "print(json.dumps([c.PROTOCOL_MIN, c.PROTOCOL_MAX]))",
)


@dataclass(frozen=True, slots=True)
class Tried:
    """What the installed version said of itself; the protocol's least and greatest version."""

    version: str
    protocol: tuple[int, int]


def tried(interpreter: str, wanted: str = "") -> Tried:
    """Asks the version in the interpreter's environment, `wanted` if it is given.

    Raises `CommandFailed` (UPGRADE_FAILED) if it does not run, is another, or speaks no
    version of the protocol that this one speaks.
    """
    said = _said(interpreter, _VERSION)
    version = said.removeprefix("fleet ").strip()
    if not said.startswith("fleet ") or (wanted and version != wanted):
        raise _failure(f"`fleet --version` says {said.strip()!r} and not {wanted or 'a version'}")
    told = _said(interpreter, _PROTOCOL)
    try:
        least, greatest = json.loads(told)
    except (ValueError, TypeError) as error:
        raise _failure(f"version {version} does not tell its protocol") from error
    if least > PROTOCOL_MAX or greatest < PROTOCOL_MIN:
        raise _failure(
            f"version {version} speaks protocol {least} to {greatest}, the nodes of this fleet "
            f"{PROTOCOL_MIN} to {PROTOCOL_MAX}: they would not talk to each other"
        )
    return Tried(version, (least, greatest))


def _said(interpreter: str, arguments: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(
            [interpreter, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _failure(f"the new version does not run ({error})") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no words"])[-1]
        raise _failure(f"the new version does not run ({last})")
    return done.stdout


def _failure(cause: str) -> CommandFailed:
    return CommandFailed("UPGRADE_FAILED", cause)
