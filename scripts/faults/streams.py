"""Generations with the moments of their tokens, and a fault in their middle."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from kakeya import AsyncClient, AsyncSession, GenerationDone, NoPlacement, Speculation
from kakeya.options import SessionOptions, SpeculationChoice

PROMPT = tuple(range(300, 340)) * 3
"""With repetitions, so that prompt lookup has something to draft."""
TOKENS = 400
WINDOW: SessionOptions = {"sink_tokens": 4, "window_tokens": 16}
DRAFT_DEADLINE_SECONDS = 0.25
"""A node's default: the longest wait for one draft."""


@dataclass
class Stream:
    """Tokens, when each message of them came, and how it ended."""

    token_ids: list[int] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)
    struck_at: float = 0.0
    done: GenerationDone | None = None

    @property
    def gaps(self) -> list[float]:
        """Seconds between one message and the next."""
        return [b - a for a, b in pairwise(self.moments)]

    @property
    def longest_gap_after_the_fault(self) -> float:
        """Seconds; from the fault on."""
        after = [self.struck_at, *(each for each in self.moments if each > self.struck_at)]
        return max((b - a for a, b in pairwise(after)), default=0.0)


async def streamed(
    session: AsyncSession, tokens: int, strike: Callable[[], object] | None = None, at: int = 0
) -> Stream:
    """One generation; `strike` is called once `at` tokens have come."""
    stream = Stream()
    generation = session.generate(tokens)
    async for message in generation:
        stream.token_ids.extend(message.token_ids)
        stream.moments.append(time.monotonic())
        if strike is not None and len(stream.token_ids) >= at:
            strike()
            stream.struck_at = time.monotonic()
            strike = None
    stream.done = generation.done
    if strike is not None:
        raise AssertionError("the generation ended before the fault")
    return stream


async def opened(
    client: AsyncClient,
    speculation: SpeculationChoice = "off",
    prompt: Sequence[int] = PROMPT,
    **options: object,
) -> AsyncSession:
    """A session with a prompt, once the proposer that it names can be had."""
    opening = partial(
        client.create_session,
        "tiny",
        speculation=speculation,
        tokens=prompt,
        **WINDOW | options,  # type: ignore[arg-type]
    )
    async with asyncio.timeout(60.0):
        while True:
            try:
                return await opening()
            except NoPlacement:
                await asyncio.sleep(0.1)


async def alone(client: AsyncClient, tokens: int = TOKENS) -> Stream:
    """What a verifier says without drafts."""
    async with await opened(client) as session:
        return await streamed(session, tokens)


def drafted_by(node_id: str, model: str = "ngram", block_size: int = 4) -> Speculation:
    """Drafts of a fixed size of that node: every block asks for one."""
    return Speculation(model, node_id=node_id, block_size=block_size)


async def knows_the_way(client: AsyncClient, node_id: str) -> None:
    """Waits until a verifier's node has measured the way to a proposer."""
    async with asyncio.timeout(60.0):
        while True:
            nodes = await client.fleet.nodes()
            if any(node.node_id == node_id and node.round_trip_seconds for node in nodes):
                return
            await asyncio.sleep(0.05)
