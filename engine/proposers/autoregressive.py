"""A plain language model as drafter: a small one of the verifier's tokenizer, decoded as that is.

Leviathan et al., "Fast inference from transformers via speculative decoding" (2023); what
`llama-server --model-draft` does. Any model that verifies can draft, on its back end and with its
weights: the same folder in fewer bits is a drafter that every verifier has.

Of a history of n tokens the drafter has keys and values of the **latest** alone, those from

    start(n) = 0                                      for n <= R,
    start(n) = h ceil((n - R) / h)   with h = R / 2   beyond,

so it reads at most R of them and never fewer than R / 2, and each time that `start` moves R / 2 are
read anew. But what sees less guesses worse, and a verifier of the same weights on the same machine
gives its keys and values, which takes a tenth of the time of reading, on the cores that both share
(`giving.py`). So up to n = G > R `start` stays where it is while no more than R tokens are unread:
at 0 where all was given. What is drafted depends on the tokens from `start` on alone, not on the
pieces they came in, but for how a back end rounds few rows and many; how much of it, on what the
stream and the drafts take (`sureness.py`).
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import TypeAlias

from kakeya_fleet.engine.contracts.blocking import Result
from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec, KvCache
from kakeya_fleet.engine.contracts.draft import MAX_BLOCK_SIZE, Draft
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.proposer_info import AUTOREGRESSIVE, ProposerInfo
from kakeya_fleet.engine.contracts.raw_numbers import KeysValues
from kakeya_fleet.engine.contracts.verifier import Feed, Logits, Verifier
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind, ModelUnusable, OutOfKvMemory
from kakeya_fleet.engine.proposers.guesses import GuessChances, worth_guessing
from kakeya_fleet.engine.proposers.ngram import INDEXED_TOKENS, NgramDraftState, TextAhead
from kakeya_fleet.engine.proposers.shared_forwards import (
    DraftTurn,
    Forwarding,
    SharedForwards,
    Sharer,
)
from kakeya_fleet.engine.proposers.sureness import DraftedTokens, Sureness, Worth, kind_of
from kakeya_fleet.engine.sampling.choice import drawn_token, likeliest_token

MOST_READ = 2048
"""R, in tokens; less for a model of fewer positions."""
MOST_GIVEN = 8192
"""G, likewise."""
MOST_BEHIND = 2 * MAX_BLOCK_SIZE + 1
"""Positions behind the history that a draft takes at most: a block that is assumed, with the
verifier's own token, and a block."""
READ_AT_ONCE = 64
"""Tokens that a draft reads first; behind more it drafts nothing, and they are read apart."""
FEW = 8
"""Rows whose logits take less than a forward, though the last one's alone are wanted; with guesses
no more of them."""

Tokens: TypeAlias = "array[int]"


class Learned:
    """The forwards that all sessions of a model share, and what they learn as it drafts."""

    def __init__(self, verifier: Verifier, clock: Callable[[], float]) -> None:
        self.forwards = SharedForwards(verifier, clock)
        self.sureness = Sureness()
        self.worth = Worth(clock)


class AutoregressiveProposer:
    """Drafts with `verifier`, of which it alone makes forwards."""

    def __init__(
        self,
        verifier: Verifier,
        clock: Callable[[], float] = time.perf_counter,
        *,
        most_read: int = MOST_READ,
        most_given: int = MOST_GIVEN,
        ends: Collection[int] = (),
    ) -> None:
        """Reads `most_read` tokens of a history at most, an even number.

        Of a history of up to `most_given` it takes what it is given. Behind an id of `ends`, with
        which its answers end, it drafts nothing in the same block.

        Raises `ModelUnusable` for one of too few positions to draft a block behind any.
        """
        self._verifier = verifier
        self._clock = clock
        positions, model_id = verifier.info.context_length, verifier.info.model_id
        self._most_read = min(most_read, (positions - MOST_BEHIND) // 2 * 2)
        if self._most_read < 2:
            raise ModelUnusable(
                f"{model_id} has {positions} positions: a model that drafts needs"
                f" {MOST_BEHIND + 2}",
                model_id=model_id,
            )
        self._goes_back, is_given = _abilities(verifier)
        most = min(most_given, positions - MOST_BEHIND)
        self._most_given = max(self._most_read, most) if is_given else 0
        self._learned = Learned(verifier, clock)
        self._ends = frozenset(ends)

    @property
    def model_id(self) -> str:
        """The name that requests use."""
        return self._verifier.info.model_id

    @property
    def info(self) -> ProposerInfo:
        """What the model is."""
        info = self._verifier.info
        return ProposerInfo(
            info.model_id,
            AUTOREGRESSIVE,
            architecture=info.architecture,
            weights_digest=info.weights_digest,
            tokenizer_digest=info.tokenizer_digest,
            vocabulary_size=info.vocabulary_size,
            dtype=info.dtype,
            backend=info.backend,
            given_history_tokens=self._most_given,
            ends_drafts=True,
        )

    @property
    def encoder(self) -> None:
        """Needs no context vectors."""
        return

    @property
    def forwards(self) -> SharedForwards:
        """What its sessions' drafts share."""
        return self._learned.forwards

    @property
    def held_bytes(self) -> int:
        """Of keys and values, all sessions' together."""
        return self._verifier.pool.held_bytes

    def open(self, prefix: Sequence[int]) -> AutoregressiveDraftState:
        """State for one session whose history is `prefix`, of which nothing is read yet."""
        return self._opened(prefix, self._learned, self._ends)

    def open_whole(self, prefix: Sequence[int]) -> AutoregressiveDraftState:
        """As `open`; its drafts are as long as they are asked for, and others learn nothing of it.

        So it tells what drafts of a length take.
        """
        return self._opened(prefix, None, frozenset())

    def _opened(
        self, prefix: Sequence[int], learned: Learned | None, ends: frozenset[int]
    ) -> AutoregressiveDraftState:
        return AutoregressiveDraftState(
            self._verifier,
            prefix,
            self._clock,
            self._most_read,
            self._most_given,
            goes_back=self._goes_back,
            learned=learned,
            ends=ends,
        )


def _abilities(verifier: Verifier) -> tuple[bool, bool]:
    """Whether several forwards can be taken back: not where a layer keeps its last state alone.

    And whether what a cache gives of positions, another of the model's takes.
    """
    cache = verifier.allocate(CacheSpec(CacheKind.CONTIGUOUS, capacity=4, grows=True))
    try:
        for token_id in (0, 0):
            verifier.forward(cache, [token_id], want_logits=False)
        return cache.forkable_from == 0, cache.keys_values(0, 1) is not None
    finally:
        cache.release()


class AutoregressiveDraftState:
    """One session's latest tokens, and the model's keys and values of them.

    What was drafted stays in the cache until the next draft: what of it was committed is not
    computed again. A model that cannot go back drafts in a copy of its cache.
    """

    def __init__(
        self,
        verifier: Verifier,
        prefix: Sequence[int],
        clock: Callable[[], float],
        most_read: int,
        most_given: int = 0,
        *,
        goes_back: bool,
        learned: Learned | None = None,
        ends: frozenset[int] = frozenset(),
    ) -> None:
        """Without what all sessions `learned` drafts end where `ends` or their size has them."""
        self._verifier = verifier
        self._clock = clock
        self._most_read = most_read
        self._most_whole = max(most_read, most_given)
        """Tokens of a history that is there from its beginning on."""
        self._goes_back = goes_back
        self._length = 0
        # The history from `_start` on, and what the cache has: equal as far as both go, but for
        # what was assumed or drafted.
        self._start = 0
        self._moving = threading.Lock()
        self._text = array("I")
        self._held = array("I")
        self._cache: KvCache | None = None
        self._is_wanted = True
        self._quotes = NgramDraftState((), clock, INDEXED_TOKENS)
        self._chances = GuessChances()
        self._is_whole = learned is None
        self._learned = learned or Learned(verifier, clock)
        self._forwards = self._learned.forwards
        self._expected = DraftedTokens(self._learned.sureness)
        self._asked_at_length: int | None = None
        self._ends = ends
        self.commit(prefix)

    @property
    def length(self) -> int:
        """Tokens of the history known here."""
        return self._length

    @property
    def is_behind(self) -> bool:
        """Whether more than `READ_AT_ONCE` tokens are unread, besides the last one."""
        return self._unread > READ_AT_ONCE

    def commit(self, token_ids: Sequence[int]) -> None:
        """Appends committed tokens to the history."""
        self._expected.committed(token_ids)
        self._length += len(token_ids)
        self._text.extend(token_ids)
        self._quotes.commit(token_ids)
        if self._length > self._most_whole:
            self._move_start()

    def read(self) -> None:
        """Reads at most `READ_AT_ONCE` tokens. Raises as `propose`."""
        if self._unread > self._most_read:
            self._move_start()
        text = self._text[:-1]
        known = self._back_to(text)
        self._alone(self._take_in(self._own(), text[known : known + READ_AT_ONCE]))

    def take_keys_values(self, first: int, count: int, numbers: KeysValues) -> None:
        """Keys and values of `count` committed positions from `first` on, as its verifier has them.

        Those are the better ones to draft behind: a drafter of fewer bits rounds more. Nothing is
        taken of a history that it does not have from its beginning on, or behind a gap.
        """
        end = first + count
        if self._start or end > len(self._text) or self._back_to(self._text[:first]) != first:
            return
        try:
            self._own().take_keys_values(count, numbers)
        except OutOfKvMemory as error:
            if end <= self._most_read:
                raise _without_memory(error) from error
            # Less of it takes less: it is read.
            self.close()
            return
        self._held.extend(self._text[first:end])

    def propose(
        self,
        assumed: Sequence[int],
        block_size: int,
        step_count: int,
        drawing: Drawing | None = None,
    ) -> Draft:
        """As `proposing`, in forwards of its own."""
        return self._alone(self.proposing(assumed, block_size, step_count, drawing))

    def proposing(
        self,
        assumed: Sequence[int],
        block_size: int,
        step_count: int,  # noqa: ARG002 a token a pass
        drawing: Drawing | None = None,
    ) -> Forwarding[Draft]:
        """Drafts `block_size` tokens after history + `assumed`, as its verifier would choose them.

        Each is the likeliest, or with a `drawing` what the verifier's random number makes of
        this model's distribution.
        Nothing behind an empty history, nor while it `is_behind`; fewer where it is taken back,
        where the answer ends with one, and where more are too unsure to be worth their time.
        Raises `DraftFailed`: OUT_OF_VOCABULARY for ids that are not the model's, UNREACHABLE
        when there is no memory for its keys and values.
        """
        began, self._is_wanted = self._clock(), True
        if not self._text or self.is_behind:
            return Draft(())
        # One that is made ahead takes nobody's time.
        least = 0.0 if assumed or self._is_whole else self._least_chance()
        text = self._text + array("I", assumed)
        drafted: list[int] = []
        kinds: list[int] = []
        passes, chance, has_ended, sharers = 0, 1.0, False, 0
        first_count, first_at = 0, began
        ahead = self._quotes.behind(assumed)
        cache = yield from self._drafting(text)
        try:
            coming = text[cache.length :]
            while (
                self._is_wanted and len(drafted) < block_size and chance >= least and not has_ended
            ):
                position = self._length + len(assumed) + len(drafted)
                room = block_size - len(drafted) - 1
                found = yield from self._next(cache, coming, ahead, room, drawing, position)
                passes += 1
                for token_id, margin in found:
                    drafted.append(token_id)
                    kinds.append(kind_of(margin, is_drawn=drawing is not None))
                    chance *= self._learned.sureness.chance(kinds[-1])
                    has_ended = token_id in self._ends
                    if has_ended:
                        break
                coming = array("I", drafted[-1:])
                if passes == 1:
                    # The first pass takes what is unread in, whatever is drafted.
                    first_count, first_at = len(drafted), self._clock()
                else:
                    sharers += self._forwards.sharers
        finally:
            if cache is not self._cache:
                cache.release()
        self._expected.expect(assumed, drafted, kinds)
        ended_at = self._clock()
        # Each who shares a forward has a part of its time.
        share = (passes - 1) / sharers if sharers else 1.0
        self._learned.worth.drafted(len(drafted) - first_count, share * (ended_at - first_at))
        seconds = ended_at - began
        return Draft(
            tuple(drafted),
            compute_seconds=seconds,
            round_trip_seconds=seconds,
            forward_pass_count=passes,
        )

    def take_back(self) -> None:
        """The draft that is being made ends with its next token."""
        self._is_wanted = False

    def close(self) -> None:
        """Gives back its keys and values. May be repeated."""
        cache, self._cache = self._cache, None
        del self._held[:]
        if cache is not None:
            cache.release()

    def _least_chance(self) -> float:
        """Of all that was drafted to be right, at which one more token is worth its time."""
        length, self._asked_at_length = self._asked_at_length, self._length
        self._learned.worth.asked(0 if length is None else self._length - length)
        return self._learned.worth.least_chance

    @property
    def _unread(self) -> int:
        """Tokens whose keys and values are not there, besides the last one's."""
        return len(self._text) - 1 - _common(self._held, self._text)

    def _move_start(self) -> None:
        """Forgets the tokens that are too many to be read."""
        half = self._most_read // 2
        # Another thread may commit while this one reads.
        with self._moving:
            start = half * max(0, -(-(self._length - self._most_read) // half))
            if start > self._start:
                del self._text[: start - self._start]
                self._start = start

    def _alone(self, forwarding: Forwarding[Result]) -> Result:
        """What comes of it, in forwards that nobody shares."""
        return DraftTurn(Sharer(self._forwards), forwarding)()

    def _drafting(self, text: Tokens) -> Forwarding[KvCache]:
        """A cache of a beginning of `text`, to draft in: its own, or a copy of that."""
        if self._goes_back:
            self._back_to(text[:-1])
            return self._own()
        known = self._back_to(self._text[:-1])
        own = self._own()
        yield from self._take_in(own, self._text[known:-1])
        with _as_fault():
            return own.fork(own.length)

    def _own(self) -> KvCache:
        if self._cache is None:
            capacity = self._most_whole + MOST_BEHIND
            spec = CacheSpec(CacheKind.CONTIGUOUS, capacity=capacity, grows=True)
            with _as_fault():
                self._cache = self._verifier.allocate(spec)
        return self._cache

    def _back_to(self, text: Tokens) -> int:
        """Keeps what its cache has of a beginning of `text`; how many tokens that is."""
        known, cache = _common(self._held, text), self._cache
        if cache is None or known == len(self._held):
            return known
        if known == 0 or known < cache.forkable_from:
            self.close()
            return 0
        with _as_fault():
            # What both would write is copied only while there are both.
            kept = cache.fork(known)
        cache.release()
        self._cache = kept
        del self._held[known:]
        return known

    def _take_in(self, cache: KvCache, token_ids: Tokens) -> Forwarding[None]:
        """Computes keys and values."""
        self._check(token_ids)
        most = min(cache.widest, self._verifier.row_counts[-1])
        for first in range(0, len(token_ids), most):
            yield from self._forward(cache, token_ids[first : first + most], want_logits=False)

    def _next(
        self,
        cache: KvCache,
        token_ids: Tokens,
        ahead: TextAhead,
        room: int,
        drawing: Drawing | None,
        position: int,
    ) -> Forwarding[list[tuple[int, float]]]:
        """The token at `position`, behind these and at the end of `ahead`, where it is put, too.

        And as many of the next as were guessed right, at most `room`; each with how close a choice
        it was. All but the last of them are in the cache then.
        """
        if len(token_ids) > FEW:
            yield from self._take_in(cache, token_ids[:-1])
            token_ids = token_ids[-1:]
        self._check(token_ids)
        quote = ahead.quote(FEW)
        guesses: tuple[int, ...] = ()
        if quote is not None:
            size, most = self._verifier.info.vocabulary_size, min(room, FEW - len(token_ids))
            known = tuple(takewhile(lambda token: token < size, quote.token_ids[:most]))
            chances = self._chances.of(quote, len(known))
            guesses = known[: worth_guessing(chances, self._forwards.row_seconds, len(token_ids))]
        fed = token_ids + array("I", guesses)
        logits = yield from self._forward(cache, fed, want_logits=True)
        if logits is None:
            raise AssertionError("a forward gave no logits, which were asked for")
        found: list[tuple[int, float]] = []
        for place, row in enumerate(logits[len(token_ids) - 1 :]):
            found.append(_chosen(row, drawing, position + place))
            token_id, _ = found[-1]
            ahead.append(token_id)
            if (token_id,) != guesses[place : place + 1]:
                break
        if quote is not None:
            self._chances.seen(quote, [token_id for token_id, _ in found])
        wrong = len(guesses) + 1 - len(found)
        if wrong:
            cache.truncate(cache.length - wrong)
            if cache is self._cache:
                del self._held[-wrong:]
        return found

    def _forward(
        self, cache: KvCache, token_ids: Tokens, *, want_logits: bool
    ) -> Forwarding[Logits | None]:
        try:
            output = yield Feed(cache, token_ids, want_logits)
        except OutOfKvMemory as error:
            # The latest part takes less, and is what is read from now on.
            self._move_start()
            raise _without_memory(error) from error
        if cache is self._cache:
            self._held.extend(token_ids)
        return output.logits

    def _check(self, token_ids: Tokens) -> None:
        size = self._verifier.info.vocabulary_size
        if max(token_ids, default=0) >= size:
            raise DraftFailed(
                DraftFaultKind.OUT_OF_VOCABULARY,
                f"the history has ids outside 0..{size - 1}, the proposer's vocabulary",
            )


def _chosen(row: Logits, drawing: Drawing | None, position: int) -> tuple[int, float]:
    return likeliest_token(row) if drawing is None else drawn_token(row, drawing, position)


def _common(some: Tokens, others: Tokens) -> int:
    """How many tokens both begin with."""
    shorter = min(len(some), len(others))
    if some[:shorter] == others[:shorter]:
        return shorter
    return next(index for index in range(shorter) if some[index] != others[index])


@contextmanager
def _as_fault() -> Iterator[None]:
    """No memory is a fault of the proposer: its verifier goes on alone."""
    try:
        yield
    except OutOfKvMemory as error:
        raise _without_memory(error) from error


def _without_memory(error: OutOfKvMemory) -> DraftFailed:
    return DraftFailed(DraftFaultKind.UNREACHABLE, f"the proposer has no memory: {error}")
