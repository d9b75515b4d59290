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
from typing import Any

from kakeya_fleet.engine.contracts.cache import CacheSpec, KvCache
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.features import FeatureEncoder, Features
from kakeya_fleet.engine.contracts.raw_numbers import KeysValues
from kakeya_fleet.engine.contracts.verifier import Feed, Output, Verifier
from kakeya_fleet.engine.errors import EmptyHistory, InvariantViolated, OutOfKvMemory
from kakeya_fleet.engine.invariants import FINITE_LOGITS, CheckedInvariants, InvariantCount
from kakeya_fleet.engine.memory.slab_pool import Slab
from kakeya_fleet.engine.sampling.answer import Answer
from kakeya_fleet.engine.sampling.choice import SamplingParameters
from kakeya_fleet.engine.sessions.acceptance import accepted_prefix, decide
from kakeya_fleet.engine.sessions.history import History
from kakeya_fleet.engine.sessions.history_checks import check_append, check_room, prefix_length
from kakeya_fleet.engine.sessions.session_cache import ForwardInFlight, SessionCache
from kakeya_fleet.engine.sessions.session_features import SessionFeatures
from kakeya_fleet.engine.sessions.session_memory import SessionMemory
from kakeya_fleet.engine.sessions.step import Step, until_stop
from kakeya_fleet.engine.sessions.waking import Waking


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
        self._forward: ForwardInFlight | None = None
        self._memory = SessionMemory(verifier, cache)
        self._history = History()
        self._computed = 0
        self._given_back = 0
        self._recomputed_count = 0
        self._forward_count = 0
        self._features: SessionFeatures | None = None
        self.waking = Waking(verifier)
        """Where one that rested finds its memory, and how little will do."""
        self._invariants = CheckedInvariants()

    @classmethod
    def allocate(
        cls, verifier: Verifier, spec: CacheSpec, evicted: EvictedStore | None = None
    ) -> Session:
        """A session with a cache over `evicted`, which is released when `Verifier` raises."""
        try:
            return cls(verifier, verifier.allocate(spec, evicted))
        except BaseException:
            if evicted is not None:
                evicted.release()
            raise

    @property
    def spec(self) -> CacheSpec:
        """The cache that was allocated. Any thread may ask."""
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
        if self._spec.keeps_all:
            return min(positions, self._spec.capacity)
        return positions

    @property
    def pending(self) -> int:
        """Tokens whose K/V prefill has still to compute."""
        return max(0, len(self._history) - 1) - self._computed

    @property
    def width(self) -> int:
        """The most tokens of one verify forward, the last committed one among them."""
        return min(self._verifier.info.width, self.chunk)

    @property
    def chunk(self) -> int:
        """The most tokens of one prefill forward."""
        return min(self._widest, self._verifier.row_counts[-1])

    @property
    def forward_count(self) -> int:
        """Forward passes of the verifier since the start, prefill included."""
        return self._forward_count

    @property
    def is_resting(self) -> bool:
        """Whether its memory was given back and is not taken again yet. Any thread may ask."""
        return self._cache.is_resting

    @property
    def can_rest(self) -> bool:
        """Whether `rest` keeps it: not where what it has evicted is kept elsewhere."""
        return self._spec.restorer is None

    @property
    def can_shrink(self) -> bool:
        """Whether `shrink` may pack it. Any thread may ask."""
        return self.waking.smaller not in (None, self._spec)

    @property
    def has_shrunk(self) -> bool:
        """Whether it is packed, and was not asked to be but where memory is short. Any thread."""
        return self.waking.smaller == self._spec

    @property
    def computed_count(self) -> int:
        """Positions whose K/V are computed: all but the pending and the last. Any thread."""
        return self._computed

    @property
    def recomputed_count(self) -> int:
        """Positions computed once more after their K/V were given back or lost. Any thread."""
        return self._recomputed_count

    @property
    def memory_bytes(self) -> int:
        """Bytes of the K/V tensors, shared ones too; 0 at rest and once ended. Any thread."""
        return self._cache.memory_bytes

    @property
    def resident(self) -> int:
        """Positions whose K/V are resident; 0 at rest and once ended. Any thread may ask."""
        return self._cache.resident

    @property
    def forgotten_count(self) -> int:
        """Positions that no query sees any more, among those computed. Any thread may ask."""
        return self._spec.forgotten_count(len(self._history) - self.pending)

    @property
    def invariants(self) -> tuple[InvariantCount, ...]:
        """How often each promise was checked since the start. Any thread may ask."""
        return self._invariants.counts

    @property
    def evicted(self) -> EvictedStore | None:
        """What keeps evicted positions; None without, and once ended. Any thread may ask."""
        return self._cache.evicted

    @property
    def slabs(self) -> tuple[Slab[Any], ...]:
        """What it holds of the verifier's pool; nothing once ended. Any thread may ask."""
        return self._cache.slabs

    @property
    def end_reason(self) -> str:
        """Why the session ended; empty while it lives."""
        return self._cache.end_reason

    @property
    def features(self) -> SessionFeatures | None:
        """Context vectors of the latest positions; None without an encoder. Any thread may ask."""
        return self._features

    def use_encoder(self, encoder: FeatureEncoder | None) -> None:
        """Makes context vectors of what is computed from now on, or none any more.

        Any thread may call: a forward under way keeps the encoder it began with.
        One that is in use already changes nothing.
        """
        features = self._features
        if encoder is None or features is None or features.spec != encoder.spec:
            self._features = SessionFeatures(encoder) if encoder is not None else None

    def append(
        self, token_ids: Sequence[int], expected_length: int | None = None, room: int = 0
    ) -> int:
        """Extends the history, leaves the prefill pending, returns the new length.

        With `room` a cache that grows takes the memory of these tokens and of so many behind them
        at once, as far as `history_limit`: what is generated into it lacks none.

        Raises, with nothing appended: `HistoryLengthMismatch` when
        `expected_length` is given and another, `EmptyAppend`,
        `TokenOutOfVocabulary`, `ContextExceeded`, and `OutOfKvMemory` when a cache
        that grows finds no room for all of it. The room is taken by prefill, which
        raises the same when others were faster, and can be tried again.
        """
        self._cache.check_alive()
        check_append(
            token_ids,
            history_length=len(self._history),
            expected_length=expected_length,
            vocabulary_size=self._verifier.info.vocabulary_size,
            history_limit=self.history_limit,
        )
        if self._spec.grows or self.is_resting:
            self._make_room(len(token_ids), room)
        self._history.extend(token_ids)
        return len(self._history)

    def prefill_feed(self, most: int | None = None) -> Feed | None:
        """The next pending tokens, at most `chunk` and `most`; None when none are pending.

        After a feed comes `prefilled`, or `not_run`, and nothing between. Raises
        `OutOfKvMemory` when the cache finds no room to grow: the session stays as it is.
        """
        if self.pending == 0:
            self._cache.check_alive()
            return None
        self._wake()
        count = min(self.pending, self.chunk if most is None else min(most, self.chunk))
        return self._feed(self._history[self._computed : self._computed + count], want_logits=False)

    def prefilled(self, output: Output) -> bool:
        """Takes what came of `prefill_feed`; whether more tokens are pending.

        Raises `SessionNotFound` when the session was ended meanwhile.
        """
        with self._outcome() as forward:
            before = self._computed
            self._computed += len(forward.token_ids)
            self._recomputed_count += max(0, min(self._computed, self._given_back) - before)
            self._check(forward.cache)
            self._keep_features(forward, output, before)
            return self.pending > 0

    def verify_feed(self, draft: Sequence[int], limit: int) -> Feed:
        """The last token and what of `draft` a forward and these bounds can use.

        At most `limit` >= 1 tokens are to be committed, none beyond
        `history_limit`; `draft` has ids inside the vocabulary. After a feed comes
        `verified`, or `not_run`, and nothing between. Raises `EmptyHistory`,
        `ContextExceeded` when no token fits, and `OutOfKvMemory` as `prefill_feed` does.
        """
        self._cache.check_alive()
        room = check_room(
            limit, history_length=len(self._history), history_limit=self.history_limit
        )
        if self.pending:
            raise ValueError(f"{self.pending} tokens still wait for prefill")
        self._wake()
        most = min(room, self.width)
        return self._feed([self._history[-1], *draft[: most - 1]], want_logits=True)

    def verified(
        self,
        output: Output,
        parameters: SamplingParameters,
        stop_ids: frozenset[int] = frozenset(),
        answer: Answer | None = None,
    ) -> Step:
        """Takes what came of `verify_feed`, and commits what it decides.

        `answer` is what the generation has said, and takes what is committed. Commits nothing
        behind a stop id, and behind what completes the answer. Raises `InvariantViolated`,
        `SessionNotFound` when the session was ended meanwhile, and as `decide`.
        """
        with self._outcome() as forward:
            draft = forward.token_ids[1:]
            with self._invariants.checking(FINITE_LOGITS):
                if output.logits is None or len(output.logits) != len(forward.token_ids):
                    raise InvariantViolated("a forward returned no logits", invariant=FINITE_LOGITS)
                choices = decide(output.logits, draft, parameters, self._history, answer, stop_ids)
            kept, stopped = until_stop(choices, stop_ids)
            committed = tuple(choice.token_id for choice in kept)
            self._commit(forward, committed)
            if answer is not None:
                answer.take(committed[:-1] if stopped else committed)
            self._keep_features(forward, output, forward.history_length - 1)
            return Step(
                choices=kept,
                first_index=forward.history_length,
                verified_count=len(draft),
                accepted_count=accepted_prefix(draft, committed),
                stopped=stopped,
                complete=not stopped and answer is not None and answer.is_complete,
            )

    def read_feed(self, most: int) -> Feed:
        """The next tokens whose keys and values are not computed, the history's last among them.

        At most `chunk` and `most`; what the final norm makes of them is wanted. After a feed comes
        `read`, or `not_run`, and nothing between. Raises `EmptyHistory`, and `OutOfKvMemory` as
        `prefill_feed` does.
        """
        self._cache.check_alive()
        if not self._history:
            raise EmptyHistory("nothing can be read of a history without tokens")
        self._wake()
        end = self._computed + min(most, self.chunk)
        taps = (self._verifier.info.layer_count,)
        return self._feed(self._history[self._computed : end], want_logits=False, taps=taps)

    def read(self, output: Output) -> tuple[int, Features]:
        """Takes what came of `read_feed`: the first position that was read, and what it gave.

        [n, 1, hidden_size]. The history's last token stays to be fed with what comes behind it.
        Raises `SessionNotFound` when the session was ended meanwhile.
        """
        with self._outcome() as forward:
            if output.features is None or len(output.features) != len(forward.token_ids):
                raise ValueError("a forward that was tapped gave no hidden states")
            first = self._computed
            self._computed = min(first + len(forward.token_ids), len(self._history) - 1)
            self._recomputed_count += max(0, min(self._computed, self._given_back) - first)
            self._roll_back(forward.cache)
            self._check(forward.cache)
            return first, output.features

    def not_run(self) -> None:
        """Takes back a feed whose forward failed: the session stands where it stood."""
        forward, self._forward = self._forward, None
        if forward is None:
            return
        try:
            self._roll_back(forward.cache)
        finally:
            self._cache.hand_back()

    def check_prefix(self, history_length: int | None) -> int:
        """The length of a prefix to fork, None being all; raises `HistoryLengthMismatch`."""
        return prefix_length(history_length, len(self._history))

    def fork_bytes(self, history_length: int | None = None) -> int:
        """Bytes that `fork(history_length)` takes or reserves from the verifier's pool."""
        if self.is_resting:
            self.check_prefix(history_length)
            return self._verifier.bytes_needed(self._spec)
        with self._using() as cache:
            length = self._forked_length(cache, self.check_prefix(history_length))
            if length is None:
                return self._verifier.bytes_needed(self._spec)
            return cache.fork_bytes(length)

    def fork(self, history_length: int | None = None) -> Session:
        """A new session with the first `history_length` tokens, all by default.

        The K/V are shared until one of the two writes, as far as the cache still
        has those of the shorter history; one that has evicted them cannot go
        back, and the fork computes them anew by prefill, as that of one at rest does. Raises
        `HistoryLengthMismatch` beyond the history, `OutOfKvMemory`, `RestorerLost`.
        """
        length = self.check_prefix(history_length)
        if self.is_resting:
            return self._with_prefix(Session.allocate(self._verifier, self._spec), length)
        return self._with_prefix(self._sharing(length), length)

    def rest(self) -> bool:
        """Gives its memory back, and stays what it is: the next operation takes some again.

        All of the history is pending then, and makes the same keys and values, bit for bit.
        False, and nothing is given back, while an operation uses it, once it has ended, and
        where what it has evicted is kept elsewhere. Any thread may call while no operation runs.
        """
        if not self.can_rest or not self._cache.rest():
            return False
        self._all_pending()
        return True

    def shrink(self) -> None:
        """Keeps all by fewer bits from now on, as `waking.smaller` says: rests, and wakes so.

        Its stream goes on as that of a session does which was opened so, with its history. Raises
        `SessionNotFound`, and `ValueError` unless it `can_shrink` and no operation runs.
        """
        smaller = self.waking.smaller
        self._cache.check_alive()
        if smaller is None or not self.can_shrink or not (self.is_resting or self.rest()):
            raise ValueError("this session cannot shrink now")
        self._spec = smaller

    def renew(self, evicted: EvictedStore | None = None) -> None:
        """Begins anew with an empty cache over `evicted`: all of the history is pending.

        After `RestorerLost`: the history makes the same keys and values again, bit
        for bit, so that the stream goes on. When this raises, `evicted` stays the
        caller's, and the session has no cache until it is renewed. Raises
        `SessionNotFound` and what `Verifier.allocate` raises.
        """

        def anew() -> KvCache:
            self._all_pending()
            cache = self._verifier.allocate(self._spec, evicted)
            self._widest, self._memory = cache.widest, SessionMemory(self._verifier, cache)
            return cache

        self._cache.replace(anew)

    def keys_values(self, first: int, end: int) -> KeysValues | None:
        """A copy of those of the history's positions `first` to `end`, exclusive.

        None where they are not all there: not computed yet, evicted, or at rest. Raises
        `SessionNotFound`.
        """
        if end > self._computed or self.is_resting:
            return None
        cache = self._cache.borrow()
        try:
            return cache.keys_values(first, end)
        finally:
            self._cache.hand_back()

    def end(self, reason: str) -> None:
        """Gives the memory back; `reason` completes the sentence "the session was ...".

        Any thread may call. While a forward is under way the memory is given back
        by the thread that runs it, once it is done.
        """
        self._cache.end(reason)

    @contextmanager
    def _using(self, coming: int = 0) -> Iterator[KvCache]:
        """The cache, its promises checked; of one at rest a new one, with room for `coming`."""
        self._wake(coming)
        cache = self._cache.borrow()
        try:
            self._check(cache)
            yield cache
        finally:
            self._cache.hand_back()

    def _feed(
        self, token_ids: list[int], *, want_logits: bool, taps: tuple[int, ...] | None = None
    ) -> Feed:
        """A forward from now on under way.

        Its hidden states make context vectors, or are those of `taps`.
        """
        cache = self._cache.borrow()
        try:
            self._check(cache)
            self._memory.make_room(cache, len(token_ids))
        except (InvariantViolated, OutOfKvMemory):
            self._cache.hand_back()
            raise
        self._memory.feeds(cache, len(token_ids))
        features = self._features if taps is None else None
        if taps is None:
            taps = features.spec.taps if features else ()
        self._forward = ForwardInFlight(cache, token_ids, len(self._history), features)
        self._forward_count += 1
        return Feed(cache, token_ids, want_logits, taps)

    def _wake(self, coming: int = 0) -> None:
        """Gives one at rest a cache again, once there is room for history and `coming`.

        Perhaps a smaller one, which takes fewer tokens at once.
        """
        if self.is_resting:
            self._cache.check_alive()
            self._spec = self.waking.make_room(self._spec, len(self._history) + coming)
            self.renew()

    def _make_room(self, coming: int, beyond: int) -> None:
        """For the history and `coming` tokens: who may shrink does where there is none.

        With any `beyond` that is taken, and as much more.
        """
        try:
            self._find_room(coming, beyond)
        except OutOfKvMemory:
            if not self.can_shrink:
                raise
            self.shrink()
            self._find_room(coming, beyond)

    def _find_room(self, coming: int, beyond: int) -> None:
        end = min(len(self._history) + coming + beyond, self.history_limit)
        with self._using(coming + beyond) as cache:
            count = end - cache.length
            if not beyond:
                self._memory.make_room(cache, count)
            elif nbytes := cache.growth_bytes(count):
                # As a new session asks that is admitted whole: by its owner's part.
                self.waking.room.make(nbytes)
                self._memory.take(cache, count)

    def _all_pending(self) -> None:
        """The cache is empty again."""
        self._given_back = max(self._given_back, self._computed)
        self._computed = 0

    def _with_prefix(self, forked: Session, length: int) -> Session:
        """A new session, with the first `length` tokens of the history."""
        forked._history.extend(self._history[:length])
        forked.waking.smaller = self.waking.smaller
        if self.is_resting:
            forked._given_back = min(self._given_back, max(0, length - 1))
        if self._features is not None:
            # Vectors depend on the history alone: those of a prefix stay true.
            forked._features = self._features.until(max(0, length - 1))
        return forked

    def _sharing(self, length: int) -> Session:
        """A session with what it can share of the cache, its history still empty."""
        with self._using() as cache:
            shared = self._forked_length(cache, length)
            if shared is None:
                # What is elsewhere need not travel again; tiles of its own it makes again.
                kept = cache.evicted if self._spec.restorer is not None else None
                evicted = kept.fork(max(0, length - 1)) if kept is not None else None
                return Session.allocate(self._verifier, self._spec, evicted)
            forked = Session(self._verifier, cache.fork(shared))
            forked._computed = shared
            return forked

    @contextmanager
    def _outcome(self) -> Iterator[ForwardInFlight]:
        """The end of a forward that was under way."""
        forward, self._forward = self._forward, None
        if forward is None:
            raise ValueError("no forward of this session is under way")
        try:
            self._cache.check_alive()
            yield forward
        except InvariantViolated as error:
            raise self._ended(error) from None
        except BaseException:
            self._roll_back(forward.cache)
            raise
        finally:
            self._cache.hand_back()

    def _roll_back(self, cache: KvCache) -> None:
        """Drops what a forward wrote and nobody decided upon."""
        if cache.length > self._computed:
            cache.truncate(self._computed)

    def _forked_length(self, cache: KvCache, length: int) -> int | None:
        """Positions that a fork of `length` tokens can share; None when it computes all anew."""
        shared = min(self._computed, max(0, length - 1))
        return shared if shared >= cache.forkable_from else None

    def _commit(self, forward: ForwardInFlight, committed: tuple[int, ...]) -> None:
        self._history.extend(committed)
        self._invariants.commit(self._history, forward.history_length, committed)
        self._computed = forward.history_length + len(committed) - 1
        forward.cache.truncate(self._computed)
        self._check(forward.cache)

    def _keep_features(self, forward: ForwardInFlight, output: Output, first: int) -> None:
        """Context vectors of the positions from `first` on that this forward made final."""
        if forward.features is not None and output.features is not None:
            forward.features.add(first, output.features[: self._computed - first])

    def _check(self, cache: KvCache) -> None:
        try:
            self._invariants.cache(
                cache, self._computed, len(self._history), self._memory.bounds(cache)
            )
        except InvariantViolated as error:
            raise self._ended(error) from None

    def _ended(self, error: InvariantViolated) -> InvariantViolated:
        self.end(f"ended by a broken promise ({error.metadata['invariant']})")
        return error
