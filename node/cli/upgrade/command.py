"""`fleet upgrade`: a newer version in place, tried before it is trusted."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.options import json_option
from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kakeya_fleet.node.cli.upgrade.installation import Installation
    from kakeya_fleet.node.cli.upgrade.restarting import Running
    from kakeya_fleet.node.cli.upgrade.trial import Tried

EXAMPLE = """\b
Example:
  fleet upgrade
  fleet upgrade --to 0.2.0 --dry-run
  fleet upgrade --to 0.2.0 --wheels ./dist --json
"""


@click.command("upgrade", epilog=EXAMPLE)
@click.option("--to", "version", default="", metavar="VERSION", help="Default: the newest.")
@click.option(
    "--wheels",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder of wheels to take it from, besides the package index.",
)
@click.option("--dry-run", is_flag=True, help="Print the command, and change nothing.")
@json_option
def command(version: str, wheels: Path | None, *, dry_run: bool, as_json: bool) -> int:
    """Install another version in the place of this one, and restart this machine's services.

    Finds out how this one was installed (uv tool, pipx, pip or uv in a virtual environment) and
    runs that installer. The new version has to run, and to speak the protocol of this one's
    nodes, before a service is restarted; its node drains first, and clients that resume go on
    elsewhere. If anything fails, the old version is put back. Nodes that were started by hand are
    named, and left as they are.
    """
    from kakeya_fleet.node.cli.terminal.output import note, say, write_json
    from kakeya_fleet.node.cli.upgrade.installation import installation_here
    from kakeya_fleet.node.cli.upgrade.installing import install_words

    found = installation_here()
    folders = [wheels.absolute()] if wheels else []
    words = install_words(found, version, folders)
    if dry_run:
        if as_json:
            write_json({"event": "planned", "version": found.version, "command": list(words)})
        else:
            say(shlex.join(words))
        return ExitCode.OK
    from kakeya_fleet.node.cli.upgrade.restarting import running

    runs = running(found.interpreter, os.environ)
    if not as_json:
        note(f"{found.installer} installs it: {shlex.join(words)}")
    new, restarted = _upgraded(found, version, folders, runs)
    by_hand = [{"name": each.name, "process_id": each.process_id} for each in runs.by_hand]
    if as_json:
        facts = {"from": found.version, "to": new.version, "restarted": restarted}
        write_json({"event": "upgraded", **facts, "to_restart": by_hand})
        return ExitCode.OK
    same = new.version == found.version
    say(f"{new.version} is installed" + (" already" if same else f", {found.version} was"))
    for name in restarted:
        say(f"restarted the service of {name}")
    for agent in runs.by_hand:
        say(
            f"{agent.name} still runs what it was started with: end it with `fleet leave --node "
            f"{agent.name}` and join again (process {agent.process_id})"
        )
    if not restarted and not runs.by_hand:
        say("no node runs here: the next `fleet join` is of this version")
    return ExitCode.OK


def _upgraded(
    found: Installation, version: str, folders: Sequence[Path], runs: Running
) -> tuple[Tried, list[str]]:
    """The new version, and the services restarted; with the old one back when this raises."""
    # All of it before anything is installed: what is imported later is the new version's.
    import tempfile

    from kakeya_fleet.node.cli.upgrade.installing import install, install_words, keep_wheels
    from kakeya_fleet.node.cli.upgrade.restarting import restart
    from kakeya_fleet.node.cli.upgrade.trial import tried

    with tempfile.TemporaryDirectory(prefix="kakeya-upgrade-") as kept:
        keep_wheels(Path(kept))
        back = install_words(found, found.version, [Path(kept), *folders])
        try:
            install(install_words(found, version, folders))
            new = tried(found.interpreter, version)
            if new.version == found.version:
                return new, []
            return new, restart(runs.manager, runs.services)
        except CommandFailed as failure:
            undone = _put_back(found, back, runs)
            raise CommandFailed(
                "UPGRADE_FAILED",
                f"{failure.message.rstrip('.')}; {undone}.",
                metadata=failure.metadata,
            ) from failure


def _put_back(found: Installation, words: Sequence[str], runs: Running) -> str:
    """The old version is installed and its services run, in words; or why not."""
    from kakeya_fleet.node.cli.upgrade.installing import install
    from kakeya_fleet.node.cli.upgrade.restarting import restart, running
    from kakeya_fleet.node.cli.upgrade.trial import tried

    try:
        if not _is_as_before(found):
            install(words)
            tried(found.interpreter, found.version)
            still = running(found.interpreter, os.environ)
            restart(still.manager, runs.services)
    except CommandFailed as failure:
        return (
            f"{found.version} could not be put back ({failure.message.rstrip('.')}): install it by "
            f"hand with `{shlex.join(words)}`"
        )
    return f"{found.version} is in place as before"


def _is_as_before(found: Installation) -> bool:
    """Whether the installer left all as it was, so that no service need be restarted."""
    from kakeya_fleet.node.cli.upgrade.trial import tried

    try:
        tried(found.interpreter, found.version)
    except CommandFailed:
        return False
    return True
