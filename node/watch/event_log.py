"""The latest events of a node: what happened, how much it matters, what mends it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from kakeya_fleet.node.admission.limits import WatchLimits

MOST_EVENTS = WatchLimits().events


class Severity(StrEnum):
    """How much an event matters."""

    INFO = "info"
    WARNING = "warning"
    """Speed or context was lost, or is about to be."""
    ERROR = "error"
    """Something failed that people asked for."""


class EventKind(StrEnum):
    """What happened."""

    PEER_JOINED = "PEER_JOINED"
    PEER_SUSPECT = "PEER_SUSPECT"
    PEER_DEAD = "PEER_DEAD"
    PEER_LEFT = "PEER_LEFT"
    SEED_FAULT = "SEED_FAULT"
    SEED_JOINED = "SEED_JOINED"
    SAME_NAME = "SAME_NAME"
    LINK_PROMOTED = "LINK_PROMOTED"
    LINK_DEMOTED = "LINK_DEMOTED"
    PROPOSER_DROPPED = "PROPOSER_DROPPED"
    PROPOSER_BACK = "PROPOSER_BACK"
    BREAKER_OPENED = "BREAKER_OPENED"
    BREAKER_CLOSED = "BREAKER_CLOSED"
    SESSION_EVICTED = "SESSION_EVICTED"
    SESSION_RESTED = "SESSION_RESTED"
    SESSION_SHRUNK = "SESSION_SHRUNK"
    HISTORY_TRUNCATED = "HISTORY_TRUNCATED"
    INVARIANT_VIOLATED = "INVARIANT_VIOLATED"
    ARCHIVE_LOST = "ARCHIVE_LOST"
    ARCHIVE_WRONG = "ARCHIVE_WRONG"
    ARCHIVE_REBUILT = "ARCHIVE_REBUILT"
    CODEC_CHANGED = "CODEC_CHANGED"
    CODECS_LOST = "CODECS_LOST"
    GROUP_LOST = "GROUP_LOST"
    GROUP_NOT_STARTED = "GROUP_NOT_STARTED"
    GROUP_READY = "GROUP_READY"
    MODEL_LOADED = "MODEL_LOADED"
    LOAD_FAILED = "LOAD_FAILED"
    MODEL_UNLOADED = "MODEL_UNLOADED"
    MODEL_PULLED = "MODEL_PULLED"
    PULL_FAILED = "PULL_FAILED"
    MODEL_REMOVED = "MODEL_REMOVED"
    DRAINING = "DRAINING"
    BACKGROUND_FAULT = "BACKGROUND_FAULT"
    CERTIFICATE_ENDS = "CERTIFICATE_ENDS"
    PUT_OUT = "PUT_OUT"
    ROLES_WITHHELD = "ROLES_WITHHELD"
    ROLES_ALLOWED = "ROLES_ALLOWED"
    ADDRESSES_CHANGED = "ADDRESSES_CHANGED"
    BOUND_ADDRESS_GONE = "BOUND_ADDRESS_GONE"
    LOOP_STALLED = "LOOP_STALLED"
    JOINED_BY_CODE = "JOINED_BY_CODE"
    JOIN_REFUSED = "JOIN_REFUSED"
    JOIN_CODE_WRONG = "JOIN_CODE_WRONG"
    INVITATION_LOCKED = "INVITATION_LOCKED"


_INFO, _WARNING, _ERROR = Severity.INFO, Severity.WARNING, Severity.ERROR

_KNOWN: dict[EventKind, tuple[Severity, str]] = {
    EventKind.PEER_JOINED: (_INFO, ""),
    EventKind.PEER_SUSPECT: (
        _WARNING,
        "Nothing yet: it may answer again. See whether that machine sleeps or its network is down.",
    ),
    EventKind.PEER_DEAD: (
        _ERROR,
        "Wake that machine, or start its agent again with the same fleet join.",
    ),
    EventKind.PEER_LEFT: (_INFO, ""),
    EventKind.SEED_FAULT: (_WARNING, "Start the node there, or give --peer another address."),
    EventKind.SEED_JOINED: (_INFO, ""),
    EventKind.SAME_NAME: (_WARNING, "Join again with another --name."),
    EventKind.LINK_PROMOTED: (_INFO, ""),
    EventKind.LINK_DEMOTED: (
        _WARNING,
        "The link goes on by gRPC and looks for its faster road again by itself; if it finds none,"
        " see both nodes' logs.",
    ),
    EventKind.PROPOSER_DROPPED: (
        _WARNING,
        "The session goes on alone with the same tokens; see whether the proposer's node is alive,"
        " and fleet plan for who could draft instead.",
    ),
    EventKind.PROPOSER_BACK: (_INFO, ""),
    EventKind.BREAKER_OPENED: (
        _WARNING,
        "The proposer is tried again by itself after a while; if it fails again, see the log of"
        " its node.",
    ),
    EventKind.BREAKER_CLOSED: (_INFO, ""),
    EventKind.SESSION_EVICTED: (
        _WARNING,
        "Open a new session and append its history; a larger kv_budget_bytes or"
        " session_ttl_seconds keeps sessions longer.",
    ),
    EventKind.SESSION_RESTED: (
        _INFO,
        "Nothing: its next answer begins later. A larger kv_budget_bytes, smaller windows or"
        " --kv full --kv-quality high leave room for more sessions.",
    ),
    EventKind.SESSION_SHRUNK: (
        _INFO,
        "Nothing: it was opened with --kv-quality-when-short. A larger kv_budget_bytes keeps such"
        " sessions as they are.",
    ),
    EventKind.HISTORY_TRUNCATED: (
        _WARNING,
        "Open the session with a larger --window, with --kv restored and an archive (fleet join"
        " --serve archive=AMOUNT), or with --kv full, where all of its history matters.",
    ),
    EventKind.INVARIANT_VIOLATED: (
        _ERROR,
        "Open a new session and append its history; report it with this node's log.",
    ),
    EventKind.ARCHIVE_LOST: (
        _WARNING,
        "The session makes again what was lost; start the archive's node again, or another with"
        " --serve archive=AMOUNT.",
    ),
    EventKind.ARCHIVE_WRONG: (
        _ERROR,
        "The session makes again what was kept there, and this node leaves that archive alone for"
        " a while; test its machine's memory, or ask whose it is, then start it anew.",
    ),
    EventKind.ARCHIVE_REBUILT: (_INFO, ""),
    EventKind.CODEC_CHANGED: (
        _INFO,
        "Nothing: sessions that are open keep theirs. fleet codecs shows what was measured; fleet"
        " codecs --reset forgets it.",
    ),
    EventKind.CODECS_LOST: (
        _WARNING,
        "Nothing but time: it is measured anew. See whether the disk of the state directory is"
        " full or fails.",
    ),
    EventKind.GROUP_LOST: (
        _ERROR,
        "The group is started again by itself; see whether all hosts of its hostfile are up.",
    ),
    EventKind.GROUP_NOT_STARTED: (_ERROR, "See whether all hosts of its hostfile are up."),
    EventKind.GROUP_READY: (_INFO, ""),
    EventKind.MODEL_LOADED: (_INFO, ""),
    EventKind.MODEL_UNLOADED: (_INFO, ""),
    EventKind.MODEL_PULLED: (_INFO, ""),
    EventKind.PULL_FAILED: (
        _ERROR,
        "Mend what the sentence names, then pull again: it goes on where it ended.",
    ),
    EventKind.MODEL_REMOVED: (_INFO, ""),
    EventKind.LOAD_FAILED: (_ERROR, "Mend what the sentence names, then join again."),
    EventKind.DRAINING: (_INFO, ""),
    EventKind.BACKGROUND_FAULT: (
        _WARNING,
        "The node goes on. If it is told again, see what the cause names, such as the limit of"
        " open files; report it with this node's log.",
    ),
    EventKind.CERTIFICATE_ENDS: (_WARNING, "Start a keeper: `fleet members` says who is one."),
    EventKind.PUT_OUT: (
        _ERROR,
        "End it; to come back, remove its state directory and join with a code of fleet invite.",
    ),
    EventKind.ROLES_WITHHELD: (
        _WARNING,
        "Join again without these roles, or have a keeper allow them: `fleet allow NODE ROLE`.",
    ),
    EventKind.ROLES_ALLOWED: (_INFO, ""),
    EventKind.ADDRESSES_CHANGED: (_INFO, ""),
    EventKind.BOUND_ADDRESS_GONE: (
        _WARNING,
        "Join again with --bind 0.0.0.0:auto, which follows the machine's addresses, or give it"
        " that address back.",
    ),
    EventKind.LOOP_STALLED: (
        _WARNING,
        "The node goes on. If it is told often, peers may take it for dead: see what the step that"
        " it names was asked for, or whose disk is slow; report it with this node's log.",
    ),
    EventKind.JOINED_BY_CODE: (_INFO, ""),
    EventKind.JOIN_REFUSED: (
        _WARNING,
        "Mend what the sentence names, then join again: the code is good for the tries left.",
    ),
    EventKind.JOIN_CODE_WRONG: (
        _WARNING,
        "If nobody mistyped the code, somebody on this network guesses: they get three tries.",
    ),
    EventKind.INVITATION_LOCKED: (
        _ERROR,
        "Make another with fleet invite. If nobody mistyped, paste the long code, and find out who"
        " else is on this network.",
    ),
}


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An event; `number` counts from 1, `at_unix` is in seconds since 1970.

    `message` and `mend` are sentences for people; the mend is empty when there is
    nothing to mend. `subject_node_id` is the node it is about, empty for this one.
    """

    number: int
    at_unix: float
    severity: Severity
    kind: EventKind
    message: str
    mend: str
    subject_node_id: str = ""
    session_id: str = ""


def _ignore(_event: NodeEvent) -> None:
    """The listener before there is one."""


class EventLog:
    """The latest 256 events, oldest first. Belongs to the event loop's thread."""

    def __init__(self, unix: Callable[[], float] = time.time) -> None:
        """`unix` gives seconds since 1970."""
        self._unix = unix
        self._events: deque[NodeEvent] = deque(maxlen=MOST_EVENTS)
        self._count = 0
        self.on_add: Callable[[NodeEvent], None] = _ignore
        """Hears of each event as it is added; raises nothing."""

    @property
    def latest(self) -> tuple[NodeEvent, ...]:
        """The events that are kept, oldest first."""
        return tuple(self._events)

    def add(
        self,
        kind: EventKind,
        message: str,
        *,
        severity: Severity | None = None,
        mend: str | None = None,
        subject_node_id: str = "",
        session_id: str = "",
    ) -> None:
        """Notes what happened; severity and mend are the kind's unless they are given."""
        known_severity, known_mend = _KNOWN[kind]
        self._count += 1
        event = NodeEvent(
            number=self._count,
            at_unix=self._unix(),
            severity=severity or known_severity,
            kind=kind,
            message=message,
            mend=known_mend if mend is None else mend,
            subject_node_id=subject_node_id,
            session_id=session_id,
        )
        self._events.append(event)
        self.on_add(event)
