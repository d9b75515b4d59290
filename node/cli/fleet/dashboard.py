"""`fleet dashboard`: the fleet in a browser, live."""

from __future__ import annotations

import click

from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

EXAMPLE = """\b
Example:
  fleet dashboard
  fleet dashboard --node 127.0.0.1:7600 --port 7700 --no-open
"""


@click.command("dashboard", epilog=EXAMPLE)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Port on 127.0.0.1 to serve the page on, 0 for any. Default: 7700, or any if it is taken.",
)
@click.option("--no-open", is_flag=True, help="Print the address; open no browser.")
@node_option
@json_option
def command(port: int | None, node: str | None, *, no_open: bool, as_json: bool) -> int:
    """Show the fleet in a browser, as it happens, chat with its models, load and unload them.

    Serves the page on this machine, to nobody else, until Ctrl-C. Started before its
    node, or when that is lost, it waits for one, and says so. Chats stay in the browser,
    which finds them again at the same port. Models are loaded and unloaded as by
    `fleet load` of this machine.
    """
    from kakeya_fleet.node.cli.asking.agent_log import log_file
    from kakeya_fleet.node.cli.asking.asked_node import named_address
    from kakeya_fleet.node.cli.asking.local_agents import agents_here
    from kakeya_fleet.node.cli.fleet.dashboard_access import told_access
    from kakeya_fleet.node.cli.fleet.dashboard_process import DashboardProcess, find_program
    from kakeya_fleet.node.cli.terminal.output import note, say, write_json

    def look() -> None:
        process.give_access(told_access(address))
        process.name_nodes({each.address: log_file(each) for each in agents_here()})

    program = find_program()
    address = named_address(node) if node else ""
    with DashboardProcess(program, address, port) as process:
        process.give_access(told_access(address))
        url = process.ready()
        if as_json:
            write_json({"event": "ready", "url": url, "node": node})
        else:
            say(f"the dashboard is at {url}; Ctrl-C ends it")
        if not no_open and not _opened(url):
            note("no browser could be opened: open the address by hand")
        process.follow(look, write_json if as_json else _tell)
    return ExitCode.OK


def _tell(word: dict[str, str]) -> None:
    """Says through whom the fleet is watched, or what is waited for."""
    from kakeya_fleet.node.cli.terminal.output import say

    if word["event"] == "watching":
        say(f"it shows the fleet through {word['node']}")
    else:
        say(f"it waits for {word['for']}: start one with `fleet join`")


def _opened(url: str) -> bool:
    """Opens the person's browser, whether there is one or not."""
    import webbrowser

    return webbrowser.open(url)
