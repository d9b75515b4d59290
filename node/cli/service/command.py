"""`fleet service`: its commands, each imported when it is called."""

from __future__ import annotations

from kakeya_fleet.node.cli.shell.lazy_group import LazyCommand, LazyGroup

COMMANDS = {
    "install": LazyCommand(
        "kakeya_fleet.node.cli.service.install", "Have this machine start a node, and keep it up."
    ),
    "status": LazyCommand(
        "kakeya_fleet.node.cli.service.status", "Show the services of this user's nodes."
    ),
    "uninstall": LazyCommand(
        "kakeya_fleet.node.cli.service.uninstall", "Drain a service's node, and remove the service."
    ),
}

DESCRIPTION = """A node as a service of this machine: systemd's on Linux, launchd's on a Mac.

The service runs this installation's own `fleet join` as you, starts it at login,
and again when it fails. Each command has --json.
"""
EXAMPLE = """\b
Example:
  fleet service install --name mini-1 --serve verifier=tiny
  fleet service status
  fleet service uninstall --name mini-1
"""

command = LazyGroup(name="service", help=DESCRIPTION, epilog=EXAMPLE, commands_by_name=COMMANDS)
