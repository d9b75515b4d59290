"""Sessions of one node share its verifier's forwards, and none waits for another's whole prompt."""

from __future__ import annotations

import asyncio

import pytest

from tests.support import calls

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [(7 * index + index * index // 5) % 96 for index in range(40)]
LONG = [(11 * index + index * index // 13) % 96 for index in range(3900)]


class Watched:
    """Which sessions' tokens each forward of a node's verifier has."""

    def __init__(self, node) -> None:
        (self.served,) = node.roles.verifiers.values()
        self.forwards: list[dict[int, int]] = []
        self._honest = self.served.verifier.forward_batch
        self.served.verifier.forward_batch = self.forward_batch

    def forward_batch(self, feeds):
        self.forwards.append({id(feed.cache): len(feed.token_ids) for feed in feeds})
        return self._honest(feeds)


async def test_an_answer_goes_on_while_a_long_prompt_is_read(neighbourhood, checkpoint) -> None:
    node = await neighbourhood.start("fair", f"verifier={checkpoint}")
    client = calls.Caller(node.channel)
    alone = await client.open(window=64)
    await client.append(alone, PROMPT)
    expected = (await client.generate(alone, 40)).token_ids
    watched = Watched(node)
    reading, answers = await client.open(window=64), [await client.open(window=64) for _ in "ab"]
    await asyncio.gather(*(client.append(answer, PROMPT) for answer in answers))
    prompt = asyncio.create_task(client.append(reading, LONG))
    streams = await asyncio.gather(*(client.generate(answer, 40) for answer in answers))
    assert not prompt.done(), "the answers did not wait for the prompt"
    assert [stream.token_ids for stream in streams] == [expected, expected]
    assert await prompt == len(LONG)
    rows = [sum(sizes.values()) for sizes in watched.forwards]
    assert max(rows) <= watched.served.verifier.row_counts[-1]
    shared = [sizes for sizes in watched.forwards if len(sizes) > 1]
    assert len(shared) >= 20, "an answer's tokens and the prompt's in one forward"
    await node.stop()
