"""The grammars of a node: compiled for each generation anew, of one trie a tokenizer.

A matcher that was copied would be cheaper, and shares with its copies the automaton that both
build as they go: what one generation made it grow to would count against the bounds of others.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Generic, TypeVar

from kakeya_fleet.engine.errors import GrammarRefused
from kakeya_fleet.node.grammars.compiling import compiled
from kakeya_fleet.node.grammars.deep_thread import in_deep_thread
from kakeya_fleet.node.grammars.grammar import Grammar
from kakeya_fleet.node.grammars.matcher_guide import KnownIds, MatcherGuide
from kakeya_fleet.node.grammars.vocabulary import ModelTokenizer, read_vocabulary
from kakeya_fleet.node.rpc.refusals import TooBusy

if TYPE_CHECKING:
    from llguidance import LLTokenizer

Made = TypeVar("Made")

COMPILED_AT_ONCE = 2
WAITING_AT_MOST = 32
COMPILE_SECONDS = 10.0
"""How long a generation waits for its grammar; a turn to be compiled included."""
KEPT_REFUSALS = 256
"""Of grammars that cannot be compiled: asked for again, they are not tried again."""
KEPT_VOCABULARIES = 4
PIECE = 256
"""Tokens that are taken between two looks at whether the caller is still there."""


class Grammars:
    """Belongs to the event loop's thread."""

    def __init__(self, *, compile_seconds: float = COMPILE_SECONDS) -> None:
        self._compile_seconds = compile_seconds
        self._turns = asyncio.Semaphore(COMPILED_AT_ONCE)
        self._waiting = 0
        self._vocabularies: _Kept[LLTokenizer] = _Kept(KEPT_VOCABULARIES)
        self._refusals: OrderedDict[Hashable, str] = OrderedDict()

    async def guide(self, grammar: Grammar, tokenizer: ModelTokenizer) -> MatcherGuide:
        """A guide of one generation's own, which has taken nothing.

        Raises `GrammarRefused`, also for one that takes too long, `TokenizerNotFound`,
        and `TooBusy` where too many wait to be compiled.
        """
        key = tokenizer.digest, grammar.kind, sha256(grammar.text.encode()).digest()
        if key in self._refusals:
            self._refusals.move_to_end(key)
            raise GrammarRefused(self._refusals[key], kind=grammar.kind.value)
        try:
            async with asyncio.timeout(self._compile_seconds):
                vocabulary = await self._vocabularies.get(
                    tokenizer.digest, partial(self._made, partial(read_vocabulary, tokenizer))
                )
                compiling = asyncio.ensure_future(
                    self._made(partial(compiled, grammar, vocabulary))
                )
                # A thread cannot be stopped: its place is free when it is done.
                compiling.add_done_callback(_ended)
                matcher = await asyncio.shield(compiling)
        except TimeoutError:
            raise grammar.refused(
                f"was not compiled within {self._compile_seconds:g} s; make it smaller"
            ) from None
        except GrammarRefused as refused:
            self._refusals[key] = str(refused)
            while len(self._refusals) > KEPT_REFUSALS:
                self._refusals.popitem(last=False)
            raise
        known = KnownIds(
            tokenizer.vocabulary_size, vocabulary.vocab_size, frozenset(vocabulary.eos_tokens)
        )
        return MatcherGuide(matcher, known)

    async def _made(self, make: Callable[[], Made]) -> Made:
        """What `make` returns, from a thread of its own, of which few run at a time."""
        if self._waiting >= WAITING_AT_MOST:
            raise TooBusy(
                f"{WAITING_AT_MOST} grammars wait to be compiled", retry_after_seconds="1"
            )
        self._waiting += 1
        try:
            async with self._turns:
                return await in_deep_thread(make)
        finally:
            self._waiting -= 1


def _ended(compiling: asyncio.Future[Made]) -> None:
    """Nobody may be left to hear of it."""
    if not compiling.cancelled():
        compiling.exception()


async def go_on(guide: MatcherGuide, said: Sequence[int]) -> None:
    """Has `guide` take what its generation said elsewhere, off the event loop.

    Raises `GrammarRefused` when the grammar does not allow it.
    """
    for start in range(0, len(said), PIECE):
        await asyncio.to_thread(guide.take, said[start : start + PIECE])


class _Kept(Generic[Made]):
    """What was made by key, the latest asked for."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tasks: OrderedDict[Hashable, asyncio.Future[Made]] = OrderedDict()

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Made]]) -> Made:
        """What is kept, or made now; those who ask meanwhile wait for the same.

        It is made to its end when nobody waits any more. Raises what `make` raises, and
        makes it anew the next time.
        """
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.ensure_future(make())
            task.add_done_callback(partial(self._forget_failure, key))
            while len(self._tasks) > self._most:
                self._tasks.popitem(last=False)
        self._tasks.move_to_end(key)
        return await asyncio.shield(task)

    def _forget_failure(self, key: Hashable, task: asyncio.Future[Made]) -> None:
        failed = task.cancelled() or task.exception() is not None
        if failed and self._tasks.get(key) is task:
            del self._tasks[key]
