"""The screen of `fleet top` as lines: everything at a glance, or one node or session. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from kakeya_fleet.node.cli.fleet.event_lines import event_lines
from kakeya_fleet.node.cli.terminal.quantities import bytes_text, speed_text
from kakeya_fleet.node.cli.top.details import node_details, session_details
from kakeya_fleet.node.cli.top.looks import fitted
from kakeya_fleet.node.cli.top.rows import (
    NODE_COLUMNS,
    NODE_SPARKLINE,
    SESSION_COLUMNS,
    TopColumn,
    event_text,
    line,
    node_row,
    session_row,
    transfer_line,
    widths,
)
from kakeya_fleet.node.cli.top.view import TopView, nodes_in_order, sessions_in_order
from kakeya_fleet.node.cli.top.watched_fleet import (
    WatchedFleet,
    WatchedNode,
    WatchedSession,
    total_speed,
)
from kakeya_fleet.node.cli.top.work import tops_of

_HEAD = "bold cyan"
_MOST_TRANSFERS = 4
_WIDE = 100


def draw(fleet: WatchedFleet, view: TopView, width: int, height: int) -> list[Text]:
    """The screen: exactly `height` lines of `width` cells."""
    lines = [_title(fleet, view, width)]
    room = height - 2
    if view.is_detailed:
        lines += _details(fleet, view, width)[:room]
    else:
        lines += _overview(fleet, view, width, room)
    lines += [Text(" " * width)] * (height - 1 - len(lines))
    return [*lines[: height - 1], _footer(view, width)]


def shared_rows(wanted: Sequence[int], room: int) -> list[int]:
    """Rows for each part: one after the other gets one more until all have what they want."""
    given = [0] * len(wanted)
    while room > 0:
        hungry = [index for index, want in enumerate(wanted) if given[index] < want]
        if not hungry:
            break
        for index in hungry[:room]:
            given[index] += 1
        room -= len(hungry[:room])
    return given


def _title(fleet: WatchedFleet, view: TopView, width: int) -> Text:
    nodes, sessions = fleet.nodes, fleet.sessions
    alive = [node for node in nodes if node.is_alive]
    kv_bytes = sum(node.latest.kv_bytes for node in alive if node.latest)
    forwards = sum(each.activity.verify_forward_count for each in sessions)
    tokens = sum(each.activity.generated_token_count for each in sessions)
    facts = [
        f"{len(nodes)} node{'' if len(nodes) == 1 else 's'}, {len(alive)} alive"
        + (f" ({fleet.unasked_count} not asked)" if fleet.unasked_count else ""),
        speed_text(total_speed(nodes)) if total_speed(nodes) else "0 tok/s",
        f"{len(sessions)} session{'' if len(sessions) == 1 else 's'}",
        f"K/V {bytes_text(kv_bytes)}",
    ]
    if forwards:
        facts.append(f"{'acceptance' if width >= _WIDE else 'acc'} {tokens / forwards:.2f}")
    text = Text(f'fleet "{fleet.fleet_name}"  ', "bold").append("  ".join(facts))
    if view.is_paused:
        text.append("  PAUSED", "bold yellow")
    return fitted(text, width)


def _footer(view: TopView, width: int) -> Text:
    if view.is_detailed:
        keys = "q quit  esc back  ↑↓ next  p pause"
    else:
        other = "sessions" if view.pane == "nodes" else "nodes"
        keys = f"q quit  ↑↓ move  enter details  tab {other}  s sort: {view.order}  p pause"
    return fitted(Text(keys, "bright_black"), width)


def _overview(fleet: WatchedFleet, view: TopView, width: int, room: int) -> list[Text]:
    nodes = nodes_in_order(fleet, view.node_order)
    sessions = sessions_in_order(fleet, view.session_order)
    transfers = fleet.transfers[:_MOST_TRANSFERS]
    told = [(node.status.node_id, event) for node, event in reversed(fleet.events)]
    events = list(reversed(event_lines(told)))
    heads = 4 if transfers else 3
    rows = shared_rows(
        [len(nodes), max(1, len(sessions)), len(transfers), max(1, len(events))], room - heads
    )
    lines = _node_lines(fleet, nodes, view, width, rows[0])
    lines += _session_lines(fleet, sessions, view, width, rows[1])
    if transfers:
        lines.append(_section("TRANSFERS", width))
        lines += [
            transfer_line(transfer, node.status.name, width)
            for node, transfer in transfers[: rows[2]]
        ]
    lines.append(_section("EVENTS", width))
    written = [row for each in events for row in event_text(each, fleet, width)]
    lines += written[: max(rows[3], room - len(lines))]
    if not events:
        lines.append(fitted(Text("  none yet", "bright_black"), width))
    return lines


def _node_lines(
    fleet: WatchedFleet, nodes: Sequence[WatchedNode], view: TopView, width: int, room: int
) -> list[Text]:
    sizes = widths(NODE_COLUMNS, width)
    tops = tops_of(nodes, sizes[NODE_SPARKLINE])
    is_active = view.pane == "nodes"
    chosen = view.node_id if is_active else ""
    first = _first([node.status.node_id for node in nodes], chosen, room)
    lines = [_head(NODE_COLUMNS, sizes, is_chosen=is_active, hidden=len(nodes) - room)]
    for node in nodes[first : first + room]:
        is_chosen = node.status.node_id == chosen
        cells = node_row(fleet, node, sizes, tops, is_chosen=is_chosen)
        lines.append(_marked(line(NODE_COLUMNS, sizes, cells), is_chosen=is_chosen))
    return lines


def _session_lines(
    fleet: WatchedFleet, sessions: Sequence[WatchedSession], view: TopView, width: int, room: int
) -> list[Text]:
    sizes = widths(SESSION_COLUMNS, width)
    is_active = view.pane == "sessions"
    chosen = view.session_id if is_active else ""
    first = _first([each.key for each in sessions], chosen, room)
    lines = [_head(SESSION_COLUMNS, sizes, is_chosen=is_active, hidden=len(sessions) - room)]
    for session in sessions[first : first + room]:
        is_chosen = session.key == chosen
        cells = session_row(session, fleet.name_of(session.node_id), sizes, is_chosen=is_chosen)
        lines.append(_marked(line(SESSION_COLUMNS, sizes, cells), is_chosen=is_chosen))
    if not sessions:
        lines.append(fitted(Text("  no session is open", "bright_black"), width))
    return lines


def _details(fleet: WatchedFleet, view: TopView, width: int) -> list[Text]:
    if view.pane == "nodes":
        node = fleet.node(view.node_id)
        if node is not None:
            return node_details(fleet, node, width)
    else:
        session = fleet.session(view.session_id) if view.session_id else None
        if session is not None:
            return session_details(fleet, session, width)
    gone = "the session has ended" if view.pane == "sessions" else "the node is forgotten"
    return [fitted(Text(f"{gone}: esc goes back", "bright_black"), width)]


def _head(
    columns: Sequence[TopColumn], sizes: Sequence[int], *, is_chosen: bool, hidden: int
) -> Text:
    titles = [column.title for column in columns]
    if hidden > 0:
        titles[1] += f" +{hidden}"
    head = line(columns, sizes, titles)
    head.stylize(f"{_HEAD} reverse" if is_chosen else _HEAD)
    return head


def _section(title: str, width: int) -> Text:
    return fitted(Text(title, _HEAD), width)


def _marked(row: Text, *, is_chosen: bool) -> Text:
    if is_chosen:
        row.stylize("bold reverse")
    return row


def _first(ids: Sequence[str], chosen: str, shown: int) -> int:
    """The first row of a window of `shown` rows in which the chosen one lies."""
    if chosen not in ids:
        return 0
    return max(0, min(ids.index(chosen) - shown // 2, len(ids) - shown))
