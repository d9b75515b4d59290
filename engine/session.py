"""One history with its keys and values.

Between operations the cache holds the positions of all tokens but the last,
as far as prefill has come: the last token is fed together with the drafted
ones, so that one forward a block decides and verifies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from engine.acceptance import accepted_prefix, decide
from engine.cache import CacheKind, CacheSpec, KvCache
from engine.errors import (
    ContextExceeded,
    EmptyAppend,
    EmptyHistory,
    EngineError,
    HistoryLengthMismatch,
    InvariantViolated,
    SessionNotFound,
    TokenOutOfVocabulary,
)
from engine.history import History
from engine.invariants import FINITE_LOGITS, check_agreement, check_contiguous, check_memory
from engine.sampling import SamplingParameters
from engine.verifier import Verifier

Failure = TypeVar("Failure", bound=EngineError)


@dataclass(frozen=True, slots=True)
class Step:
    """What one verify forward committed.

    `committed` are 1 or more ids from `first_index` of the history on, the
    first `accepted_count` of them drafted, the one after them the verifier's
    own. `verified_count` drafted tokens went into the forward. `stopped` says
    that the last committed token is a stop id.
    """

    committed: tuple[int, ...]
    first_index: int
    verified_count: int
    accepted_count: int
    stopped: bool


class Session:
    """A history and its cache on one verifier. Used by one thread at a time.

    An operation that finds one of the promises of `engine.invariants` broken
    raises `InvariantViolated` and ends the session; every operation on an ended
    session raises `SessionNotFound`.
    """

    def __init__(self, verifier: Verifier, cache: KvCache) -> None:
        """A session with an empty history and an empty cache of `verifier`."""
        self._verifier = verifier
        self._spec = cache.spec
        self._cache: KvCache | None = cache
        self._allocated_bytes = cache.memory_bytes
        self._history = History()
        self._computed = 0
        self._forward_count = 0
        self._end_reason = ""

    @property
    def spec(self) -> CacheSpec:
        """The cache that was allocated."""
        return self._spec

    @property
    def verifier(self) -> Verifier:
        """The model that decides."""
        return self._verifier

    @property
    def history(self) -> History:
        """All tokens; to be read only."""
        return self._history

    @property
    def history_limit(self) -> int:
        """The longest history in tokens: the model's positions, or the cache's."""
        positions = self._verifier.info.context_length
        if self._spec.kind is CacheKind.CONTIGUOUS:
            return min(positions, self._spec.capacity)
        return positions

    @property
    def pending(self) -> int:
        """Tokens whose K/V prefill has still to compute."""
        return max(0, len(self._history) - 1) - self._computed

    @property
    def forward_count(self) -> int:
        """Forward passes of the verifier since the start, prefill included."""
        return self._forward_count

    @property
    def memory_bytes(self) -> int:
        """Bytes of the K/V tensors; 0 once ended. Any thread may ask."""
        cache = self._cache
        return cache.memory_bytes if cache is not None else 0

    @property
    def resident(self) -> int:
        """Positions whose K/V are resident; 0 once ended. Any thread may ask."""
        cache = self._cache
        return cache.resident if cache is not None else 0

    @property
    def end_reason(self) -> str:
        """Why the session ended; empty while it lives."""
        return self._end_reason

    def append(self, token_ids: Sequence[int], expected_length: int | None = None) -> int:
        """Extends the history, leaves the prefill pending, returns the new length.

        Raises, with nothing appended: `HistoryLengthMismatch` when
        `expected_length` is given and another, `EmptyAppend`,
        `TokenOutOfVocabulary`, `ContextExceeded`.
        """
        self._live_cache()
        length = len(self._history)
        if expected_length is not None and expected_length != length:
            raise HistoryLengthMismatch(
                f"the history has {length} tokens, not {expected_length}; append what is missing",
                history_length=str(length),
                expected_history_length=str(expected_length),
            )
        if not token_ids:
            raise EmptyAppend("an append needs at least one token")
        self._check_vocabulary(token_ids)
        if length + len(token_ids) > self.history_limit:
            raise ContextExceeded(
                f"{length} + {len(token_ids)} tokens are more than the {self.history_limit}"
                " that this session can hold",
                history_length=str(length),
                history_limit=str(self.history_limit),
            )
        self._history.extend(token_ids)
        return len(self._history)

    def prefill_step(self) -> bool:
        """Computes the K/V of at most `width` pending tokens; whether more are pending."""
        cache = self._live_cache()
        self._check(cache)
        if self.pending == 0:
            return False
        count = min(self.pending, self._verifier.info.width)
        block = self._history[self._computed : self._computed + count]
        self._forward_count += 1
        self._verifier.forward(cache, block, want_logits=False)
        self._computed += count
        self._check(cache)
        return self.pending > 0

    def verify(
        self,
        draft: Sequence[int],
        parameters: SamplingParameters,
        *,
        limit: int,
        stop_ids: frozenset[int] = frozenset(),
    ) -> Step:
        """Runs one forward over the last token and `draft`, and commits what it decides.

        Commits at least one and at most `limit` >= 1 tokens, none behind a stop
        id, none beyond `history_limit`; `draft`, of ids inside the vocabulary,
        is cut to what the forward and these bounds can use. Raises
        `EmptyHistory`, `ContextExceeded` when no token fits, `InvariantViolated`.
        """
        cache = self._live_cache()
        self._check(cache)
        first_index = len(self._history)
        room = min(limit, self.history_limit - first_index)
        self._check_ready(limit, room)
        block = list(draft[: min(room, self._verifier.info.width) - 1])
        self._forward_count += 1
        logits = self._verifier.forward(cache, [self._history[-1], *block], want_logits=True)
        if logits is None or len(logits) != len(block) + 1:
            raise self._ended(
                InvariantViolated("a forward returned no logits", invariant=FINITE_LOGITS)
            )
        try:
            chosen = decide(logits, block, parameters, first_index)
        except InvariantViolated as error:
            raise self._ended(error) from None
        committed, stopped = _until_stop(chosen, stop_ids)
        self._commit(cache, first_index, committed)
        return Step(
            committed=committed,
            first_index=first_index,
            verified_count=len(block),
            accepted_count=accepted_prefix(block, committed),
            stopped=stopped,
        )

    def check_prefix(self, history_length: int | None) -> int:
        """The length of a prefix to fork, None being all; raises `HistoryLengthMismatch`."""
        length = len(self._history) if history_length is None else history_length
        if not 0 <= length <= len(self._history):
            raise HistoryLengthMismatch(
                f"the history has {len(self._history)} tokens, no first {length}",
                history_length=str(len(self._history)),
            )
        return length

    def fork(self, history_length: int | None = None) -> Session:
        """A new session with the first `history_length` tokens, all by default.

        The K/V are copied when they are those of the shorter history, and
        computed anew by prefill otherwise: a cache that evicts cannot go back.
        Raises `HistoryLengthMismatch` beyond the history.
        """
        cache = self._live_cache()
        self._check(cache)
        length = self.check_prefix(history_length)
        if self._computed <= max(0, length - 1):
            forked = Session(self._verifier, self._verifier.clone(cache))
            forked._computed = self._computed
        else:
            forked = Session(self._verifier, self._verifier.allocate(self._spec))
        forked._history.extend(self._history[:length])
        return forked

    def end(self, reason: str) -> None:
        """Drops the cache; `reason` completes the sentence "the session was ..."."""
        if self._cache is not None:
            self._cache = None
            self._end_reason = reason

    def _live_cache(self) -> KvCache:
        if self._cache is None:
            raise SessionNotFound(
                f"the session was {self._end_reason}; open a new one and append the history"
            )
        return self._cache

    def _check_vocabulary(self, token_ids: Sequence[int]) -> None:
        size = self._verifier.info.vocabulary_size
        if min(token_ids) >= 0 and max(token_ids) < size:
            return
        index, token_id = next(
            (index, token) for index, token in enumerate(token_ids) if not 0 <= token < size
        )
        raise TokenOutOfVocabulary(
            f"token {token_id} at index {index} is outside the vocabulary of {size}",
            token_id=str(token_id),
            index=str(index),
            vocabulary_size=str(size),
        )

    def _check_ready(self, limit: int, room: int) -> None:
        if limit < 1:
            raise ValueError(f"limit {limit} leaves no token to commit")
        if not self._history:
            raise EmptyHistory("a generation continues a history; append tokens first")
        if self.pending:
            raise ValueError(f"{self.pending} tokens still wait for prefill")
        if room < 1:
            raise ContextExceeded(
                f"the history holds the {self.history_limit} tokens that it can",
                history_length=str(len(self._history)),
                history_limit=str(self.history_limit),
            )

    def _commit(self, cache: KvCache, first_index: int, committed: tuple[int, ...]) -> None:
        self._history.extend(committed)
        try:
            check_contiguous(self._history, first_index, committed)
        except InvariantViolated as error:
            raise self._ended(error) from None
        self._computed = first_index + len(committed) - 1
        cache.truncate(self._computed)
        self._check(cache)

    def _check(self, cache: KvCache) -> None:
        try:
            check_agreement(cache, self._computed, len(self._history))
            check_memory(cache, self._allocated_bytes)
        except InvariantViolated as error:
            raise self._ended(error) from None

    def _ended(self, error: Failure) -> Failure:
        self.end(f"ended by a broken promise ({error.metadata['invariant']})")
        return error


def _until_stop(chosen: Sequence[int], stop_ids: frozenset[int]) -> tuple[tuple[int, ...], bool]:
    """The tokens up to the first stop id, that one included, and whether there is one."""
    for index, token in enumerate(chosen):
        if token in stop_ids:
            return tuple(chosen[: index + 1]), True
    return tuple(chosen), False
