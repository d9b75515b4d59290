"""Measures the codecs that pack sessions, on the sessions' own histories, when nobody waits."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from kakeya_fleet.engine.errors import EngineError, OutOfKvMemory
from kakeya_fleet.engine.sessions.session_record import KvBudget
from kakeya_fleet.engine.verifiers.codec_sample import (
    LEAST_TOKENS,
    MOST_TOKENS,
    CodecSample,
    GaveWay,
)
from kakeya_fleet.fleet.placement.codec_ladder import PackedQuality
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.planning.codec_ledger import CodecLedger, model_key
from kakeya_fleet.node.roles.settings import CodecSettings
from kakeya_fleet.node.roles.verifier.observer import SessionObserver
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.roles.verifier.session_events import SessionEvents
from kakeya_fleet.node.roles.worker import WorkerClosed
from kakeya_fleet.node.rpc.refusals import WorkerFault

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.25
"""Between two looks whether a session that works now is done, at least."""
_AGAIN_SECONDS = 5.0
"""Before a history is begun again that gave way, or for which there was no room, at least."""
_MOST_REMEMBERED = 512
"""Histories that were computed, by their hash: the same tokens tell nothing new."""


@dataclass(frozen=True, slots=True)
class _History:
    """The first tokens of a packed session that became idle. Its model may be gone meanwhile."""

    served: weakref.ref[ServedVerifier]
    quality: PackedQuality
    token_ids: tuple[int, ...]
    at: float


class CodecSampling(SessionObserver):
    """Hears of packed sessions, and computes their histories when all sessions are idle.

    Belongs to the event loop's thread; chunks are computed in the verifiers' threads, one at a
    time. What is measured is numbers in the ledger: tokens are let go.
    """

    def __init__(
        self,
        ledger: CodecLedger,
        settings: CodecSettings,
        metrics: NodeMetrics,
        events: SessionEvents,
        idle_seconds: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        """`idle_seconds` since any session was used, 0 while one is; `clock` is monotonic."""
        self._ledger = ledger
        self._settings = settings
        self._metrics = metrics
        self._events = events
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._histories: OrderedDict[str, _History] = OrderedDict()
        self._done: OrderedDict[int, None] = OrderedDict()
        self._came = asyncio.Event()
        self._rests_until = clock()
        self._stopped = False

    def idle(self, session: OpenSession) -> None:
        """Notes the history of a packed session, where something is to be learned by it."""
        quality = session.quality
        history = session.record.session.history
        if quality is None or not self._settings.samples or len(history) < LEAST_TOKENS:
            return
        if not self._ledger.wanted(model_key(session.served.verifier.info), quality):
            return
        self._histories[session.session_id] = _History(
            weakref.ref(session.served), quality, tuple(history[:MOST_TOKENS]), self._clock()
        )
        self._histories.move_to_end(session.session_id)
        if len(self._histories) > self._settings.histories:
            self._histories.popitem(last=False)
        self._came.set()

    def forget(self) -> None:
        """Begins anew, after the ledger was reset: what was computed may be computed again."""
        self._done.clear()
        self._metrics.codec_divergence.clear()

    def stop(self) -> None:
        """Lets all histories go, and begins nothing any more: the node drains."""
        self._stopped = True
        self._histories.clear()

    async def run(self) -> None:
        """Computes what is noted, as `settings` let it, until cancelled."""
        while True:
            await self._came.wait()
            self._let_go()
            wait = self.wait_seconds()
            if not self._histories:
                self._came.clear()
            elif wait > 0.0:
                await asyncio.sleep(wait)
            else:
                await self.sample()

    def wait_seconds(self) -> float:
        """Until something may be computed, as far as can be told now."""
        quiet = self._settings.quiet_seconds - self._idle_seconds()
        if not self._idle_seconds():
            quiet = max(quiet, _LOOK_SECONDS)
        return max(0.0, quiet, self._rests_until - self._clock())

    async def sample(self) -> bool:
        """Computes one history by one codec, or gives it up; False where none is left."""
        self._let_go()
        while self._histories:
            session_id = next(reversed(self._histories))
            history = self._histories[session_id]
            served = history.served()
            codec = self._codec_for(history, served)
            if served is not None and codec:
                await self._compute(served, history, codec)
                return True
            del self._histories[session_id]
        return False

    def _let_go(self) -> None:
        """Of those that are too old, so that a node that is never idle keeps no tokens."""
        oldest = self._clock() - self._settings.kept_seconds
        for session_id, history in tuple(self._histories.items()):
            if history.at < oldest:
                del self._histories[session_id]

    def _codec_for(self, history: _History, served: ServedVerifier | None) -> str:
        """What to compute a history by; empty where nothing is wanted of it."""
        if served is None or served.withdrawn.is_set() or self._stopped:
            return ""
        wanted = self._ledger.wanted(model_key(served.verifier.info), history.quality)
        return next((each for each in wanted if _told(served, history, each) not in self._done), "")

    async def _compute(self, served: ServedVerifier, history: _History, codec: str) -> None:
        """Has the ledger know what a history tells of a codec; or gives it up, for a while."""
        sample = CodecSample(served.verifier, history.token_ids, codec)
        began, pause = time.perf_counter(), _AGAIN_SECONDS
        try:
            nats = await self._stepped(served, sample)
            if nats:
                pause = 0.0
                self._remember(_told(served, history, codec))
        except (GaveWay, OutOfKvMemory, WorkerClosed) as error:
            nats = ()
            _log.info("codec_sampling_gave_way", codec=codec, why=str(error))
        except (EngineError, ValueError, WorkerFault) as error:
            nats = ()
            # It would fail again.
            self._remember(_told(served, history, codec))
            _log.warning("codec_sampling_failed", codec=codec, why=str(error))
        finally:
            await self._left(served, sample)
            # Chunks are computed in that time, and what waited between them.
            spent = time.perf_counter() - began
            pause = max(pause, spent * (1.0 / self._settings.share - 1.0))
            self._rests_until = self._clock() + pause
        if nats:
            await self._recorded(served, codec, nats)
        else:
            self._metrics.codec_samplings_given_up.inc()

    async def _stepped(self, served: ServedVerifier, sample: CodecSample) -> tuple[float, ...]:
        """What a sample tells; nothing where it gave way. Raises what its steps raise."""
        budget = served.budget
        if not _has_room(budget, sample.bytes_needed):
            return ()
        budget.guest = sample
        while not await served.worker.run(sample.step):
            if self._stopped or served.withdrawn.is_set() or self._is_disturbed(served):
                return ()
        return await served.worker.run(sample.nats)

    def _is_disturbed(self, served: ServedVerifier) -> bool:
        """Whether a session works, or something waits for the verifier's thread."""
        busy = self._idle_seconds() == 0.0 or bool(served.worker.load.waiting_turns)
        return busy or self._idle_seconds() < self._settings.quiet_seconds

    async def _left(self, served: ServedVerifier, sample: CodecSample) -> None:
        """Its memory is given back, in the verifier's thread while there is one."""
        try:
            await served.worker.run(sample.release)
        except (WorkerClosed, WorkerFault):
            sample.release()
        finally:
            served.budget.guest = None

    async def _recorded(self, served: ServedVerifier, codec: str, nats: tuple[float, ...]) -> None:
        model, model_id = model_key(served.verifier.info), served.offer.model_id
        self._metrics.codec_samples.inc(len(nats))
        for change in await self._ledger.record(model, codec, nats):
            self._events.codec_changed(model_id, change)
        self.show(served)

    def show(self, served: ServedVerifier) -> None:
        """Has the metrics of a model say what is known of its codecs."""
        model = model_key(served.verifier.info)
        for rung in self._ledger.rungs(model):
            gauge = partial(self._metrics.codec_divergence.labels, served.offer.model_id)
            if rung.divergence.count:
                gauge(rung.codec).set(rung.divergence.mean)

    def _remember(self, done: int) -> None:
        self._done[done] = None
        if len(self._done) > _MOST_REMEMBERED:
            self._done.popitem(last=False)


def _told(served: ServedVerifier, history: _History, codec: str) -> int:
    """Which codec of which model a history tells of, as a hash."""
    return hash((model_key(served.verifier.info), history.token_ids, codec))


def _has_room(budget: KvBudget, needed: int) -> bool:
    """Whether so many bytes are free, with nobody giving way."""
    return budget.free_bytes >= needed
