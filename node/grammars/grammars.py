"""The grammars of a node: each compiled once for a tokenizer, and kept for a while."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from kakeya_fleet.engine.errors import GrammarRefused
from kakeya_fleet.node.grammars.compiling import compiled
from kakeya_fleet.node.grammars.deep_thread import in_deep_thread
from kakeya_fleet.node.grammars.grammar import Grammar
from kakeya_fleet.node.grammars.matcher_guide import KnownIds, MatcherGuide
from kakeya_fleet.node.grammars.vocabulary import ModelTokenizer, read_vocabulary
from kakeya_fleet.node.rpc.refusals import TooBusy

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

Made = TypeVar("Made")

COMPILED_AT_ONCE = 2
WAITING_AT_MOST = 32
COMPILE_SECONDS = 10.0
"""How long a generation waits for its grammar; a turn to be compiled included."""
KEPT_GRAMMARS = 16
"""Each up to 32 MB, most of them below one."""
KEPT_VOCABULARIES = 4
PIECE = 256
"""Tokens that are taken between two looks at whether the caller is still there."""


class Grammars:
    """Belongs to the event loop's thread."""

    def __init__(self, *, compile_seconds: float = COMPILE_SECONDS) -> None:
        self._compile_seconds = compile_seconds
        self._turns = asyncio.Semaphore(COMPILED_AT_ONCE)
        self._waiting = 0
        self._matchers: _Kept[LLMatcher] = _Kept(KEPT_GRAMMARS)
        self._vocabularies: _Kept[LLTokenizer] = _Kept(KEPT_VOCABULARIES)

    async def guide(self, grammar: Grammar, tokenizer: ModelTokenizer) -> MatcherGuide:
        """A guide of one generation's own, which has taken nothing.

        Raises `GrammarRefused`, also for one that takes too long, `TokenizerNotFound`,
        and `TooBusy` where too many wait to be compiled.
        """
        key = tokenizer.digest, grammar
        try:
            async with asyncio.timeout(self._compile_seconds):
                vocabulary = await self._vocabularies.get(
                    tokenizer.digest, partial(self._made, partial(read_vocabulary, tokenizer))
                )
                matcher = await self._matchers.get(
                    key, partial(self._made, partial(compiled, grammar, vocabulary))
                )
        except TimeoutError:
            raise grammar.refused(
                f"was not compiled within {self._compile_seconds:g} s; make it smaller"
            ) from None
        known = KnownIds(
            tokenizer.vocabulary_size, vocabulary.vocab_size, frozenset(vocabulary.eos_tokens)
        )
        return MatcherGuide(matcher.deep_copy(), known)

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


async def go_on(guide: MatcherGuide, said: Sequence[int]) -> None:
    """Has `guide` take what its generation said elsewhere, off the event loop.

    Raises `GrammarRefused` when the grammar does not allow it.
    """
    for start in range(0, len(said), PIECE):
        await asyncio.to_thread(guide.take, said[start : start + PIECE])


class _Kept(Generic[Made]):
    """What was made by key, the latest asked for; refusals too, which a second try would repeat."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tasks: OrderedDict[Hashable, asyncio.Future[Made]] = OrderedDict()

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Made]]) -> Made:
        """What is kept, or made now; those who ask meanwhile wait for the same.

        It is made to its end when nobody waits any more. Raises what `make` raises.
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
        """What another time may not fail is tried again."""
        lasts = not task.cancelled() and isinstance(task.exception(), GrammarRefused | None)
        if not lasts and self._tasks.get(key) is task:
            del self._tasks[key]
