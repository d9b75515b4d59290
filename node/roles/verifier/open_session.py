"""A session as a node serves it: with its verifier, its pairing and what restores it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from kakeya_fleet.engine.errors import RestorerLost
from kakeya_fleet.engine.sessions.session_record import SessionRecord
from kakeya_fleet.engine.speculation.loops import LoopWatch
from kakeya_fleet.fleet.placement.codec_ladder import PackedQuality
from kakeya_fleet.fleet.placement.plan import Plan
from kakeya_fleet.fleet.quantities import bytes_text
from kakeya_fleet.node.links.protocol.changes import LinkChange
from kakeya_fleet.node.roles.archive.session_restorers import SessionRestorer
from kakeya_fleet.node.roles.verifier.pairing import Pairing
from kakeya_fleet.node.roles.verifier.runtime_wire import SessionSpec
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier

# Caches made anew for one history, none of which lasted until a token was added. One
# more would be lost the same way: to an archive too small for it, or one that refuses it.
MOST_REBUILDS = 3


@dataclass(slots=True, eq=False)
class OpenSession:
    """A session as this node serves it; `record` is the registry's.

    `asked` is what its client said, `spec` the same with what the node decided, for
    `kv_reason`, empty when nothing was. `opening_seconds` is what computing the first
    tokens took that it was opened with, None before that is done, and without any.
    `turn` is held by the one operation that runs, `loops` knows whether what it
    generates repeats itself. `rebuild_count` caches in a row
    were made anew for the first `rebuilt_length` tokens.
    """

    record: SessionRecord[OpenSession]
    spec: SessionSpec
    asked: SessionSpec
    served: ServedVerifier
    pairing: Pairing
    restorer: SessionRestorer | None = None
    kv_reason: str = ""
    opening_seconds: float | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    loops: LoopWatch = field(default_factory=LoopWatch)
    rebuilt_length: int = 0
    rebuild_count: int = 0
    told_shrunk: bool = False
    """Whether it was told that it is packed for want of memory."""

    @property
    def session_id(self) -> str:
        """What clients name it by."""
        return self.record.session_id

    @property
    def has_ended(self) -> bool:
        """Whether it is no more; those who are told of ends may not have heard yet."""
        return bool(self.record.session.end_reason)

    @property
    def quality(self) -> PackedQuality | None:
        """How exactly it is kept behind its window now; None for as it lies."""
        if self.record.session.has_shrunk:
            return self.spec.quality_when_short
        return self.spec.quality

    @property
    def begins_at_rest(self) -> bool:
        """Whether drafts would slow all whom its verifier serves, itself among them.

        It need not prepare for any then: to plan, to open streams and to make context vectors
        takes a crowd as much time as a twentieth of its tokens.
        """
        return self.pairing.automatic and self.served.company.receives_resting

    def link_changes(self) -> tuple[LinkChange, ...]:
        """The changes of what carries its tensor links that were not told yet, oldest first."""
        return self.pairing.link_log.news()

    def latest_link_changes(self, most: int) -> tuple[LinkChange, ...]:
        """The latest changes of what carries its tensor links, oldest first, told or not."""
        return self.pairing.link_log.latest(most)

    def check_rebuilds(self, history_length: int) -> None:
        """Raises `RestorerLost` once `MOST_REBUILDS` caches did not last for a history.

        The count then begins again, with the session's next operation.
        """
        if history_length != self.rebuilt_length:
            self.rebuilt_length, self.rebuild_count = history_length, 0
        if self.rebuild_count == MOST_REBUILDS:
            self.rebuild_count = 0
            raise RestorerLost(
                f"what the session has evicted was made anew {MOST_REBUILDS} times, and lost each"
                f" time before a token was added to its {history_length}: the archive is too small"
                " for it, or refuses it"
            )


def planned(session: OpenSession) -> Plan:
    """The pair that serves a session, and where its archive is, with the reasons of both."""
    plan, restorer = session.pairing.plan, session.restorer
    told = (session.kv_reason,) if session.kv_reason else ()
    plan = replace(plan, kv_strategy=session.spec.kv_strategy, reasons=(*plan.reasons, *told))
    if restorer is None:
        return plan
    reasons = (*plan.reasons, *restorer.told)
    kv_bytes = plan.kv_bytes
    if restorer.spec.width:
        # The planner knows of no learned map: a plan is made before one is found.
        verifier = session.served.verifier
        needed = verifier.bytes_needed(session.spec.cache_spec(verifier.info, restorer.spec))
        kv_bytes = max(kv_bytes, needed)
        reasons += (
            "With the context vectors of what is not evicted yet, keys and values take"
            f" {bytes_text(needed)}.",
        )
    return replace(plan, archive=restorer.placement, kv_bytes=kv_bytes, reasons=reasons)
