"""What happens to sessions and what serves them, as events in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kakeya_fleet.engine.sessions.ended import EndReason
from kakeya_fleet.engine.speculation.breaker import Breaker
from kakeya_fleet.engine.speculation.generation_report import DropReason
from kakeya_fleet.fleet.placement.plan import Placement
from kakeya_fleet.fleet.quantities import bytes_text, seconds_text
from kakeya_fleet.node.links.protocol.changes import ChangeCause, LinkChange
from kakeya_fleet.node.links.protocol.contract import LinkPurpose, RoadKind
from kakeya_fleet.node.planning.codec_ledger import CodecChange
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.watch.event_log import EventKind, EventLog, Severity

_DROPPED: Mapping[DropReason, str] = {
    DropReason.UNREACHABLE: "it cannot be reached",
    DropReason.DEADLINE: "its drafts came too late",
    DropReason.WRONG_LENGTH: "its drafts had the wrong length",
    DropReason.OUT_OF_VOCABULARY: "it drafted ids outside the vocabulary",
    DropReason.STALE: "it drafted for another history",
    DropReason.FEATURES: "the context vectors for its drafts cannot be had",
    DropReason.SLOWER_THAN_ALONE: "alone the session is faster",
}
_EVICTED: Mapping[EndReason, str] = {
    EndReason.IDLE: "it was idle for its time to live",
    EndReason.MEMORY: "another session needed its memory or its place",
}
_ROADS: Mapping[RoadKind, str] = {
    RoadKind.GRPC: "gRPC",
    RoadKind.RING: "a ring",
    RoadKind.LOCAL: "shared memory",
}
_PURPOSES: Mapping[LinkPurpose, str] = {
    LinkPurpose.FEATURES: "context vectors",
}


class SessionEvents:
    """Writes to the event log. Belongs to the event loop's thread."""

    def __init__(self, events: EventLog, name_of: Callable[[str], str]) -> None:
        """`name_of` gives a node's name for people by its id."""
        self._events = events
        self._name_of = name_of

    def proposer_dropped(self, session: OpenSession, reason: DropReason) -> None:
        """A session that had a proposer decodes alone."""
        proposer = session.pairing.plan.proposer
        who = f"{_model(proposer)}: " if proposer is not None else ""
        self._events.add(
            EventKind.PROPOSER_DROPPED,
            f"{_named(session)} decodes without its proposer {who}{_DROPPED[reason]}.",
            # To be faster alone is how it is meant to go.
            severity=Severity.INFO if reason is DropReason.SLOWER_THAN_ALONE else None,
            mend="" if reason is DropReason.SLOWER_THAN_ALONE else None,
            subject_node_id=proposer.node_id if proposer is not None else "",
            session_id=session.session_id,
        )

    def proposer_back(self, session: OpenSession) -> None:
        """A session that decoded alone has a proposer again."""
        proposer = session.pairing.plan.proposer
        if proposer is None:
            return
        self._events.add(
            EventKind.PROPOSER_BACK,
            f"{_named(session)} decodes with {_model(proposer)} again.",
            subject_node_id=proposer.node_id,
            session_id=session.session_id,
        )

    def evicted(self, session_id: str, reason: EndReason) -> None:
        """A session was evicted; says nothing of one that ended in another way."""
        if reason in _EVICTED:
            self._events.add(
                EventKind.SESSION_EVICTED,
                f"Session {session_id[:8]} was evicted: {_EVICTED[reason]}.",
                session_id=session_id,
            )

    def rested(self, session: OpenSession, nbytes: int, idle_seconds: float) -> None:
        """A session gave so many bytes to another, after so long without an operation."""
        record = session.record
        count = len(record.session.history)
        again = record.budget.pace.seconds(count)
        takes = f", which takes about {seconds_text(again)}" if again is not None else ""
        self._events.add(
            EventKind.SESSION_RESTED,
            f"{_named(session)} rests: idle for {idle_seconds:.0f} s it gave {bytes_text(nbytes)}"
            f" to another. Its next operation computes {count:,} tokens again{takes}.",
            session_id=session.session_id,
        )

    def shrunk(self, session: OpenSession) -> None:
        """A session is packed from now on, since memory is short."""
        packing = session.spec.packing_when_short
        by = f" by {packing.codec}" if packing is not None else ""
        self._events.add(
            EventKind.SESSION_SHRUNK,
            f"{_named(session)} is packed{by} from now on: all of its"
            f" {len(session.record.session.history):,} tokens did not find free memory.",
            session_id=session.session_id,
        )

    def truncated(self, session: OpenSession, sink_tokens: int, window_tokens: int) -> None:
        """A session's history is longer than what its queries see, for the first time."""
        self._events.add(
            EventKind.HISTORY_TRUNCATED,
            f"{_named(session)} forgets from now on: of its history it sees the first"
            f" {sink_tokens:,} tokens and the last {window_tokens:,}.",
            session_id=session.session_id,
        )

    def violated(self, session_id: str, invariant: str, detail: str) -> None:
        """A promise was broken, which ended the session."""
        self._events.add(
            EventKind.INVARIANT_VIOLATED,
            f"Session {session_id[:8]} ended because a promise was broken ({invariant}): {detail}.",
            session_id=session_id,
        )

    def archive_lost(self, session: OpenSession) -> None:
        """What a session has evicted is lost with its archive."""
        restorer = session.restorer
        where = restorer.where if restorer is not None else None
        place = f" on {where.node_name}" if where is not None else ""
        shared = restorer.shared if restorer is not None else None
        kind, why = EventKind.ARCHIVE_LOST, ""
        if shared is not None and shared.gave_wrong_numbers:
            kind = EventKind.ARCHIVE_WRONG
            why = ", which gave wrong numbers: tokens chosen with it may be others than they should"
        self._events.add(
            kind,
            f"{_named(session)} lost its archive{place}{why}; its keys and values are made anew.",
            subject_node_id=where.node_id if where is not None else "",
            session_id=session.session_id,
        )

    def archive_rebuilt(self, session: OpenSession) -> None:
        """A session has an archive again."""
        where = session.restorer.where if session.restorer is not None else None
        place = f"on {where.node_name}" if where is not None else "in this node's own memory"
        self._events.add(
            EventKind.ARCHIVE_REBUILT,
            f"{_named(session)} keeps what it evicts {place} now.",
            subject_node_id=where.node_id if where is not None else "",
            session_id=session.session_id,
        )

    def breaker_changed(self, key: tuple[str, str], breaker: Breaker) -> None:
        """The breaker of (node id, proposer model) opened or closed."""
        node_id, model_id = key
        proposer = f"{model_id} on {self._name_of(node_id)}"
        if breaker.opened_by is None:
            kind, message = EventKind.BREAKER_CLOSED, f"The proposer {proposer} drafts well again."
        else:
            fault = _DROPPED[DropReason(breaker.opened_by.value)]
            kind = EventKind.BREAKER_OPENED
            message = f"No session here asks the proposer {proposer} for a while: {fault}."
        self._events.add(kind, message, subject_node_id=node_id)

    def link_changed(self, change: LinkChange) -> None:
        """Another road carries a tensor link."""
        promoted = change.kind is not RoadKind.GRPC
        peer = self._name_of(change.peer_node_id)
        idle = change.cause is ChangeCause.IDLE
        self._events.add(
            EventKind.LINK_PROMOTED if promoted else EventKind.LINK_DEMOTED,
            f"The link for {_PURPOSES[change.purpose]} with {peer} goes by {_ROADS[change.kind]}:"
            f" {change.reason.rstrip('.')}.",
            severity=Severity.INFO if idle else None,
            mend="" if idle else None,
            subject_node_id=change.peer_node_id,
        )

    def codec_changed(self, model_id: str, change: CodecChange) -> None:
        """New sessions of a quality pack by another codec."""
        self._events.add(
            EventKind.CODEC_CHANGED,
            f"New sessions of {model_id} that ask for --kv-quality {change.quality.value} pack by"
            f" {change.after} instead of {change.before}. {' '.join(change.reasons)}",
        )

    def codecs_lost(self, message: str) -> None:
        """What was measured of codecs is lost, or is not kept."""
        self._events.add(EventKind.CODECS_LOST, message)

    def group_ready(self, model_id: str, rank_count: int) -> None:
        """The verifier of a group is served."""
        self._events.add(
            EventKind.GROUP_READY, f"{model_id} is served by a group of {rank_count} ranks."
        )

    def group_lost(self, model_id: str, session_count: int) -> None:
        """A group ended, and its sessions with it."""
        self._events.add(
            EventKind.GROUP_LOST,
            f"The group of {model_id} lost a rank; {session_count} sessions ended with it.",
        )

    def group_not_started(self, model: str, cause: str, pause_seconds: float) -> None:
        """A lost group could not be started again yet."""
        self._events.add(
            EventKind.GROUP_NOT_STARTED,
            f"The group of {model} was not started: {cause}; again in {pause_seconds:.0f} s.",
        )


def _named(session: OpenSession) -> str:
    return f"Session {session.spec.client_label or session.session_id[:8]}"


def _model(placement: Placement) -> str:
    return f"{placement.model_id} on {placement.node_name}"
