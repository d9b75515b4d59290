"""One history with its keys and values.

Between operations the cache holds the positions of all tokens but the last,
as far as prefill has come: the last token is fed together with the drafted
ones, so that one forward a block decides and verifies.

A forward is asked of a session in two halves, what to feed and what came of
it, so that a scheduler can run the feeds of several sessions in one forward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from engine.acceptance import accepted_prefix, decide
from engine.cache import CacheKind, CacheSpec, KvCache
from engine.errors import (
    ContextExceeded,
    EmptyAppend,
    EmptyHistory,
    HistoryLengthMismatch,
    InvariantViolated,
    TokenOutOfVocabulary,
)
from engine.history import History
from engine.invariants import FINITE_LOGITS, check_agreement, check_contiguous, check_memory
from engine.sampling import SamplingParameters
from engine.session_cache import SessionCache
from engine.slab_pool import Slab
from engine.step import Step, until_stop
from engine.verifier import Feed, Output, Verifier


@dataclass(frozen=True, slots=True)
class _Fed:
    """A forward under way: `token_ids` behind what `cache` holds.

    `history_length` is that when it was asked for.
    """

    cache: KvCache
    token_ids: list[int]
    history_length: int


class Session:
    """A history and its cache on one verifier. Used by one thread at a time.

    Only `end` and the questions that say so may come from any thread.

    An operation that finds one of the promises of `engine.invariants` broken
    raises `InvariantViolated` and ends the session; every operation on an ended
    session raises `SessionNotFound`.
    """

    def __init__(self, verifier: Verifier, cache: KvCache) -> None:
        """A session with an empty history and an empty cache of `verifier`."""
        self._verifier = verifier
        self._spec = cache.spec
        self._widest = cache.widest
        self._cache = SessionCache(cache)
        self._fed: _Fed | None = None
        self._allocated_bytes = cache.memory_bytes
        self._history = History()
        self._computed = 0
        self._forward_count = 0

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
    def chunk(self) -> int:
        """The most tokens of one prefill forward."""
        return min(self._widest, self._verifier.row_counts[-1])

    @property
    def forward_count(self) -> int:
        """Forward passes of the verifier since the start, prefill included."""
        return self._forward_count

    @property
    def memory_bytes(self) -> int:
        """Bytes of the K/V tensors, shared ones too; 0 once ended. Any thread may ask."""
        return self._cache.memory_bytes

    @property
    def resident(self) -> int:
        """Positions whose K/V are resident; 0 once ended. Any thread may ask."""
        return self._cache.resident

    @property
    def slabs(self) -> tuple[Slab[Any], ...]:
        """What it holds of the verifier's pool; nothing once ended. Any thread may ask."""
        return self._cache.slabs

    @property
    def end_reason(self) -> str:
        """Why the session ended; empty while it lives."""
        return self._cache.end_reason

    def append(self, token_ids: Sequence[int], expected_length: int | None = None) -> int:
        """Extends the history, leaves the prefill pending, returns the new length.

        Raises, with nothing appended: `HistoryLengthMismatch` when
        `expected_length` is given and another, `EmptyAppend`,
        `TokenOutOfVocabulary`, `ContextExceeded`.
        """
        self._cache.check_alive()
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

    def prefill_feed(self, most: int | None = None) -> Feed | None:
        """The next pending tokens, at most `chunk` and `most`; None when none are pending.

        After a feed comes `prefilled`, or `not_run`, and nothing between.
        """
        if self.pending == 0:
            self._cache.check_alive()
            return None
        count = min(self.pending, self.chunk if most is None else min(most, self.chunk))
        return self._feed(self._history[self._computed : self._computed + count], want_logits=False)

    def prefilled(self, _output: Output) -> bool:
        """Takes what came of `prefill_feed`; whether more tokens are pending.

        Raises `SessionNotFound` when the session was ended meanwhile.
        """
        with self._outcome() as fed:
            self._computed += len(fed.token_ids)
            self._check(fed.cache)
            return self.pending > 0

    def prefill_step(self) -> bool:
        """Computes the K/V of at most `chunk` pending tokens; whether more are pending."""
        feed = self.prefill_feed()
        return self.prefilled(self._run(feed)) if feed is not None else False

    def verify_feed(self, draft: Sequence[int], limit: int) -> Feed:
        """The last token and what of `draft` a forward and these bounds can use.

        At most `limit` >= 1 tokens are to be committed, none beyond
        `history_limit`; `draft` has ids inside the vocabulary. After a feed comes
        `verified`, or `not_run`, and nothing between. Raises `EmptyHistory`, and
        `ContextExceeded` when no token fits.
        """
        self._cache.check_alive()
        room = min(limit, self.history_limit - len(self._history))
        self._check_ready(limit, room)
        most = min(room, self._verifier.info.width, self.chunk)
        return self._feed([self._history[-1], *draft[: most - 1]], want_logits=True)

    def verified(
        self,
        output: Output,
        parameters: SamplingParameters,
        stop_ids: frozenset[int] = frozenset(),
    ) -> Step:
        """Takes what came of `verify_feed`, and commits what it decides.

        Commits nothing behind a stop id. Raises `InvariantViolated`, and
        `SessionNotFound` when the session was ended meanwhile.
        """
        with self._outcome() as fed:
            draft = fed.token_ids[1:]
            if output.logits is None or len(output.logits) != len(fed.token_ids):
                raise InvariantViolated("a forward returned no logits", invariant=FINITE_LOGITS)
            choices = decide(output.logits, draft, parameters, self._history)
            kept, stopped = until_stop(choices, stop_ids)
            committed = tuple(choice.token_id for choice in kept)
            self._commit(fed, committed)
            return Step(
                choices=kept,
                first_index=fed.history_length,
                verified_count=len(draft),
                accepted_count=accepted_prefix(draft, committed),
                stopped=stopped,
            )

    def verify(
        self,
        draft: Sequence[int],
        parameters: SamplingParameters,
        *,
        limit: int,
        stop_ids: frozenset[int] = frozenset(),
    ) -> Step:
        """Runs one forward over the last token and `draft`, and commits what it decides.

        See `verify_feed` and `verified` for bounds and errors.
        """
        return self.verified(self._run(self.verify_feed(draft, limit)), parameters, stop_ids)

    def not_run(self) -> None:
        """Takes back a feed whose forward failed: the session stands where it stood."""
        fed, self._fed = self._fed, None
        if fed is None:
            return
        try:
            self._roll_back(fed.cache)
        finally:
            self._cache.hand_back()

    def check_prefix(self, history_length: int | None) -> int:
        """The length of a prefix to fork, None being all; raises `HistoryLengthMismatch`."""
        length = len(self._history) if history_length is None else history_length
        if not 0 <= length <= len(self._history):
            raise HistoryLengthMismatch(
                f"the history has {len(self._history)} tokens, no first {length}",
                history_length=str(len(self._history)),
            )
        return length

    def fork_bytes(self, history_length: int | None = None) -> int:
        """Bytes that `fork(history_length)` takes or reserves from the verifier's pool."""
        with self._using() as cache:
            length = self._forked_length(cache, self.check_prefix(history_length))
            if length is None:
                return self._verifier.bytes_needed(self._spec)
            return cache.fork_bytes(length)

    def fork(self, history_length: int | None = None) -> Session:
        """A new session with the first `history_length` tokens, all by default.

        The K/V are shared until one of the two writes, as far as the cache still
        has those of the shorter history; one that has evicted them cannot go
        back, and the fork computes them anew by prefill. Raises
        `HistoryLengthMismatch` beyond the history, `OutOfKvMemory`.
        """
        with self._using() as cache:
            length = self.check_prefix(history_length)
            shared = self._forked_length(cache, length)
            if shared is None:
                forked = Session(self._verifier, self._verifier.allocate(self._spec))
            else:
                forked = Session(self._verifier, cache.fork(shared))
                forked._computed = shared
            forked._history.extend(self._history[:length])
            return forked

    def end(self, reason: str) -> None:
        """Gives the memory back; `reason` completes the sentence "the session was ...".

        Any thread may call. While a forward is under way the memory is given back
        by the thread that runs it, once it is done.
        """
        self._cache.end(reason)

    @contextmanager
    def _using(self) -> Iterator[KvCache]:
        """The cache, its promises checked."""
        cache = self._cache.borrow()
        try:
            self._check(cache)
            yield cache
        finally:
            self._cache.hand_back()

    def _feed(self, token_ids: list[int], *, want_logits: bool) -> Feed:
        """A forward from now on under way."""
        cache = self._cache.borrow()
        try:
            self._check(cache)
        except InvariantViolated:
            self._cache.hand_back()
            raise
        self._fed = _Fed(cache, token_ids, len(self._history))
        self._forward_count += 1
        return Feed(cache, token_ids, want_logits)

    @contextmanager
    def _outcome(self) -> Iterator[_Fed]:
        """The end of a forward that was under way."""
        fed, self._fed = self._fed, None
        if fed is None:
            raise ValueError("no forward of this session is under way")
        try:
            self._cache.check_alive()
            yield fed
        except InvariantViolated as error:
            raise self._ended(error) from None
        except BaseException:
            self._roll_back(fed.cache)
            raise
        finally:
            self._cache.hand_back()

    def _run(self, feed: Feed) -> Output:
        """The output of one feed alone."""
        try:
            (output,) = self._verifier.forward_batch([feed])
        except BaseException:
            self.not_run()
            raise
        return output

    def _roll_back(self, cache: KvCache) -> None:
        """Drops what a forward wrote and nobody decided upon."""
        if cache.length > self._computed:
            cache.truncate(self._computed)

    def _forked_length(self, cache: KvCache, length: int) -> int | None:
        """Positions that a fork of `length` tokens can share; None when it computes all anew."""
        shared = min(self._computed, max(0, length - 1))
        return shared if shared >= cache.forkable_from else None

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

    def _commit(self, fed: _Fed, committed: tuple[int, ...]) -> None:
        self._history.extend(committed)
        check_contiguous(self._history, fed.history_length, committed)
        self._computed = fed.history_length + len(committed) - 1
        fed.cache.truncate(self._computed)
        self._check(fed.cache)

    def _check(self, cache: KvCache) -> None:
        try:
            check_agreement(cache, self._computed, len(self._history))
            check_memory(cache, self._allocated_bytes)
        except InvariantViolated as error:
            raise self._ended(error) from None

    def _ended(self, error: InvariantViolated) -> InvariantViolated:
        self.end(f"ended by a broken promise ({error.metadata['invariant']})")
        return error
