"""One line of what happened: an event of the node, or a line of its log."""

from __future__ import annotations

import time
from collections.abc import Iterable

from kakeya import NodeEvent
from kakeya_fleet.node.cli.logs.log_file import LogLine
from kakeya_fleet.node.cli.terminal.output import fields_of, say, write_json
from kakeya_fleet.node.cli.terminal.printable import on_one_line

Entry = NodeEvent | LogLine


def in_order(entries: Iterable[Entry], since_unix: float) -> list[Entry]:
    """Those that happened from `since_unix` on, the oldest first."""
    return sorted(
        (entry for entry in entries if entry.at_unix >= since_unix), key=lambda each: each.at_unix
    )


def print_entry(entry: Entry, *, as_json: bool) -> None:
    """One entry as JSON with its `source`, or as a line; an event's mend stands below it."""
    if as_json:
        source = "event" if isinstance(entry, NodeEvent) else "log"
        write_json({"source": source, **fields_of(entry)})
        return
    at = time_text(entry.at_unix)
    if isinstance(entry, LogLine):
        say(f"{at}  {'log':7}  {on_one_line(entry.text)}")
        return
    say(f"{at}  {entry.severity.value:7}  {entry.kind}  {entry.message}")
    if entry.mend:
        say(f"{' ' * len(at)}  {'':7}  mend: {entry.mend}")


def time_text(at_unix: float) -> str:
    """A time of this machine's zone, `2026-11-24 02:07:31`; as it is told where it is none."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_unix))
    except (OverflowError, ValueError, OSError):
        return f"{at_unix:.0f}".rjust(19)[:19]
