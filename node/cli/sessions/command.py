"""`fleet sessions`: what a fleet's sessions hold, and `fleet sessions close`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.duration import Duration
from kakeya_fleet.node.cli.asking.known_names import complete_sessions
from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.shell.failure import ExitCode

if TYPE_CHECKING:
    from kakeya_fleet.node.cli.sessions.closing import Outcome
    from kakeya_fleet.node.cli.sessions.listing import Listing

EXAMPLE = """\b
Example:
  fleet sessions
  fleet sessions --node mini-2
  fleet sessions close 4f1c0a9b2d77
  fleet sessions close --idle 1h
  fleet sessions --json | jq '.sessions[] | select(.idle_seconds > 600) | .session_id'
"""


@click.group("sessions", epilog=EXAMPLE, invoke_without_command=True)
@node_option
@json_option
@click.pass_context
def command(context: click.Context, node: str | None, *, as_json: bool) -> int:
    """Show the open sessions of the fleet: what they hold, how long they are idle, who drafts.

    Of all nodes that serve a verifier, with --node of that one alone. A node tells its owner of
    every session, other callers of their own. How much there is, is shown, never what is said.
    """
    from kakeya_fleet.node.cli.sessions.table import COLUMNS, rows, totals_text
    from kakeya_fleet.node.cli.terminal.output import (
        fields_of,
        note,
        print_table,
        say,
        write_json,
    )

    if context.invoked_subcommand is not None:
        return ExitCode.OK
    _, listing = _listing(node)
    if as_json:
        write_json(
            {
                "sessions": [
                    {"node": each.node, "address": each.address, **fields_of(each.info)}
                    for each in listing.sessions
                ],
                "silent": [fields_of(each) for each in listing.silent],
            }
        )
        return ExitCode.OK
    if listing.sessions:
        title = totals_text(listing.sessions)
        print_table(COLUMNS, rows(listing.sessions), stream=sys.stdout, title=title)
    else:
        say("no session is open")
    for each in listing.silent:
        note(f"{each.node} does not tell: {each.why}")
    return ExitCode.OK


@command.command("close")
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=complete_sessions)
@click.option(
    "--idle",
    "idle_seconds",
    type=Duration(),
    metavar="DURATION",
    help="Those in which nothing has run for so long: 90s, 10m, 2h, 1d.",
)
@click.option("--all", "everything", is_flag=True, help="All that are listed.")
@node_option
@json_option
@click.pass_context
def close_command(
    context: click.Context,
    ids: tuple[str, ...],
    idle_seconds: float | None,
    node: str | None,
    *,
    everything: bool,
    as_json: bool,
) -> int:
    """End sessions by their ids, or the starts of them, and free their memory.

    What runs in one ends with an error; a chat whose client can resume opens its session anew.
    Nobody ends another caller's. The exit code is 1 where one of them was not closed.
    """
    if sum((bool(ids), idle_seconds is not None, everything)) != 1:
        raise click.UsageError("name the sessions, or give --idle DURATION, or --all")
    from kakeya_fleet.node.cli.asking.interruption import run_interruptible
    from kakeya_fleet.node.cli.sessions.choosing import idle_for, named
    from kakeya_fleet.node.cli.sessions.closing import close_all
    from kakeya_fleet.node.cli.terminal.output import note, say, write_json

    # Said before `close` or behind it.
    before = context.parent.params if context.parent is not None else {}
    node, as_json = node or before.get("node"), as_json or bool(before.get("as_json"))
    address, listing = _listing(node)
    chosen, unmatched = named(listing.sessions, ids)
    if everything:
        chosen = list(listing.sessions)
    elif idle_seconds is not None:
        chosen = idle_for(listing.sessions, idle_seconds)
    outcomes = run_interruptible(close_all(address, chosen))
    failed = [each for each in outcomes if each.reason]
    if as_json:
        write_json(
            {
                "closed": [_fields(each) for each in outcomes if not each.reason],
                "failed": [
                    *(_fields(each) for each in failed),
                    *(
                        {"session_id": each.typed, "reason": NOT_FOUND, "problem": each.why}
                        for each in unmatched
                    ),
                ],
            }
        )
    else:
        for each in outcomes:
            say(_text(each))
        for typed in unmatched:
            note(f"{typed.typed}: {typed.why}; `fleet sessions` lists them")
        if not outcomes and not unmatched:
            say("no such session is open")
        for silent in listing.silent:
            note(f"{silent.node} does not tell: {silent.why}")
    return ExitCode.NEGATIVE if failed or unmatched else ExitCode.OK


NOT_FOUND = "SESSION_NOT_FOUND"


def _listing(node: str | None) -> tuple[str, Listing]:
    """The node that was asked, host:port, and the sessions: of all nodes where none is named."""
    from kakeya_fleet.node.cli.asking.asked_node import asked_address
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.sessions.listing import of_fleet, of_node

    address = asked_address(node)
    return address, ask(address, of_fleet if node is None else of_node)


def _text(outcome: Outcome) -> str:
    from kakeya_fleet.node.cli.sessions.choosing import SHOWN_CHARACTERS
    from kakeya_fleet.node.cli.terminal.quantities import bytes_text

    session = outcome.session
    where = f"{session.info.session_id[:SHOWN_CHARACTERS]} on {session.node}"
    if outcome.reason:
        return f"{where} is not closed: {outcome.problem}"
    tokens, nbytes = session.info.history_length, bytes_text(session.info.kv_bytes)
    return f"{where} is closed: {session.info.model_id}, {tokens:,} tokens, {nbytes} of K/V"


def _fields(outcome: Outcome) -> dict[str, object]:
    session = outcome.session
    told: dict[str, object] = {
        "session_id": session.info.session_id,
        "node": session.node,
        "model_id": session.info.model_id,
    }
    if outcome.reason:
        return {**told, "reason": outcome.reason, "problem": outcome.problem}
    return {
        **told,
        "history_length": session.info.history_length,
        "kv_bytes": session.info.kv_bytes,
    }
