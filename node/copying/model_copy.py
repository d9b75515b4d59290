"""One model's way from other nodes' disks to this one's, from several of them at once."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import structlog

from kakeya_fleet.engine.models.model_manifest import Manifest, Piece
from kakeya_fleet.engine.models.pulled_models import PulledPart, StoredModel
from kakeya_fleet.node.copying.disk_threads import DiskThreads
from kakeya_fleet.node.copying.piece_plan import PiecePlan
from kakeya_fleet.node.copying.sources import (
    CLOSED,
    MOST_CHANNELS,
    ChannelClosed,
    Source,
    SourceBusy,
    SourceFault,
    bytes_of,
    files_of,
)
from kakeya_fleet.node.rpc.refusals import ModelNotCopied

_log = structlog.get_logger(__name__)

AT_ONCE = 2
"""Pieces of one source that are under way: one comes while another is hashed and written."""
OTHERS_SECONDS = 10.0
"""What further sources get to tell their files after the first; later ones help when they have."""
LOOK_SECONDS = 0.2
"""A source for which nothing is left looks again after so long."""
BUSY_SECONDS = 1.0
MOST_BUSY = 60
"""Times in a row that a source may be busy: as many seconds."""
CHECKED_AT_ONCE = 16
OTHER_FILES = "it has other files of that name"


class CopyPhase(Enum):
    """What a copy does."""

    ASKING = "asking"
    CHECKING = "checking"
    COPYING = "copying"


@dataclass(slots=True)
class SourceState:
    """What came from a source; `fault` is why nothing more is asked of it, empty before."""

    source: Source
    done_bytes: int = 0
    fault: str = ""


class ModelCopy:
    """Copies the model once. Belongs to one event loop.

    Which files it has, most of the sources say alike, or those that come first in their order; who
    says otherwise is left. Whatever a source does, nothing is kept that has not the digest of that
    manifest.
    """

    def __init__(
        self,
        model_id: str,
        sources: Sequence[Source],
        threads: DiskThreads,
        clock: Callable[[], float],
        progress: Callable[[int, int], None],
    ) -> None:
        """`progress` hears of (done, total) bytes; `clock` gives monotonic seconds."""
        self.phase = CopyPhase.ASKING
        self.sources = [SourceState(source) for source in sources]
        self._model_id = model_id
        self._threads = threads
        self._clock = clock
        self._progress = progress
        self._kept = self._under_way = self._total = 0
        self._arrived = asyncio.Event()

    async def run(self) -> StoredModel:
        """The model on this disk. What came stays there for the next copy when this raises.

        Raises `ModelNotCopied` when no source is left, `ModelCacheUnwritable`, `ModelInUse`.
        """
        asking: dict[asyncio.Future[Manifest], SourceState] = {
            asyncio.ensure_future(files_of(state.source, self._model_id)): state
            for state in self.sources
        }
        try:
            manifest = await self._agreed(asking)
            part = PulledPart(manifest)
            try:
                await self._threads.run(part.open)
                missing = await self._missing(part)
                self.phase = CopyPhase.COPYING
                await self._fetched(part, PiecePlan(missing), asking)
                names = [state.source.name for state in self.sources if state.done_bytes]
                return await self._threads.run(partial(part.finish, names))
            finally:
                part.close()
        finally:
            await _cancelled(asking)

    async def _agreed(self, asking: dict[asyncio.Future[Manifest], SourceState]) -> Manifest:
        """What most sources say that answer in time. Raises `ModelNotCopied` when none does.

        Of `asking` are left those that have not answered.
        """
        said: list[tuple[SourceState, Manifest]] = []
        until: float | None = None
        while asking:
            seconds = None if until is None else max(0.0, until - self._clock())
            done, _ = await asyncio.wait(
                asking, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            for each in done:
                state = asking.pop(each)
                try:
                    said.append((state, each.result()))
                    until = until or self._clock() + OTHERS_SECONDS
                except SourceFault as error:
                    self._leave(state, str(error))
        if not said:
            raise self._nobody_left()
        said.sort(key=lambda each: self.sources.index(each[0]))
        counts = Counter(manifest.digest for _, manifest in said)
        # Of those with as many the first, in the order of the sources.
        chosen = max(counts, key=lambda digest: counts[digest])
        for state, manifest in said:
            if manifest.digest != chosen:
                self._leave(state, OTHER_FILES)
        return next(manifest for _, manifest in said if manifest.digest == chosen)

    async def _missing(self, part: PulledPart) -> list[Piece]:
        """The pieces that no earlier copy left."""
        self.phase = CopyPhase.CHECKING
        self._total = part.manifest.byte_count
        # A hundred thousand objects of a large model.
        missing = await self._threads.run(
            lambda: {piece.number: piece for piece in part.manifest.pieces()}
        )
        written = part.written()
        while found := await self._threads.run(
            lambda: list(itertools.islice(written, CHECKED_AT_ONCE))
        ):
            for piece in found:
                del missing[piece.number]
                self._kept += piece.byte_count
            self._progress(self._kept, self._total)
        return list(missing.values())

    async def _fetched(
        self,
        part: PulledPart,
        plan: PiecePlan,
        late: Mapping[asyncio.Future[Manifest], SourceState],
    ) -> None:
        """Brings all pieces of `plan`; `late` have not told their files yet.

        Raises `ModelNotCopied`, `ModelCacheUnwritable`.
        """
        answers = {state.source.node_id: answer for answer, state in late.items()}
        working = {
            asyncio.ensure_future(
                self._all_from(state, part, plan, answers.get(state.source.node_id))
            )
            for state in self.sources
            if not state.fault
        }
        arrived = asyncio.ensure_future(self._arrived.wait())
        try:
            while not plan.is_done:
                if not working:
                    raise self._nobody_left()
                done, _ = await asyncio.wait(
                    {*working, arrived}, return_when=asyncio.FIRST_COMPLETED
                )
                for each in done & working:
                    each.result()
                working -= done
        finally:
            await _cancelled({*working, arrived})

    async def _all_from(
        self,
        state: SourceState,
        part: PulledPart,
        plan: PiecePlan,
        answer: asyncio.Future[Manifest] | None,
    ) -> None:
        """Asks one source until all pieces are there, or it is left; `answer` is its late one.

        Raises `ModelCacheUnwritable`.
        """
        workers: list[asyncio.Future[None]] = []
        try:
            if answer is not None and (await answer).digest != part.manifest.digest:
                raise SourceFault(OTHER_FILES)
            workers += [
                asyncio.ensure_future(self._work(state, part, plan)) for _ in range(AT_ONCE)
            ]
            await asyncio.gather(*workers)
        except SourceFault as error:
            self._leave(state, str(error))
        finally:
            await _cancelled(workers)

    async def _work(self, state: SourceState, part: PulledPart, plan: PiecePlan) -> None:
        """Asks one source for one piece after the other. Raises `SourceFault`."""
        node_id, busy, closed = state.source.node_id, 0, 0
        # One for all its pieces: pages of new memory cost more than the bytes that come.
        buffer = bytearray(part.manifest.piece_bytes)
        while not plan.is_done:
            piece = plan.next_for(node_id, self._clock())
            if piece is None:
                await asyncio.sleep(LOOK_SECONDS)
                continue
            try:
                await self._bring(state, part, plan, piece, buffer)
                busy = closed = 0
            except ChannelClosed:
                closed += 1
                if closed == MOST_CHANNELS:
                    raise SourceFault(CLOSED) from None
            except SourceBusy:
                busy += 1
                if busy > MOST_BUSY:
                    raise SourceFault("it has been busy for a minute") from None
            finally:
                plan.given_up(node_id, piece)
            if busy:
                await asyncio.sleep(BUSY_SECONDS)

    async def _bring(
        self,
        state: SourceState,
        part: PulledPart,
        plan: PiecePlan,
        piece: Piece,
        buffer: bytearray,
    ) -> None:
        came = 0

        def heard(count: int) -> None:
            nonlocal came
            came += count
            self._under_way += count
            self._progress(min(self._kept + self._under_way, self._total), self._total)

        try:
            data = await bytes_of(state.source, self._model_id, piece, buffer, heard)
            writing = asyncio.ensure_future(self._threads.run(partial(part.write, piece, data)))
            try:
                is_right = await asyncio.shield(writing)
            except asyncio.CancelledError:
                # A thread does not end: what it writes is kept, and told as kept.
                if await writing:
                    self._take(state, plan, piece)
                raise
            if not is_right:
                raise SourceFault(f"it gave wrong bytes of {piece.file}")
        finally:
            self._under_way -= came
        self._take(state, plan, piece)

    def _take(self, state: SourceState, plan: PiecePlan, piece: Piece) -> None:
        """A piece of that source is on the disk."""
        if plan.arrived(piece):
            state.done_bytes += piece.byte_count
            self._kept += piece.byte_count
        if plan.is_done:
            self._arrived.set()

    def _leave(self, state: SourceState, fault: str) -> None:
        state.fault = fault
        _log.warning(
            "model_source_left", model=self._model_id, node=state.source.name, reason=fault
        )

    def _nobody_left(self) -> ModelNotCopied:
        causes = "; ".join(
            f"{state.source.name or state.source.node_id[:12]}: {state.fault}"
            for state in self.sources
        )
        return ModelNotCopied(
            f"{self._model_id[:64]} did not come from other nodes ({causes})",
            model_id=self._model_id[:64],
            kept_bytes=str(self._kept),
        )


async def _cancelled(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Ends them, and waits until they have ended; their errors are nobody's any more."""
    ending = list(tasks)
    for each in ending:
        each.cancel()
    await asyncio.gather(*ending, return_exceptions=True)
