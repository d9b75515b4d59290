"""How many tokens a block drafts where the verifier takes many."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.sampling.choice import GREEDY
from kakeya_fleet.engine.sessions.session import Session
from kakeya_fleet.engine.speculation.generation import FIRST_DRAFTED
from tests.support import draft_sources as sources
from tests.support import hash_verifier as hashing
from tests.support import small_verifiers, streams

PROMPT = [(7 * index) % 48 for index in range(50)]
RING = CacheSpec(CacheKind.SINK_WINDOW, sink=2, window=6)


@pytest.mark.parametrize(("block_size", "first"), [(0, FIRST_DRAFTED), (31, 31), (4, 4)])
async def test_all_but_an_answers_first_block_are_as_wide_as_the_verifier_takes(
    block_size: int, first: int
) -> None:
    verifier = hashing.HashVerifier(width=32)
    expected = hashing.expected_stream(PROMPT, RING, 100, GREEDY)
    session = Session(verifier, verifier.allocate(RING))
    session.append(PROMPT)
    source = sources.OracleSource([*PROMPT, *expected], hashing.VOCABULARY)
    asked = streams.parameters(100, block_size=block_size)
    tokens, done = await streams.collect(session, source, asked, run=sources.yielding)
    assert tokens == expected
    drafted = [block.drafted_count for block in done.timeline]
    # The last one drafts what is left.
    assert drafted[:-1] == [first] + [block_size or 31] * (len(drafted) - 2)


async def test_a_ring_with_less_room_gets_no_wider_blocks(
    random_checkpoint: Callable[..., Path],
) -> None:
    verifier = small_verifiers.small_verifier(small_verifiers.COMPILED, random_checkpoint)
    spec = CacheSpec(CacheKind.SINK_WINDOW, sink=1, window=47)
    alone = Session(verifier, verifier.allocate(spec))
    drafting = Session(verifier, verifier.allocate(spec))
    assert drafting.width == 17 < verifier.info.width
    for session in (alone, drafting):
        session.append(PROMPT)
    expected, _ = await streams.collect(alone, None, streams.parameters(120), run=sources.yielding)
    source = sources.OracleSource([*PROMPT, *expected], verifier.info.vocabulary_size)
    tokens, done = await streams.collect(
        drafting, source, streams.parameters(120), run=sources.yielding
    )
    assert tokens == expected
    assert {block.drafted_count for block in done.timeline[1:-1]} == {16}
    assert all(block.accepted_count == block.drafted_count for block in done.timeline)
