"""`fleet init`: a fleet that lets in invited machines alone, with this one as its first keeper."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.options import json_option
from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = """\b
Example:
  fleet init home
  fleet join --serve verifier=tiny
  fleet invite
  fleet init
"""


@click.command("init", epilog=EXAMPLE)
@click.argument("fleet_name", metavar="[NAME]", required=False)
@click.option("--name", help="The node's name for people. Default: the host's name.")
@click.option("--state", metavar="DIR", help="Its state directory. Default: one directory a name.")
@json_option
def command(fleet_name: str | None, name: str | None, state: str | None, *, as_json: bool) -> int:
    """Make the fleet NAME, whose members prove who they are and talk encrypted.

    This machine's node becomes its first keeper: who is invited there can join, everybody else
    is refused. The key of the fleet's authority lies in the node's state directory and nowhere
    else: make a second keeper with `fleet keeper add` once another node has joined.

    Where this machine has no file of configuration yet, one is written in which every key stands
    with its default and its meaning, as a comment; without NAME that is all.
    """
    from kakeya_fleet.fleet.errors import FleetError
    from kakeya_fleet.node.cli.shell.remedies import sentence
    from kakeya_fleet.node.errors import NodeError

    if fleet_name is None and (name or state):
        raise click.UsageError("--name and --state are of the node of a fleet: give its NAME, too")
    facts: dict[str, str] = {}
    try:
        # Before it is read: KAKEYA_CONFIG may name a file that is not there yet.
        file, is_new = _configured()
        if fleet_name is not None:
            facts = _made(fleet_name, {"name": name, "state": state})
    except (NodeError, FleetError) as error:
        message = sentence(str(error))
        raise CommandFailed(error.reason, message, metadata=error.metadata) from error
    _tell(facts, file, is_new=is_new, as_json=as_json)
    return ExitCode.OK


def _tell(facts: dict[str, str], file: Path, *, is_new: bool, as_json: bool) -> None:
    from kakeya_fleet.node.cli.terminal.output import say, write_json

    if as_json:
        event = "fleet_made" if facts else "configured"
        write_json({"event": event, **facts, "config_file": str(file), "config_is_new": is_new})
        return
    if facts:
        say(
            f"{facts['fleet_name']} is made, and {facts['name']} is its first keeper "
            f"({facts['state']})"
        )
        say(f"fleet join --name {facts['name']} --serve ROLE=MODEL    starts its node")
        say("fleet invite                               then lets in another machine")
    if is_new:
        say(f"{file} has every key of a node, to be set there")
    elif not facts:
        say(f"{file} is there already, and stays as it is; docs/configuration.md lists all keys")


def _configured() -> tuple[Path, bool]:
    """The file of configuration of this machine, and whether it was written now.

    Raises `StateUnwritable`.
    """
    import os
    from pathlib import Path

    from kakeya_fleet.node.config.config import default_file
    from kakeya_fleet.node.config.template import write_template

    named = os.environ.get("KAKEYA_CONFIG")
    file = Path(named).expanduser() if named else default_file()
    return file, write_template(file)


def _made(fleet_name: str, given: dict[str, str | None]) -> dict[str, str]:
    import os
    from contextlib import closing

    from kakeya_fleet.node.config.config import build
    from kakeya_fleet.node.config.state_directory import StateDirectory
    from kakeya_fleet.node.errors import AlreadyMember
    from kakeya_fleet.node.membership.identity import load_or_create
    from kakeya_fleet.node.trust.membership_files import MembershipFiles
    from kakeya_fleet.node.trust.trust import found_fleet

    flags: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    config = build({**flags, "fleet_name": fleet_name}, os.environ)
    with closing(StateDirectory(config.state_path)) as state:
        files = MembershipFiles(state.path)
        present = files.fleet()
        if present is not None:
            raise AlreadyMember(
                f"{config.name} is a member of the fleet {present.name} already",
                f"give another --name, or rm -r {files.path} for it to leave that fleet for good",
                fleet_name=present.name,
            )
        identity = load_or_create(state.identity_file)
        trust = found_fleet(files, fleet_name, identity.node_id, time.time)
        return {
            "fleet_name": fleet_name,
            "fleet_id": trust.fleet.fleet_id,
            "name": config.name,
            "node_id": identity.node_id,
            "state": str(state.path),
        }
