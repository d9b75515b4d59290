"""Texts as vectors: the mean of a verifier's last hidden states, read in turns like a prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import GroupLost, SessionNotFound
from kakeya_fleet.engine.sessions.mean_pool import MeanPool, TextVector
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.sessions.session_record import Activity, SessionOptions
from kakeya_fleet.engine.sessions.turns import ReadTurn
from kakeya_fleet.node.admission.caller import NOBODY, Caller
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.roles.verifier.session_lifecycle import SessionLifecycle
from kakeya_fleet.node.roles.worker import WorkerClosed

LABEL = "embedding"


class Embedding:
    """Reads texts on the verifiers of a node. Belongs to the event loop's thread.

    A text has a session of its own for as long as it is read: one of the places that there are,
    with the memory of all its keys and values taken before it begins. Nobody is told of it.
    """

    def __init__(self, lifecycle: SessionLifecycle, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds."""
        self._lifecycle = lifecycle
        self._clock = clock

    async def embed(
        self, served: ServedVerifier, token_ids: Sequence[int], caller: Caller = NOBODY
    ) -> TextVector:
        """The text's vector [hidden_size], of length 1.

        The same whoever shares the verifier's forwards, as far as the model is exact on this
        machine. A caller that leaves stops the reading within one forward. Raises
        `EmptyAppend`, `TokenOutOfVocabulary`, `ContextExceeded`, `OutOfKvMemory`,
        `TooManySessions`, `Draining`, `GroupLost`, `InvariantViolated`.
        """
        registry = self._lifecycle.registry
        capacity = max(1, min(len(token_ids), served.verifier.info.context_length))
        create = partial(
            registry.create,
            served.budget,
            CacheSpec(CacheKind.CONTIGUOUS, capacity=capacity),
            SessionOptions(LABEL),
            owner=caller,
        )
        try:
            record = await self._lifecycle.created(served, create)
            try:
                with self._lifecycle.holding(record.session_id, Activity.APPENDING):
                    return await self._read(served, record.session, token_ids)
            finally:
                with suppress(SessionNotFound, GroupLost):
                    registry.close(record.session_id)
        except (SessionNotFound, WorkerClosed):
            self._lifecycle.refuse_when_leaving(served)
            raise

    async def _read(
        self, served: ServedVerifier, session: Session, token_ids: Sequence[int]
    ) -> TextVector:
        worker = served.worker
        await worker.run(partial(session.append, token_ids))
        pool = MeanPool(served.verifier.info.hidden_size)
        is_done = False
        while not is_done:
            self._lifecycle.refuse_when_leaving(served)
            before, began = pool.count, self._clock()
            is_done = not await worker.run_turn(ReadTurn(session, pool))
            served.budget.pace.record(pool.count - before, self._clock() - began)
        return pool.vector()
