"""`fleet service uninstall`: a service's node drains and leaves, and is started no more."""

from __future__ import annotations

import os

import click

from kakeya_fleet.node.cli.asking.options import json_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

EXAMPLE = """\b
Example:
  fleet service uninstall
  fleet service uninstall --name mini-1 --json
"""
# drain_seconds is 3600 at most, and goodbye and margin come on top.
STOP_SECONDS = 3700.0


@click.command("uninstall", epilog=EXAMPLE)
@click.option("--name", help="The node whose service goes. Default: the only one there is.")
@json_option
def command(name: str | None, *, as_json: bool) -> int:
    """Drain a service's node, have it leave the fleet, and remove the service.

    The node's identity and what it knows of its fleet stay, for `fleet join` by the same name.
    """
    from kakeya_fleet.node.cli.join.failures import told_as_failures
    from kakeya_fleet.node.cli.service.found import the_service
    from kakeya_fleet.node.cli.service.installing import remove
    from kakeya_fleet.node.cli.service.manager_here import manager_here
    from kakeya_fleet.node.cli.terminal.output import say, write_json

    with told_as_failures():
        manager = manager_here(os.environ)
        found = the_service(manager, name)
        files = {"service": found.file, "config": found.config_file}
        remove(manager, found.name, files, STOP_SECONDS)
    state = found.config_file.parent
    removed = [str(path) for path in files.values()]
    if as_json:
        write_json(
            {"event": "uninstalled", "name": found.name, "removed": removed, "state": str(state)}
        )
    else:
        say(f"{found.name} has left and is no service any more; removed {' and '.join(removed)}")
        say(f"its identity stays in {state}")
    return ExitCode.OK
