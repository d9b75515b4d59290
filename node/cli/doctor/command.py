"""`fleet doctor`: what is wrong with this machine, its agent and its fleet, and what mends it."""

from __future__ import annotations

import time

import click

from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

EXAMPLE = """\b
Example:
  fleet doctor
  fleet doctor --node mini-1
  fleet doctor --json | jq '.findings[] | select(.level == "problem")'

\b
Exit codes:
  0 no problem was found (warnings are none)   1 a problem was found
"""


@click.command("doctor", epilog=EXAMPLE)
@node_option
@json_option
def command(node: str | None, *, as_json: bool) -> int:
    """Look for what is wrong with this machine, its agent and its fleet, and say what mends it.

    One line a check: ok, warning, problem, or not run here. Cause and mend stand below what is
    not ok. Peers are called from this machine, and asked to call the node. It takes some 10 s
    at most, with frozen peers too.
    """
    from kakeya_fleet.fleet.diagnosis.finding import Finding, Level
    from kakeya_fleet.node.cli.asking.interruption import run_interruptible
    from kakeya_fleet.node.cli.doctor.checks import run_checks
    from kakeya_fleet.node.cli.doctor.report import counts, print_findings, summary
    from kakeya_fleet.node.cli.doctor.site import called_agent, look_around
    from kakeya_fleet.node.cli.terminal.output import fields_of, say, write_json
    from kakeya_fleet.node.cli.terminal.quantities import seconds_text

    address = called_agent(node)
    began = time.monotonic()

    async def examine() -> list[Finding]:
        site = await look_around(address)
        found: list[Finding] = []
        async for findings in run_checks(site):
            found += findings
            if not as_json:
                print_findings(findings)
        return found

    found = run_interruptible(examine())
    seconds = time.monotonic() - began
    if as_json:
        write_json(
            {
                "address": address,
                "seconds": seconds,
                "counts": counts(found),
                "findings": [fields_of(each) for each in found],
            }
        )
    else:
        say(f"{summary(found)} ({seconds_text(seconds)})")
    is_ill = any(each.level is Level.PROBLEM for each in found)
    return ExitCode.NEGATIVE if is_ill else ExitCode.OK
