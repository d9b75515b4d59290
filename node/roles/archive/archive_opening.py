"""Opens an archive for a session: the best that takes it."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_fleet.fleet.placement.archive_choice import (
    ArchiveCandidate,
    ArchiveChoice,
    ArchiveRequest,
    choose_archives,
)
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.roles.archive.archive_ways import ArchiveRefused, ArchiveWays
from kakeya_fleet.node.roles.archive.opening import Opening
from kakeya_fleet.node.roles.archive.remote_store import RemoteEvictedStore
from kakeya_fleet.node.roles.archive.session_restorer import SessionRestorer
from kakeya_fleet.node.rpc.refusals import ArchiveFull, NoArchive, RestorerMismatch


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """Positions from `first` on, for `count` of which there must be room.

    Archives of the nodes `ask_last` come behind all others.
    """

    count: int
    first: int = 0
    ask_last: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class FoundArchive:
    """An archive that took a session.

    `objections` are sentences, one for each archive that was not taken.
    """

    where: ArchiveCandidate
    arithmetic: str
    store: RemoteEvictedStore
    objections: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArchiveOpening:
    """Opens archives for the sessions of one node. Belongs to the event loop's thread.

    `lease_seconds` without use end an archive.
    """

    fleet: FleetView
    ways: ArchiveWays
    lease_seconds: float

    def candidates(self, restorer: SessionRestorer, positions: int) -> ArchiveChoice:
        """Where a session's archive could be, the best first; asks nobody."""
        request = ArchiveRequest(
            self_id=self.fleet.self_id,
            node_id=restorer.choice.node_id,
            needed_bytes=positions * restorer.shape.bytes_per_position,
            arithmetic=restorer.arithmetic,
            takes_suspects=True,
            lost=frozenset(restorer.failed),
            distrusted=self.ways.distrusted_by_node(self.fleet),
        )
        return choose_archives(
            request, self.fleet.nodes(), self.fleet.address, self.fleet.round_trip
        )

    def capacity_bytes(self, choice: ArchiveChoice) -> int:
        """What the candidates have together, whoever uses it now."""
        chosen = {candidate.node_id for candidate in choice.candidates}
        return sum(
            view.card.archive.capacity_bytes
            for view in self.fleet.nodes()
            if view.card.node_id in chosen and view.card.archive is not None
        )

    async def open(self, restorer: SessionRestorer, request: RangeRequest) -> FoundArchive:
        """The first of the candidates that takes the range.

        Raises `NoArchive`, `ArchiveFull` when every archive is, `RestorerMismatch`.
        """
        choice = self.candidates(restorer, request.count)
        objections = list(choice.objections)
        refusals: list[ArchiveRefused] = []
        shape = restorer.shape
        opening = Opening(
            restorer=restorer.spec,
            shape=shape,
            verifier_digest=restorer.verifier_digest,
            expected_positions=min(request.count, shape.context_length - request.first),
            lease_seconds=self.lease_seconds,
            first_position=request.first,
        )
        for where in sorted(choice.candidates, key=lambda one: one.node_id in request.ask_last):
            try:
                opened = await self.ways.open(
                    where.address, opening, restorer.encoder, where.node_id
                )
            except ArchiveRefused as refusal:
                refusals.append(refusal)
                objections.append(f"{where.node_name} refused: {refusal}")
                continue
            if restorer.arithmetic not in ("", opened.arithmetic):
                opened.store.release()
                objections.append(f"{where.node_name} computes with {opened.arithmetic}.")
                continue
            return FoundArchive(where, opened.arithmetic, opened.store, tuple(objections))
        raise _none(objections, refusals)


def _none(
    objections: list[str], refusals: list[ArchiveRefused]
) -> NoArchive | ArchiveFull | RestorerMismatch:
    """The error that says most: what all archives said, or that there is none."""
    words = " ".join(objections).rstrip(".") or "no node has one"
    reasons = {refusal.reason for refusal in refusals}
    if "ARCHIVE_FULL" in reasons:
        return ArchiveFull(f"every archive is full: {words}", retry_after_seconds="5.0")
    for reason in ("RESTORER_MISMATCH", "TRAINED_FOR_ANOTHER"):
        if reason in reasons:
            return RestorerMismatch(f"no archive has the session's learned map: {words}")
    return NoArchive(
        f"no live archive can take the session: {words}; start one with"
        " `fleet join --serve archive=1GiB`"
    )
