"""What a person looks at in `fleet top`, and how keys change it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kakeya_fleet.node.cli.top.watched_fleet import WatchedFleet, WatchedNode, WatchedSession

Pane = Literal["nodes", "sessions"]

NODE_ORDERS = ("name", "speed", "memory", "cpu")
SESSION_ORDERS = ("age", "speed", "history", "label")


@dataclass(frozen=True, slots=True)
class TopView:
    """Where the person is: the pane, the chosen rows, the orders, whether details are open.

    `node_id` and `session_id` are empty until a row was chosen; `has_ended` tells that
    the person wants to leave.
    """

    pane: Pane = "nodes"
    node_id: str = ""
    session_id: str = ""
    node_order: str = NODE_ORDERS[0]
    session_order: str = SESSION_ORDERS[0]
    is_detailed: bool = False
    is_paused: bool = False
    has_ended: bool = False

    @property
    def order(self) -> str:
        """The order of the pane's rows."""
        return self.node_order if self.pane == "nodes" else self.session_order


def nodes_in_order(fleet: WatchedFleet, order: str) -> list[WatchedNode]:
    """The nodes as they are listed."""
    nodes = fleet.nodes
    if order == "speed":
        nodes.sort(key=lambda node: -(node.latest.tokens_per_second if node.latest else -1))
    elif order == "memory":
        nodes.sort(key=lambda node: -memory_share(node))
    elif order == "cpu":
        nodes.sort(key=_idleness)
    return nodes


def sessions_in_order(fleet: WatchedFleet, order: str) -> list[WatchedSession]:
    """The sessions as they are listed."""
    sessions = fleet.sessions
    if order == "speed":
        sessions.sort(key=lambda each: -each.activity.tokens_per_second)
    elif order == "history":
        sessions.sort(key=lambda each: -each.activity.session.history_length)
    elif order == "label":
        sessions.sort(key=lambda each: each.activity.session.client_label)
    return sessions


def memory_share(node: WatchedNode) -> float:
    """The share of the node's memory that is in use; 0 while unknown."""
    used, total = memory_of(node)
    return used / total if total else 0.0


def _idleness(node: WatchedNode) -> float:
    """Nodes that do not tell come last."""
    share = node.latest.cpu_share if node.latest else None
    return 1.0 if share is None else -share


def memory_of(node: WatchedNode) -> tuple[int, int]:
    """Bytes of memory in use and in all; zeros while unknown."""
    card = node.node.card if node.node else node.status.card
    if card is None or not card.memory_total_bytes:
        return 0, 0
    free = node.latest.memory_free_bytes if node.latest else card.memory_free_bytes
    return max(0, card.memory_total_bytes - free), card.memory_total_bytes


def press(view: TopView, key: str, fleet: WatchedFleet) -> TopView:
    """The view after a key."""
    match key:
        case "q":
            return replace(view, has_ended=True)
        case "p" | "space":
            return replace(view, is_paused=not view.is_paused)
        case "escape" | "left":
            return replace(view, is_detailed=False)
        case "enter" | "right":
            return _moved(replace(view, is_detailed=True), fleet, 0)
        case "tab" | "backtab":
            other: Pane = "sessions" if view.pane == "nodes" else "nodes"
            return _moved(replace(view, pane=other, is_detailed=False), fleet, 0)
        case "s":
            return _sorted(view)
        case "up" | "k":
            return _moved(view, fleet, -1)
        case "down" | "j":
            return _moved(view, fleet, 1)
        case "page up":
            return _moved(view, fleet, -10)
        case "page down":
            return _moved(view, fleet, 10)
        case _:
            return view


def _sorted(view: TopView) -> TopView:
    if view.pane == "nodes":
        return replace(view, node_order=_following(NODE_ORDERS, view.node_order))
    return replace(view, session_order=_following(SESSION_ORDERS, view.session_order))


def _following(orders: Sequence[str], order: str) -> str:
    return orders[(orders.index(order) + 1) % len(orders)]


def _moved(view: TopView, fleet: WatchedFleet, step: int) -> TopView:
    """The row `step` rows on; the first where none was chosen, or the chosen one is gone."""
    if view.pane == "nodes":
        ids = [node.status.node_id for node in nodes_in_order(fleet, view.node_order)]
        return replace(view, node_id=_neighbour(ids, view.node_id, step))
    ids = [session.key for session in sessions_in_order(fleet, view.session_order)]
    return replace(view, session_id=_neighbour(ids, view.session_id, step))


def _neighbour(ids: Sequence[str], chosen: str, step: int) -> str:
    if not ids:
        return ""
    if chosen not in ids:
        return ids[0]
    return ids[min(len(ids) - 1, max(0, ids.index(chosen) + step))]
