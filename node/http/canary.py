"""A generation of one token that shows whether a verifier still computes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import EngineError, InvariantViolated
from kakeya_fleet.engine.invariants import FINITE_LOGITS
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.roles.worker import WorkerClosed
from kakeya_fleet.node.rpc.refusals import WorkerFault

TOKEN_ID = 0


@dataclass(frozen=True, slots=True)
class Sign:
    """How a canary ended, at a time of the clock; `fault` is empty when it generated."""

    at: float
    fault: str


class Canary:
    """One verifier's canary, outside of its sessions and of what is counted of them.

    It takes a place in the queue of the model's thread, as sessions' steps do, with a
    cache of its own that is made with the first and kept: so that a node full of
    sessions can still show that it computes.
    """

    def __init__(self, served: ServedVerifier, clock: Callable[[], float]) -> None:
        # Not what is served: nobody would notice that it is served no more.
        self._worker = served.worker
        self._clock = clock
        self._generate = _OneToken(served.verifier)
        self._running: asyncio.Task[Sign] | None = None
        self._began_at = 0.0
        self.last: Sign | None = None

    @property
    def waiting_seconds(self) -> float:
        """For how long the one that runs has been waited for; 0 when none runs."""
        return self._clock() - self._began_at if self._running is not None else 0.0

    async def look(self, deadline: float) -> Sign | None:
        """Its end; None when it did not end within `deadline` seconds. It goes on then.

        A step that has begun in the model's thread cannot be taken back: while one
        hangs there, no second is sent after it.
        """
        if self._running is None:
            self._began_at = self._clock()
            self._running = asyncio.create_task(self._run(), name="health-canary")
        running = self._running
        await asyncio.wait((running,), timeout=deadline)
        if not running.done():
            return None
        if self._running is running:
            self._running = None
            self.last = running.result()
        return running.result()

    def close(self) -> None:
        """Gives up the one that waits."""
        if self._running is not None:
            self._running.cancel()

    async def _run(self) -> Sign:
        fault = ""
        try:
            await self._worker.run(self._generate)
        except (EngineError, WorkerFault) as error:
            fault = f"{error.reason}: {error}"
        except WorkerClosed as error:
            fault = f"WORKER_CLOSED: {error}"
        except Exception as error:  # noqa: BLE001 - whatever the back end raises is the finding
            fault = f"{type(error).__name__}: {error}"
        return Sign(self._clock(), fault)


class _OneToken:
    """Chooses one token behind a history of one. Called in the verifier's thread."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self._cache: KvCache | None = None

    def __call__(self) -> int:
        if self._cache is None:
            self._cache = self._verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=1))
        logits = self._verifier.forward(self._cache, [TOKEN_ID], want_logits=True)
        # What a forward wrote can be taken back as far as its start: the cache stays small.
        self._cache.truncate(0)
        if logits is None or not np.isfinite(logits).all():
            raise InvariantViolated("the verifier's logits are not finite", invariant=FINITE_LOGITS)
        return int(np.argmax(logits[-1]))
