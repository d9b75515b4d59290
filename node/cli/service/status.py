"""`fleet service status`: which services there are, and how they are."""

from __future__ import annotations

import os

import click

from kakeya_fleet.node.cli.asking.options import json_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

EXAMPLE = """\b
Example:
  fleet service status
  fleet service status --name mini-1 --json
"""


@click.command("status", epilog=EXAMPLE)
@click.option("--name", help="Show the service of this node alone.")
@json_option
def command(name: str | None, *, as_json: bool) -> int:
    """Show the services of this user's nodes, and how they are.

    Exit code 0 if every one runs or starts, else 1; without any service 1 too.
    """
    from kakeya_fleet.node.cli.service.found import services, the_service
    from kakeya_fleet.node.cli.service.manager import State
    from kakeya_fleet.node.cli.service.manager_here import manager_here
    from kakeya_fleet.node.cli.service.told import facts_of, lines_of
    from kakeya_fleet.node.cli.terminal.output import say, write_json

    manager = manager_here(os.environ)
    found = services(manager) if name is None else [the_service(manager, name)]
    if as_json:
        write_json({"services": [facts_of(manager, each) for each in found]})
    elif not found:
        say("no service is installed; `fleet service install --help` tells how to make one")
    else:
        for each in found:
            for line in lines_of(manager, each):
                say(line)
    well = (State.RUNNING, State.STARTING)
    runs = bool(found) and all(each.condition.state in well for each in found)
    return ExitCode.OK if runs else ExitCode.NEGATIVE
