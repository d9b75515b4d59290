"""Draft sources of every character, and runners for the verifier's steps."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Never, TypeVar

from kakeya_fleet.engine.contracts.draft import Draft
from kakeya_fleet.engine.contracts.drawing import Drawing
from kakeya_fleet.engine.errors import DraftFailed, DraftFaultKind

Result = TypeVar("Result")


class OracleSource:
    """Knows the whole text; `spoil` may turn its answer into something else."""

    drafts_ahead = True

    def __init__(self, text: Sequence[int], vocabulary: int) -> None:
        self.text = list(text)
        self.vocabulary = vocabulary
        self.call_count = 0
        self.in_flight = 0

    async def draft(
        self,
        history: Sequence[int],
        assumed: Sequence[int],
        block_size: int,
        drawing: Drawing | None = None,
    ) -> Draft:
        self.call_count += 1
        self.in_flight += 1
        try:
            at = len(history) + len(assumed)
            await asyncio.sleep(0)
            return await self.answer(self.text[at : at + block_size], block_size)
        finally:
            self.in_flight -= 1

    async def answer(self, right: list[int], block_size: int) -> Draft:
        return Draft(tuple(right), compute_seconds=1e-6, round_trip_seconds=2e-6)

    def open(self, history: Sequence[int]) -> None:
        """Nothing takes time."""

    def rest(self) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing is open."""


class AdversarialSource(OracleSource):
    """Right at first, wrong at the end: the cut falls at every place in turn."""

    async def answer(self, right: list[int], block_size: int) -> Draft:
        good = self.call_count % (block_size + 1)
        wrong = [(token + 1) % self.vocabulary for token in right[good:]]
        return Draft((*right[:good], *wrong))


class SilentSource(OracleSource):
    """Never answers."""

    async def answer(self, right: list[int], block_size: int) -> Never:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


class FaultySource(OracleSource):
    """Always the same fault."""

    def __init__(self, text: Sequence[int], vocabulary: int, kind: DraftFaultKind) -> None:
        super().__init__(text, vocabulary)
        self.kind = kind

    async def answer(self, right: list[int], block_size: int) -> Draft:
        if self.kind is DraftFaultKind.WRONG_LENGTH:
            return Draft((0,) * (block_size + 1))
        if self.kind is DraftFaultKind.OUT_OF_VOCABULARY:
            return Draft((-1,) if self.call_count % 2 else (self.vocabulary,))
        if self.kind is DraftFaultKind.DEADLINE:
            await asyncio.Event().wait()
        raise DraftFailed(self.kind, "as scripted")


class ChaoticSource(OracleSource):
    """Good, wrong, short, late, malformed and failing, at random."""

    def __init__(self, text: Sequence[int], vocabulary: int, seed: int) -> None:
        super().__init__(text, vocabulary)
        self.random = random.Random(seed)

    async def answer(self, right: list[int], block_size: int) -> Draft:
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(0)
        whim = self.random.randrange(8)
        if whim == 0:
            raise DraftFailed(self.random.choice(list(DraftFaultKind)), "a whim")
        if whim == 1:
            return Draft((self.vocabulary + self.random.randrange(9),))
        if whim == 2:
            return Draft(tuple(right) * 2 + (0,) * block_size)
        if whim == 3:
            return Draft(tuple(right[: self.random.randrange(block_size + 1)]))
        if whim == 4:
            return Draft(tuple(self.random.randrange(self.vocabulary) for _ in right))
        return Draft(tuple(right))


class BrokenSource(OracleSource):
    """Raises what no proposer's fault is."""

    async def answer(self, right: list[int], block_size: int) -> Never:
        raise ZeroDivisionError("a defect of the source")


async def yielding(step: Callable[[], Result], /) -> Result:
    """A runner that lets every other task go first, before and after."""
    await asyncio.sleep(0)
    result = step()
    await asyncio.sleep(0)
    return result


class ThreadRunner:
    """One thread; a cancelled caller withdraws a waiting step and awaits a running one."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1)

    async def __call__(self, step: Callable[[], Result], /) -> Result:
        submitted = self._executor.submit(step)
        waiting = asyncio.wrap_future(submitted)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            if not submitted.cancel():
                await asyncio.wait({waiting})
            raise

    def close(self) -> None:
        self._executor.shutdown()
