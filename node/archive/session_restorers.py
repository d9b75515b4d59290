"""The restorers of this node's sessions: chosen, opened, lost, made anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from engine.backends import load_encoder
from engine.errors import RestorerLost, TrainedForAnother
from engine.features import FeatureEncoder
from engine.restoration.contract import EvictedStore
from engine.restoration.learned_map import find_map
from engine.restoration.shape import EvictedShape
from engine.restoration.specification import RestorerKind, RestorerSpec
from engine.verifier import VerifierInfo
from fleet.archive_choice import (
    LEAST_POSITIONS,
    ArchiveCandidate,
    ArchiveChoice,
    ArchiveWish,
    choose_archives,
)
from fleet.plan import Placement
from node.archive.archive_ways import ArchiveRefused, ArchiveWays
from node.archive.opening import Opening
from node.metrics import NodeMetrics
from node.planning.fleet_view import FleetView
from node.rpc.refusals import ArchiveFull, NoArchive, RestorerMismatch

RETRY_SECONDS = 0.25

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RestorerChoice:
    """What a session asked for; empty strings for any."""

    kind: RestorerKind = RestorerKind.ARCHIVE
    model_id: str = ""
    node_id: str = ""


@dataclass(frozen=True, slots=True)
class RestorerSettings:
    """Limits of the sessions' restorers, in seconds.

    `deadline` is the longest wait for one answer, `rebuild` that for another
    archive when one was lost, `lease` what an archive lies unused.
    """

    deadline: float = 2.0
    rebuild: float = 15.0
    lease: float = 3600.0


@dataclass(slots=True)
class SessionRestorer:
    """One session's restorer: what it is, and where it is now.

    `where` is None in the verifier's own process. `arithmetic` is that of its
    archives: one that computes with another is never taken in their place.
    """

    choice: RestorerChoice
    spec: RestorerSpec
    shape: EvictedShape
    verifier_digest: str
    encoder: FeatureEncoder | None = None
    where: ArchiveCandidate | None = None
    arithmetic: str = ""
    reasons: tuple[str, ...] = ()
    rebuild_count: int = 0
    lost: bool = False

    @property
    def placement(self) -> Placement | None:
        """Where the archive is; None in the verifier's own process, and while it is lost."""
        if self.where is None or self.lost:
            return None
        where = self.where
        return Placement(where.node_id, where.node_name, where.address, self.spec.model_id)


@dataclass(slots=True)
class Restorers:
    """Opens archives for the sessions of one node. Belongs to the event loop's thread.

    `drafters` are folders whose learned maps may be named, besides the shipped
    ones, by model id. `clock` gives monotonic seconds.
    """

    fleet: FleetView
    ways: ArchiveWays
    metrics: NodeMetrics
    settings: RestorerSettings
    drafters: Mapping[str, Path]
    clock: Callable[[], float]
    _encoders: dict[str, FeatureEncoder] = field(default_factory=dict)

    async def resolve(
        self, choice: RestorerChoice, info: VerifierInfo
    ) -> tuple[RestorerSpec, FeatureEncoder | None]:
        """The restorer that a choice names for a verifier, and its encoder.

        Raises `ModelNotFound`, `TrainedForAnother`, and a `ModelUnusable` when
        the drafter cannot be read.
        """
        if choice.kind is not RestorerKind.PROJECTION:
            return RestorerSpec(choice.kind), None
        # It hashes the weights: no matter for the event loop.
        found = await asyncio.to_thread(
            find_map, choice.model_id, info.weights_digest, dict(self.drafters)
        )
        found.check_verifier(info.model_id, info.weights_digest)
        encoder = self._encoders.get(found.encoder_digest)
        if encoder is None:
            encoder = await asyncio.to_thread(load_encoder, found.folder)
            self._encoders[found.encoder_digest] = encoder
        if encoder.spec.digest != found.encoder_digest:
            raise TrainedForAnother(
                f"the learned map of {found.model_id} was made for another encoder"
                f" ({found.encoder_digest[:12]}) than its drafter has ({encoder.spec.digest[:12]})",
                restorer_model=found.model_id,
            )
        return found.spec, encoder

    def candidates(self, restorer: SessionRestorer, positions: int) -> ArchiveChoice:
        """Where a session's archive could be, the best first; asks nobody."""
        wish = ArchiveWish(
            self_id=self.fleet.self_id,
            node_id=restorer.choice.node_id,
            needed_bytes=positions * restorer.shape.bytes_per_position,
            arithmetic=restorer.arithmetic,
        )
        return choose_archives(wish, self.fleet.nodes(), self.fleet.address, self.fleet.round_trip)

    async def open(self, restorer: SessionRestorer) -> EvictedStore | None:
        """An empty store for a new session, noted in `restorer`; None in its own process.

        Raises `NoArchive`, `ArchiveFull` when every archive is, `RestorerMismatch`.
        """
        if restorer.spec.kind is RestorerKind.IDENTITY:
            restorer.reasons = (
                "What is evicted stays in the verifier's own process: a check of the plumbing, "
                "it saves no memory.",
            )
            return None
        return await self._opened(restorer, LEAST_POSITIONS)

    async def rebuild(self, restorer: SessionRestorer, history_length: int) -> EvictedStore | None:
        """An empty store in place of a lost one, with room for a history.

        Waits until one can be had, `settings.rebuild` seconds at most. Raises
        `RestorerLost`: the session lives, and may try again.
        """
        restorer.lost = True
        deadline = self.clock() + self.settings.rebuild
        while True:
            try:
                if restorer.spec.kind is RestorerKind.IDENTITY:
                    store = None
                else:
                    store = await self._opened(restorer, max(LEAST_POSITIONS, history_length))
            except (NoArchive, ArchiveFull, RestorerMismatch) as error:
                if self.clock() + RETRY_SECONDS >= deadline:
                    self.metrics.restorer_rebuilds.labels(outcome="lost").inc()
                    raise RestorerLost(
                        f"what the session has evicted was lost, and no archive was found within"
                        f" {self.settings.rebuild:g} s to make it anew: {error}",
                        why=error.reason,
                    ) from error
                await asyncio.sleep(RETRY_SECONDS)
                continue
            restorer.lost = False
            restorer.rebuild_count += 1
            self.metrics.restorer_rebuilds.labels(outcome="rebuilt").inc()
            _log.warning(
                "restorer_rebuilt",
                node=restorer.where.node_name if restorer.where is not None else "",
                history_length=history_length,
            )
            return store

    async def close(self) -> None:
        """Ends the ways to the archives."""
        await self.ways.close()

    async def _opened(self, restorer: SessionRestorer, positions: int) -> EvictedStore:
        choice = self.candidates(restorer, positions)
        objections = list(choice.objections)
        refusals: list[ArchiveRefused] = []
        opening = Opening(
            restorer=restorer.spec,
            shape=restorer.shape,
            verifier_digest=restorer.verifier_digest,
            expected_positions=min(positions, restorer.shape.context_length),
            lease_seconds=self.settings.lease,
        )
        for candidate in _lost_last(choice, restorer):
            try:
                opened = await self.ways.open(candidate.address, opening, restorer.encoder)
            except ArchiveRefused as refusal:
                refusals.append(refusal)
                objections.append(f"{candidate.node_name} refused: {refusal}")
                continue
            if restorer.arithmetic not in ("", opened.arithmetic):
                opened.store.release()
                objections.append(f"{candidate.node_name} computes with {opened.arithmetic}.")
                continue
            restorer.where = candidate
            restorer.arithmetic = opened.arithmetic
            restorer.reasons = (candidate.reason, *objections)
            return opened.store
        raise _none(objections, refusals)


def _lost_last(choice: ArchiveChoice, restorer: SessionRestorer) -> list[ArchiveCandidate]:
    """The candidates, that which was just lost last: it may be frozen, and known to none yet."""
    lost = restorer.where.node_id if restorer.lost and restorer.where is not None else ""
    return sorted(choice.candidates, key=lambda candidate: candidate.node_id == lost)


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
