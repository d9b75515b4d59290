"""`fleet trace REQUEST`: a request's way through the fleet, and where its time went."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from kakeya import AsyncClient
    from kakeya_fleet.node.cli.trace.timeline import Placed

EXAMPLE = """\b
Example:
  curl -i http://127.0.0.1:7180/v1/chat/completions ...    # X-Request-Id: req-5d0c...
  fleet trace req-5d0c1f0a7b...
  fleet trace 4bf92f3577b34da6a3ce929d0e0e4736             # a trace id of traceparent
  fleet trace req-5d0c1f0a7b... --json | jq '.spans[] | [.node_name, .name, .duration_seconds]'
"""


@click.command("trace", epilog=EXAMPLE)
@click.argument("request")
@node_option
@json_option
def command(request: str, node: str | None, *, as_json: bool) -> int:
    """Show what each node did for one request, and how long it took.

    REQUEST is the id of a trace, the X-Request-Id of an answer of /v1, or the request_id that an
    application gave. Each node keeps its latest spans by itself: names, times and counts, never a
    token. Spans of other nodes lie within what asked for them, whatever their clocks say.
    """
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.terminal.output import fields_of, note, write_json
    from kakeya_fleet.node.cli.trace.asking import ask_fleet
    from kakeya_fleet.node.cli.trace.timeline import placed, total_seconds

    async def show(client: AsyncClient) -> int:
        told = await ask_fleet(client, request)
        lines = placed(told.nodes)
        if not lines:
            raise _unknown(request, told.silent)
        if as_json:
            spans = [
                {
                    **fields_of(line.span),
                    "node_id": line.node_id,
                    "node_name": line.node_name,
                    "offset_seconds": line.offset_seconds,
                    "depth": line.depth,
                }
                for line in lines
            ]
            write_json({"request": request, "spans": spans, "silent_nodes": list(told.silent)})
            return ExitCode.OK
        _print(request, lines, total_seconds(lines))
        if told.silent:
            note(f"did not answer: {', '.join(told.silent)}; what they did is missing")
        return ExitCode.OK

    return ask(node, show)


def _print(request: str, lines: list[Placed], seconds: float) -> None:
    from kakeya_fleet.node.cli.terminal.output import print_table
    from kakeya_fleet.node.cli.terminal.quantities import seconds_text
    from kakeya_fleet.node.cli.terminal.tables import Column

    columns = (
        Column("AFTER", right=True),
        Column("TOOK", right=True),
        Column("WHAT"),
        Column("NODE"),
        Column("MORE", folds=1),
    )
    rows = [
        (
            seconds_text(line.offset_seconds),
            seconds_text(line.span.duration_seconds),
            "  " * line.depth + line.span.name.rpartition("v1.")[2].removeprefix("/"),
            line.node_name,
            _more(line),
        )
        for line in lines
    ]
    nodes = len({line.node_id for line in lines})
    title = f"{request}: {seconds_text(seconds)} on {nodes} node{'s' if nodes > 1 else ''}"
    print_table(columns, rows, stream=sys.stdout, title=title)


def _more(line: Placed) -> str:
    told = [f"{each.name}={each.value}" for each in line.span.attributes if each.name != "session"]
    return " ".join([*([line.span.fault] if line.span.fault else []), *told])


def _unknown(request: str, silent: tuple[str, ...]) -> CommandFailed:
    missing = f" These did not answer: {', '.join(silent)}." if silent else ""
    return CommandFailed(
        "TRACE_NOT_FOUND",
        f"no node knows a request {request!r}: nodes keep their latest spans alone, so ask soon, "
        f"by the X-Request-Id of the answer or the trace's id.{missing}",
        metadata={"request": request},
    )
