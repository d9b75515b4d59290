"""A proposer without a model: prompt lookup.

Saxena, "Prompt lookup decoding" (2023): the longest n-gram at the end of the
text that occurred before, at its most recent earlier occurrence, and what
followed it there is the draft. An index kept up to date at each commit stands
in for the search.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kakeya_fleet.engine.contracts.draft import Draft, EagerDraftState
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.contracts.proposer_info import NGRAM, ProposerInfo
from kakeya_fleet.engine.proposers.names import NGRAM as NGRAM_NAME

MODEL_ID = NGRAM_NAME
# Tokens that are compared; beyond five, Python source gained under 0.2 % more
# tokens a verify forward. A single one still gained 10 %: a forward costs the
# same with a draft or without.
LONGEST_GRAM = 5
SHORTEST_GRAM = 1
# N-grams that end further back are forgotten. With about 120 bytes an entry a
# state stays below LONGEST_GRAM * INDEXED_TOKENS * 120 = 20 MB, plus 4 bytes
# for each token of the history.
INDEXED_TOKENS = 32_768

# Hash of an n-gram -> position behind its most recent occurrence.
_Index = dict[int, int]


class NgramDraftState(EagerDraftState):
    """One session's tokens and the index of their n-grams.

    `commit` takes O(`LONGEST_GRAM`) a token, `propose` O(`LONGEST_GRAM`) for
    each assumed token and O(1) for each drafted one, whatever the history's
    length.
    """

    def __init__(
        self,
        prefix: Sequence[int],
        clock: Callable[[], float],
        indexed_tokens: int,
        shortest: int = SHORTEST_GRAM,
    ) -> None:
        """Only ends of at least `shortest` tokens, 1 to `LONGEST_GRAM`, are looked up."""
        self._clock = clock
        self._shortest = shortest
        self._indexed_tokens = indexed_tokens
        self._tokens = array("I")
        self._indices: list[_Index] = [{} for _ in range(LONGEST_GRAM + 1)]
        self.commit(prefix)

    @property
    def length(self) -> int:
        """Tokens of the history known here."""
        return len(self._tokens)

    def commit(self, token_ids: Sequence[int]) -> None:
        """Appends committed tokens, ids of 0 to 2**32 - 1."""
        for token_id in token_ids:
            # An n-gram is indexed once a token follows it: what is found
            # always has a continuation, and is never the end itself.
            self._index_end(len(self._tokens))
            self._tokens.append(token_id)
            self._forget_end(len(self._tokens) - 1 - self._indexed_tokens)

    def propose(
        self,
        assumed: Sequence[int],
        block_size: int,
        step_count: int,  # noqa: ARG002 no steps here
        drawing: Drawing | None = None,  # noqa: ARG002 nor a distribution
    ) -> Draft:
        """Drafts `block_size` tokens after history + `assumed`, or none.

        The same as after committing `assumed`, which is not kept. A
        continuation that runs into the end of the text goes on with the draft
        itself, so that periodic text is drafted to the full length.
        """
        began = self._clock()
        quote = self.behind(assumed).quote(block_size)
        seconds = self._clock() - began
        drafted = () if quote is None else quote.token_ids
        return Draft(drafted, compute_seconds=seconds, round_trip_seconds=seconds)

    def behind(self, assumed: Sequence[int]) -> TextAhead:
        """The history, and what may follow it; until the next commit."""
        return TextAhead(self._tokens, self._indices, self._shortest, assumed)

    def _index_end(self, end: int) -> None:
        for size, key in self._grams_before(end):
            self._indices[size][key] = end

    def _forget_end(self, end: int) -> None:
        for size, key in self._grams_before(end):
            if self._indices[size].get(key) == end:
                del self._indices[size][key]

    def _grams_before(self, end: int) -> Iterator[tuple[int, int]]:
        """Sizes and hashes of the n-grams that end before position `end`, which may be negative.

        64 bits each; a collision is seen where the tokens are compared.
        """
        last = tuple(self._tokens[max(0, end - LONGEST_GRAM) : max(0, end)])
        for size in range(self._shortest, len(last) + 1):
            yield size, hash(last[-size:])


@dataclass(frozen=True, slots=True)
class Quote:
    """What followed where the last `matched` tokens stood together before."""

    matched: int
    token_ids: tuple[int, ...]


class TextAhead:
    """A history and tokens that may follow it, as if they were committed, without copying it."""

    __slots__ = ("_added", "_history", "_indices", "_shortest", "_tail")

    def __init__(
        self,
        history: array[int],
        indices: Sequence[Mapping[int, int]],
        shortest: int,
        assumed: Sequence[int],
    ) -> None:
        self._history = history
        self._indices = indices
        self._shortest = shortest
        self._tail: list[int] = []
        self._added: list[_Index] = [{} for _ in range(LONGEST_GRAM + 1)]
        for token_id in assumed:
            self.append(token_id)

    def __len__(self) -> int:
        return len(self._history) + len(self._tail)

    def append(self, token_id: int) -> None:
        """Assumes one token more."""
        end = len(self)
        last = self._ending_at(end, min(LONGEST_GRAM, end))
        for size in range(self._shortest, len(last) + 1):
            self._added[size][hash(last[-size:])] = end
        self._tail.append(token_id)

    def quote(self, count: int) -> Quote | None:
        """`count` tokens behind the latest occurrence of the longest known end; none if it is new.

        A continuation that runs into the end of the text goes on with itself.
        """
        end = len(self)
        last = self._ending_at(end, min(LONGEST_GRAM, end))
        for size in range(len(last), self._shortest - 1, -1):
            gram = last[-size:]
            key = hash(gram)
            found = self._added[size].get(key, self._indices[size].get(key))
            if found is not None and self._ending_at(found, size) == gram:
                return Quote(size, self._from(found, count))
        return None

    def _from(self, start: int, count: int) -> tuple[int, ...]:
        base, end = len(self._history), len(self)
        found: list[int] = []
        for place in range(start, start + count):
            if place >= end:
                found.append(found[place - end])
            else:
                found.append(self._history[place] if place < base else self._tail[place - base])
        return tuple(found)

    def _ending_at(self, end: int, size: int) -> tuple[int, ...]:
        """The `size` tokens before position `end`."""
        base = len(self._history)
        return (
            *self._history[min(end - size, base) : min(end, base)],
            *self._tail[max(end - size - base, 0) : max(end - base, 0)],
        )


class NgramProposer:
    """Prompt lookup for any tokenizer.

    Matches are found among the latest `indexed_tokens` of a session.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        indexed_tokens: int = INDEXED_TOKENS,
    ) -> None:
        self._clock = clock
        self._indexed_tokens = indexed_tokens

    @property
    def model_id(self) -> str:
        """The name that requests use."""
        return MODEL_ID

    @property
    def info(self) -> ProposerInfo:
        """A lookup without weights, for any tokenizer."""
        return ProposerInfo(MODEL_ID, NGRAM)

    @property
    def encoder(self) -> None:
        """Needs no context vectors."""
        return

    def open(self, prefix: Sequence[int]) -> NgramDraftState:
        """State for one session whose history is `prefix`."""
        return NgramDraftState(prefix, self._clock, self._indexed_tokens)
