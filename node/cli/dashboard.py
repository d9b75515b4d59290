"""`fleet dashboard`: the fleet in a browser, live."""

from __future__ import annotations

import click

from node.cli.failure import ExitCode
from node.cli.options import json_option, node_option

EXAMPLE = """\b
Example:
  fleet dashboard
  fleet dashboard --node 127.0.0.1:7600 --port 7700 --no-open
"""


@click.command("dashboard", epilog=EXAMPLE)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="PORT",
    help="Port on 127.0.0.1 to serve the page on. Default: any free one.",
)
@click.option("--no-open", is_flag=True, help="Print the address; open no browser.")
@node_option
@json_option
def command(port: int, node: str | None, *, no_open: bool, as_json: bool) -> int:
    """Show nodes, sessions, plans, downloads and events in a browser, as they happen.

    Serves the page on this machine, to nobody else, until Ctrl-C. The page changes
    nothing but the sessions of its own playground.
    """
    from node.cli.asked_node import asked_address
    from node.cli.dashboard_process import DashboardProcess, find_program
    from node.cli.output import note, say, write_json

    program = find_program()
    address = asked_address(node)
    with DashboardProcess(program, address, port) as process:
        url = process.ready()
        if as_json:
            write_json({"event": "ready", "url": url, "node": address})
        else:
            say(f"the dashboard is at {url} (the fleet through {address}); Ctrl-C ends it")
        if not no_open and not _opened(url):
            note("no browser could be opened: open the address by hand")
        process.wait()
    return ExitCode.OK


def _opened(url: str) -> bool:
    """Opens the person's browser, whether there is one or not."""
    import webbrowser

    return webbrowser.open(url)
