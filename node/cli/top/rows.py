"""The rows of `fleet top`: nodes, sessions, transfers and events. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from kakeya import (
    EventSeverity,
    Liveness,
    Role,
    SessionState,
    Transfer,
    TransferState,
)
from kakeya_fleet.node.cli.fleet.event_lines import EventLine
from kakeya_fleet.node.cli.terminal.quantities import (
    bytes_text,
    count_text,
    short_speed,
    told_share_text,
)
from kakeya_fleet.node.cli.terminal.transfer_text import progress_text
from kakeya_fleet.node.cli.top.looks import (
    DRAFT,
    VERIFY,
    WAIT,
    WIRE,
    bar,
    block_cells,
    fitted,
    memory_style,
    sparkline,
    split_bar,
)
from kakeya_fleet.node.cli.top.view import memory_of
from kakeya_fleet.node.cli.top.watched_fleet import WatchedFleet, WatchedNode, WatchedSession
from kakeya_fleet.node.cli.top.work import measure_of, roles_of, top_for, work_text


@dataclass(frozen=True, slots=True)
class TopColumn:
    """A column: its title, its least width, its share of the width that is left over."""

    title: str
    least: int
    share: int = 0
    most: int = 1000
    right: bool = False


NODE_COLUMNS = (
    TopColumn("", 1),
    TopColumn("NODE", 9, 2, most=24),
    TopColumn("STATE", 7),
    TopColumn("WORK", 8, 6, most=30, right=True),
    TopColumn("LATELY", 6, 6, most=120),
    TopColumn("CPU", 4, right=True),
    TopColumn("MEMORY", 9, 3, most=36),
    TopColumn("K/V", 8, right=True),
    TopColumn("SESS", 4, right=True),
    TopColumn("ACC", 4, right=True),
    TopColumn("LINKS", 9, 2, most=40),
)

SESSION_COLUMNS = (
    TopColumn("", 1),
    TopColumn("SESSION", 8, 2, most=24),
    TopColumn("MODEL", 7, 2, most=30),
    TopColumn("NODE", 7, 1, most=20),
    TopColumn("DRAFTS", 7, 2, most=30),
    TopColumn("TOK/S", 5, right=True),
    TopColumn("HIST", 6, right=True),
    TopColumn("ACC", 4, right=True),
    TopColumn("DOES", 4),
    TopColumn("BLOCKS", 14, 6, most=120),
    TopColumn("SPLIT", 6, 1, most=20),
)

# Columns whose pictures fill their width.
_NODE_WORK = [column.title for column in NODE_COLUMNS].index("WORK")
NODE_SPARKLINE = [column.title for column in NODE_COLUMNS].index("LATELY")
_NODE_MEMORY = [column.title for column in NODE_COLUMNS].index("MEMORY")
_SESSION_BLOCKS = [column.title for column in SESSION_COLUMNS].index("BLOCKS")
_SESSION_SPLIT = [column.title for column in SESSION_COLUMNS].index("SPLIT")

_LIVENESS = {
    Liveness.ALIVE: "green",
    Liveness.SUSPECT: "yellow",
    Liveness.DEAD: "red",
    Liveness.LEFT: "bright_black",
}

_SEVERITY = {EventSeverity.WARNING: "yellow", EventSeverity.ERROR: "red"}

_STATES = {
    SessionState.IDLE: "idle",
    SessionState.APPENDING: "read",
    SessionState.GENERATING: "gen",
    SessionState.RESTING: "rest",
}

_LEAST_BAR = 6

Row = Sequence[Text | str]


def widths(columns: Sequence[TopColumn], total: int) -> list[int]:
    """Widths that fill `total` with one space between; the least ones where it is too narrow."""
    found = [column.least for column in columns]
    left = total - sum(found) - len(columns) + 1
    while left > 0:
        growing = [
            index
            for index, column in enumerate(columns)
            if column.share and found[index] < column.most
        ]
        if not growing:
            break
        whole = sum(columns[index].share for index in growing)
        given = 0
        for index in growing:
            more = min(left * columns[index].share // whole, columns[index].most - found[index])
            found[index] += more
            given += more
        if not given:
            found[growing[0]] += 1
            given = 1
        left -= given
    return found


def line(columns: Sequence[TopColumn], sizes: Sequence[int], row: Row) -> Text:
    """A row as one line of the columns' widths."""
    cells = [
        fitted(cell, size, right=column.right)
        for column, size, cell in zip(columns, sizes, row, strict=True)
    ]
    return Text(" ").join(cells)


def node_row(
    fleet: WatchedFleet,
    node: WatchedNode,
    sizes: Sequence[int],
    tops: dict[Role, float],
    *,
    is_chosen: bool,
) -> Row:
    """A node's cells; its sparkline is as high as its share of its role's of `tops`."""
    style = "" if node.is_alive else "bright_black"
    latest = node.latest
    measure = measure_of(node)
    work = [measure(sample) for sample in node.samples] if node.is_alive else []
    return [
        "›" if is_chosen else "",
        Text(node.status.name, style or "bold"),
        Text(node.status.liveness.value, _LIVENESS.get(node.status.liveness, "")),
        Text(work_text(node, sizes[_NODE_WORK]), style),
        sparkline(work, sizes[NODE_SPARKLINE], top_for(node, tops)),
        Text(_cpu(node), style),
        _memory(node, sizes[_NODE_MEMORY]),
        Text(bytes_text(latest.kv_bytes) if latest else "-", style),
        Text(_session_count(node), style),
        Text(_accepted(fleet, node), style),
        Text(node.trouble, "red") if node.trouble else Text(_links(node), style),
    ]


def session_row(
    session: WatchedSession, node_name: str, sizes: Sequence[int], *, is_chosen: bool
) -> Row:
    """A session's cells."""
    activity = session.activity
    info = activity.session
    proposer = info.plan.proposer
    dropped = info.drop_reason is not None
    drafts = proposer.model_id if proposer else "nobody"
    if proposer and proposer.node_name != node_name:
        drafts = f"{drafts}@{proposer.node_name}"
    working = info.state is not SessionState.IDLE
    return [
        "›" if is_chosen else "",
        Text(info.client_label or info.session_id[:8], "bold"),
        info.model_id,
        node_name,
        Text(f"dropped: {drafts}" if dropped else drafts, "yellow" if dropped else ""),
        short_speed(activity.tokens_per_second),
        count_text(info.history_length),
        f"{session.acceptance_length:.2f}" if session.acceptance_length else "-",
        Text(_STATES.get(info.state, "?"), "green" if working else "bright_black"),
        block_cells(session.blocks, sizes[_SESSION_BLOCKS]),
        split_bar(split_of(session), sizes[_SESSION_SPLIT]),
    ]


def split_of(session: WatchedSession) -> list[tuple[float, str]]:
    """Where a session's seconds went: waiting for draft and wire, and verifying.

    The wait is shared as the drafts' own time and their way were.
    """
    activity = session.activity
    trip = activity.draft_seconds + activity.wire_seconds
    wait = activity.wait_seconds
    if trip <= 0:
        return [(wait, WAIT), (activity.verify_seconds, VERIFY)]
    return [
        (wait * activity.draft_seconds / trip, DRAFT),
        (wait * activity.wire_seconds / trip, WIRE),
        (activity.verify_seconds, VERIFY),
    ]


def transfer_line(transfer: Transfer, node_name: str, width: int) -> Text:
    """`download Qwen/Qwen3-0.6B on mini-1 ███░░ 512 MiB of 1.20 GiB, 12 MB/s, 1 min left`."""
    text = Text(f"{transfer.kind.value} {transfer.model_id} on {node_name} ", "bold")
    if transfer.state is TransferState.FAILED:
        text.append(f"failed: {transfer.error}", "red")
        return fitted(text, width)
    if transfer.state is TransferState.DONE:
        return fitted(text.append("done", "green"), width)
    facts = progress_text(transfer)
    if width - text.cell_len - len(facts) < _LEAST_BAR:
        facts = progress_text(transfer, has_bytes=False)
    room = width - text.cell_len - len(facts) - 1
    if transfer.total_bytes and room >= _LEAST_BAR:
        text.append_text(bar(transfer.done_bytes, transfer.total_bytes, min(room, 30), "cyan"))
        text.append(" ")
    return fitted(text.append(facts), width)


def event_text(line: EventLine, fleet: WatchedFleet, width: int) -> list[Text]:
    """`12:04:31  mini-1  what happened`, and the mend below it where there is one."""
    event = line.event
    at = time.strftime("%H:%M:%S", time.localtime(event.at_unix))
    teller, *others = line.teller_ids
    who = f"{1 + len(others)} nodes" if others else fleet.name_of(teller)
    text = Text(f"{at}  ", "bright_black").append(f"{who}  ", "bold")
    indent = text.cell_len
    text.append(event.message, _SEVERITY.get(event.severity, "default"))
    lines = [fitted(text, width)]
    if event.mend:
        lines.append(fitted(Text(" " * indent).append(f"→ {event.mend}", "cyan"), width))
    return lines


def _accepted(fleet: WatchedFleet, node: WatchedNode) -> str:
    """A verifier's acceptance length; of a node that only drafts, the share of it accepted."""
    if not node.is_alive:
        return "-"
    if Role.VERIFIER in roles_of(node):
        return f"{node.acceptance_length:.2f}" if node.acceptance_length else "-"
    drafted, accepted = fleet.drafted_by(node.status.node_id)
    return f"{100 * accepted / drafted:.0f}%" if drafted else "-"


def _cpu(node: WatchedNode) -> str:
    """What all programs of its machine keep busy of its cores."""
    return told_share_text(node.latest.cpu_share if node.latest else None).replace(" ", "")


def _memory(node: WatchedNode, width: int) -> Text:
    used, total = memory_of(node)
    if not total:
        return Text("-")
    share = used / total
    text = f" {100 * share:3.0f} %"
    if width >= 30:
        text += f" of {bytes_text(total)}"
    style = memory_style(share) if node.is_alive else "bright_black"
    return bar(used, total, max(3, width - len(text)), style).append(text)


def _session_count(node: WatchedNode) -> str:
    latest = node.latest
    if latest is None:
        return "-"
    running = f"/{latest.generating_count}" if latest.generating_count else ""
    return f"{latest.session_count}{running}"


def _links(node: WatchedNode) -> str:
    """`2 ring, 1 grpc`; the number of measured peers where no tensors travel."""
    if node.node is None or not node.is_alive:
        return "-"
    counts: dict[str, int] = {}
    for link in node.node.tensor_links:
        counts[link.transport.value] = counts.get(link.transport.value, 0) + 1
    if not counts:
        return "-"
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items(), reverse=True))
