"""One session's restorer: what it asked for, what it is, and where it is now."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.fleet.placement.archive_choice import ArchiveCandidate
from kakeya_fleet.fleet.placement.packing import Packing
from kakeya_fleet.fleet.placement.plan import Placement
from kakeya_fleet.node.roles.archive.shared_store import HeldRange, SharedEvictedStore


@dataclass(frozen=True, slots=True)
class RestorerChoice:
    """What a session asked for; empty strings for any. `packing` is how it packs, None for not."""

    kind: RestorerKind = RestorerKind.ARCHIVE
    model_id: str = ""
    node_id: str = ""
    packing: Packing | None = None


@dataclass(slots=True, weakref_slot=True, eq=False)
class SessionRestorer:
    """One session's restorer.

    `where` is its first archive, None in the verifier's own process; `shared` has all
    of them, None for `identity`. `arithmetic` is that of its
    archives: one that computes with another is never taken in their place.
    """

    choice: RestorerChoice
    spec: RestorerSpec
    shape: EvictedShape
    verifier_digest: str
    encoder: FeatureEncoder | None = None
    where: ArchiveCandidate | None = None
    shared: SharedEvictedStore | None = None
    arithmetic: str = ""
    reasons: tuple[str, ...] = ()
    rebuild_count: int = 0
    lost: bool = False
    failed: frozenset[str] = frozenset()
    """Nodes whose archives were lost last: they may be frozen, and known to none yet."""
    opened_length: int = 0
    """Tokens of the history when its present archives were opened."""
    doubtful: range = range(0)
    """Positions of tokens that were chosen while an archive answered which gave wrong numbers."""
    earlier_audits: int = 0
    """Those of archives that it has no more."""

    @property
    def placement(self) -> Placement | None:
        """Where the archive is; None in the verifier's own process, and while it is lost."""
        if self.where is None or self.lost:
            return None
        return placed(self.where, self.spec)

    @property
    def ranges(self) -> tuple[HeldRange, ...]:
        """Where the evicted positions are; empty while they are lost, and for `identity`."""
        if self.lost or self.shared is None:
            return ()
        return self.shared.ranges

    @property
    def audit_count(self) -> int:
        """Answers of its archives that were computed again, and were right."""
        return self.earlier_audits + (0 if self.shared is None else self.shared.audit_count)

    @property
    def own_bytes(self) -> int:
        """Bytes of evicted positions in the verifier's own process, instead of an archive."""
        return 0 if self.lost or self.shared is None else self.shared.own_bytes

    @property
    def told(self) -> tuple[str, ...]:
        """The reasons, how it is packed, and of each archive that was taken for want of room."""
        packing = self.choice.packing
        return (
            *self.reasons,
            *(() if packing is None else (packing.reason(self.shape.dtype),)),
            *self._doubts,
            *(
                f"What is evicted from position {held.first:,} on goes to"
                f" {held.where.node_name}: there was no room left before."
                for held in self.ranges[1:]
                if held.where is not None
            ),
        )

    @property
    def _doubts(self) -> tuple[str, ...]:
        if not self.doubtful:
            return ()
        first, end = self.doubtful.start, self.doubtful.stop
        return (
            f"An archive gave wrong numbers: tokens that were chosen at positions {first:,} to"
            f" {end - 1:,} may be others than they would have been; all later ones are right.",
        )

    def note_failure(self, history_length: int) -> None:
        """Notes whose archive was just lost, and of which tokens that makes one doubt.

        To be called once for each store: all that were chosen since its archives were opened,
        when one gave wrong numbers. Which answers were wrong before nobody knows.
        """
        shared, self.shared = self.shared, None
        if shared is None:
            return
        self.failed = shared.failed_nodes or self.failed
        self.earlier_audits += shared.audit_count
        if shared.gave_wrong_numbers and self.opened_length < history_length:
            first = min(self.doubtful.start, self.opened_length)
            first = first if self.doubtful else self.opened_length
            self.doubtful = range(first, history_length)

    def use(self, store: EvictedStore | None) -> None:
        """Notes which store it has from now on."""
        self.shared = store if isinstance(store, SharedEvictedStore) else None


def placed(where: ArchiveCandidate, spec: RestorerSpec) -> Placement:
    """An archive as plans name it."""
    return Placement(where.node_id, where.node_name, where.address, spec.model_id)
