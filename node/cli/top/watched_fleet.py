"""What a fleet does, as its nodes tell it: the state behind `fleet top`. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from kakeya import (
    BlockTiming,
    EndedSession,
    FleetEvent,
    FleetSnapshot,
    Liveness,
    Node,
    NodeActivity,
    NodeChanged,
    NodeEvent,
    NodeHistory,
    NodeSample,
    NodeStatus,
    SessionActivity,
    SessionsEvent,
    SessionsSnapshot,
    Transfer,
    TransferState,
)

# Five minutes of samples, a second each; what a session's picture shows; what a screen holds.
KEPT_SAMPLES = 300
KEPT_BLOCKS = 256
KEPT_EVENTS = 256
KEPT_TRANSFERS = 64


@dataclass(slots=True)
class WatchedSession:
    """A session: its latest state, and its latest blocks."""

    node_id: str
    activity: SessionActivity
    blocks: deque[BlockTiming] = field(default_factory=lambda: deque(maxlen=KEPT_BLOCKS))

    @property
    def key(self) -> str:
        """Names the session in the fleet."""
        return self.activity.session.session_id

    @property
    def acceptance_length(self) -> float:
        """Tokens committed a verify forward; 0 before the first."""
        count = self.activity.verify_forward_count
        return self.activity.generated_token_count / count if count else 0.0


@dataclass(slots=True)
class WatchedNode:
    """A node: what the fleet says of it, what it says of itself, and why it says nothing.

    `told` is the monotonic time of `status`.
    """

    status: NodeStatus
    told: float
    node: Node | None = None
    samples: deque[NodeSample] = field(default_factory=lambda: deque(maxlen=KEPT_SAMPLES))
    events: deque[NodeEvent] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))
    transfers: dict[str, Transfer] = field(default_factory=dict)
    sessions: dict[str, WatchedSession] = field(default_factory=dict)
    trouble: str = ""
    has_told_itself: bool = False
    has_told_sessions: bool = False

    @property
    def latest(self) -> NodeSample | None:
        """The latest second; None while unknown, and of a node that is not alive or not heard."""
        is_heard = self.is_alive and not self.trouble
        return self.samples[-1] if self.samples and is_heard else None

    @property
    def is_alive(self) -> bool:
        """Whether the fleet holds it alive."""
        return self.status.liveness is Liveness.ALIVE

    @property
    def acceptance_length(self) -> float:
        """Tokens committed a verify forward, of all its open sessions; 0 while unknown."""
        activities = [session.activity for session in self.sessions.values()]
        forwards = sum(each.verify_forward_count for each in activities)
        tokens = sum(each.generated_token_count for each in activities)
        return tokens / forwards if forwards else 0.0


class WatchedFleet:
    """All nodes, their sessions, transfers and events. Times are arguments."""

    def __init__(self) -> None:
        self.fleet_name = ""
        self.unasked_count = 0
        """Live nodes that were not asked for themselves when nodes were last chosen."""
        self._nodes: dict[str, WatchedNode] = {}

    @property
    def nodes(self) -> list[WatchedNode]:
        """The nodes, by name."""
        return sorted(
            self._nodes.values(), key=lambda node: (node.status.name, node.status.node_id)
        )

    @property
    def sessions(self) -> list[WatchedSession]:
        """The sessions of all nodes that are alive, the longest open first."""
        found = [
            session
            for node in self._nodes.values()
            if node.is_alive
            for session in node.sessions.values()
        ]
        return sorted(found, key=lambda each: -each.activity.session.age_seconds)

    @property
    def events(self) -> list[tuple[WatchedNode, NodeEvent]]:
        """Events of all nodes with the nodes that told them, the latest first."""
        told = [(node, event) for node in self._nodes.values() for event in node.events]
        return sorted(told, key=lambda pair: -pair[1].at_unix)

    def drafted_by(self, node_id: str) -> tuple[int, int]:
        """Tokens that a node drafted for the open sessions, and those of them accepted."""
        activities = [
            session.activity
            for session in self.sessions
            if (proposer := session.activity.session.plan.proposer) is not None
            and proposer.node_id == node_id
        ]
        drafted = sum(each.drafted_count for each in activities)
        return drafted, sum(each.accepted_count for each in activities)

    @property
    def transfers(self) -> list[tuple[WatchedNode, Transfer]]:
        """Transfers that run, then those that failed, each with its node, the latest first."""
        found = [
            (node, transfer)
            for node in self._nodes.values()
            for transfer in node.transfers.values()
            if transfer.state is not TransferState.DONE
        ]
        order = {TransferState.RUNNING: 0, TransferState.FAILED: 1}
        return sorted(
            found, key=lambda pair: (order.get(pair[1].state, 2), -pair[1].started_at_unix)
        )

    def name_of(self, node_id: str) -> str:
        """A node's name; the first digits of its id while nothing is known of it."""
        node = self._nodes.get(node_id)
        return node.status.name if node else node_id[:12]

    def node(self, node_id: str) -> WatchedNode | None:
        """A node."""
        return self._nodes.get(node_id)

    def session(self, session_id: str) -> WatchedSession | None:
        """A session; `session_id` may be the start of its id."""
        found = [each for each in self.sessions if each.key.startswith(session_id)]
        return found[0] if found else None

    def take_fleet(self, event: FleetEvent, now: float) -> None:
        """What the fleet's watch told at the monotonic time `now`."""
        if isinstance(event, FleetSnapshot):
            self.fleet_name = event.fleet_name
            known = {status.node_id for status in event.nodes}
            for gone in self._nodes.keys() - known:
                del self._nodes[gone]
            for status in event.nodes:
                self._take_status(status, now)
        elif isinstance(event, NodeChanged):
            self._take_status(event.node, now)
        else:
            self._nodes.pop(event.node_id, None)

    def take_node(self, node_id: str, activity: NodeActivity) -> None:
        """What a node's own watch told."""
        node = self._nodes.get(node_id)
        if node is None:
            return
        match activity:
            case NodeHistory():
                node.node = activity.node
                node.samples = deque(activity.samples, maxlen=KEPT_SAMPLES)
                node.events = deque(activity.events, maxlen=KEPT_EVENTS)
                node.transfers = {each.transfer_id: each for each in activity.transfers}
                node.has_told_itself = True
                node.trouble = ""
            case NodeSample():
                node.samples.append(activity)
            case NodeEvent():
                node.events.append(activity)
            case Transfer():
                node.transfers[activity.transfer_id] = activity
                _forget_oldest(node.transfers)
            case Node():
                node.node = activity

    def take_sessions(self, node_id: str, event: SessionsEvent) -> None:
        """What a node's watch of its sessions told."""
        node = self._nodes.get(node_id)
        if node is None:
            return
        match event:
            case SessionsSnapshot():
                node.has_told_sessions = True
                node.sessions = {
                    each.session.session_id: _new_session(node_id, each) for each in event.sessions
                }
            case SessionActivity():
                session = node.sessions.get(event.session.session_id)
                if session is None:
                    node.sessions[event.session.session_id] = _new_session(node_id, event)
                else:
                    session.activity = event
                    session.blocks.extend(event.blocks)
            case EndedSession():
                node.sessions.pop(event.session_id, None)

    def trouble(self, node_id: str, reason: str) -> None:
        """A node's watch broke, for `reason`; what it told is kept until the next history."""
        node = self._nodes.get(node_id)
        if node is not None:
            node.trouble = reason
            node.has_told_itself = node.has_told_sessions = False

    def _take_status(self, status: NodeStatus, now: float) -> None:
        node = self._nodes.get(status.node_id)
        if node is None:
            self._nodes[status.node_id] = WatchedNode(status, now)
        else:
            node.status, node.told = status, now


def _new_session(node_id: str, activity: SessionActivity) -> WatchedSession:
    session = WatchedSession(node_id, activity)
    session.blocks.extend(activity.blocks)
    return session


def _forget_oldest(transfers: dict[str, Transfer]) -> None:
    """Forgets the transfers that ended first, beyond what is kept."""
    ended = [key for key, each in transfers.items() if each.state is not TransferState.RUNNING]
    for key in ended[: max(0, len(transfers) - KEPT_TRANSFERS)]:
        del transfers[key]


def total_speed(nodes: Iterable[WatchedNode]) -> float:
    """Tokens a second of all nodes together."""
    return sum(node.latest.tokens_per_second for node in nodes if node.latest is not None)
