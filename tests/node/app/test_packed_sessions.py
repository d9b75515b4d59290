"""Sessions whose evicted keys and values are packed: one stream, however it came to be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from kakeya import (
    AsyncClient,
    AsyncSession,
    BadRequest,
    KvQuality,
    RestorerInfo,
    Speculation,
)
from kakeya_fleet.engine.codecs.known import codec_named
from scripts.support.placement import when_it_can_be_had
from tests.node.conftest import RunningAgent, StartAgent
from tests.support.breadth import all_wide_but
from tests.support.patience import PATIENCE_SECONDS

HISTORY = tuple((17 * index + index * index // 3) % 96 for index in range(330))
TOKENS = 30
"""A tile leaves while they are said."""
MANY_TOKENS = 60
"""That an archive is lost in the midst of."""
WINDOW = 24
HEAD_DIM, KV_HEADS, LAYERS = 32, 2, 2
CODECS = {KvQuality.HIGH: "kvarn4", KvQuality.ECONOMY: "kvarn3"}


@dataclass
class Home:
    """A verifier that drafts for itself, and two archives."""

    client: AsyncClient
    model: str
    archives: dict[str, RunningAgent]

    async def session(self, quality: str = "high", **options: object) -> AsyncSession:
        asked = {
            "kv_strategy": "restored",
            "sink_tokens": 4,
            "window_tokens": WINDOW,
            "speculation": "off",
            "kv_quality": quality,
        } | options
        opening = partial(self.client.create_session, self.model, **asked)  # type: ignore[arg-type]
        return await when_it_can_be_had(opening)

    async def stream(
        self, cuts: Sequence[int], quality: str, tokens: int = TOKENS, **options: object
    ) -> tuple[int, ...]:
        """What it says after the history, which is appended in pieces that end at `cuts`."""
        async with await self.session(quality, **options) as session:
            start = 0
            for end in (*cuts, len(HISTORY)):
                await session.append(HISTORY[start:end])
                start = end
            return (await session.generate(tokens).collect()).token_ids


@pytest.fixture
async def home(
    start_agent: StartAgent, random_checkpoint: Callable[..., Path]
) -> AsyncIterator[Home]:
    served = [f"verifier={random_checkpoint()}", "proposer=ngram"]
    verifier = await start_agent("v", serve=served)
    peers = [verifier.address]
    agents = [await start_agent(name, serve=["archive=64MiB"], peers=peers) for name in "ab"]
    archives = {agent.node_id: agent for agent in agents}
    async with AsyncClient(verifier.address) as client:
        (model,) = (
            each["model_id"] for each in verifier.ready["models"] if each["role"] == "verifier"
        )
        async with asyncio.timeout(PATIENCE_SECONDS), client.fleet.watch() as events:
            async for _ in events:
                nodes = {node.node_id: node for node in await client.fleet.nodes()}
                if all(each in nodes and nodes[each].round_trip_seconds for each in archives):
                    break
        yield Home(client, model, archives)


async def restorer_of(session: AsyncSession) -> RestorerInfo:
    info = await session.info()
    assert info.restorer is not None
    return info.restorer


async def test_the_history_alone_decides_and_another_quality_says_something_else(
    home: Home,
) -> None:
    ngram = Speculation("ngram")
    streams = {}
    for quality in ("high", "economy"):
        expected = await home.stream((), quality)
        assert await home.stream((1, 63, 64, 200, 290), quality) == expected
        assert await home.stream((150,), quality, speculation=ngram) == expected
        streams[quality] = expected
    exact = await home.stream((), "lossless")
    assert exact == await home.stream((), "lossless", kv_quality=None)
    assert len({exact, *streams.values()}) > 1, "nothing was packed"


async def test_sessions_beside_each_other_and_forks_are_as_alone(home: Home) -> None:
    expected = await home.stream((), "high")
    async with await home.session() as session:
        await session.append(HISTORY)
        forked = await session.fork(len(HISTORY))
        others = asyncio.gather(home.stream((97,), "high"), home.stream((5, 6), "economy"))
        found = await asyncio.gather(
            session.generate(TOKENS).collect(), forked.generate(TOKENS).collect()
        )
        assert [each.token_ids for each in found] == [expected, expected]
        assert (await others)[0] == expected
        await forked.close()


@pytest.mark.parametrize("quality", all_wide_but([KvQuality.HIGH], CODECS))
async def test_an_archive_holds_packed_tiles_and_the_session_says_so(
    home: Home, quality: KvQuality
) -> None:
    async with await home.session(quality) as session:
        await session.append(HISTORY)
        await session.generate(1).collect()
        info = await session.info()
        restorer = await restorer_of(session)
        assert (restorer.quality, restorer.codec) == (quality, CODECS[quality])
        assert info.sink_tokens == 64, "whole tiles"
        # The last query was at position 329: 64 * ((329 - 24 + 1) // 64) positions have left.
        assert restorer.evicted_token_count == 256 - 64
        tile_bytes = codec_named(restorer.codec).tile_bytes(HEAD_DIM)
        # Two segments of 256 positions: 192 positions begin in the first, behind the sink.
        assert restorer.evicted_bytes == LAYERS * KV_HEADS * tile_bytes * (256 // 64)
        assert any(f"packed by {restorer.codec}" in reason for reason in info.plan.reasons)
        # Of float32, in both layers.
        plain = LAYERS * KV_HEADS * 2 * HEAD_DIM * 4
        packed = -(-LAYERS * KV_HEADS * tile_bytes // 64)
        used = home.archives[restorer.node_id].node.ground
        saved = used.metrics.registry.get_sample_value("kakeya_archive_saved_bytes")
        assert saved == (256 - 64) * (plain - packed)


async def test_a_lost_archive_costs_no_token(home: Home) -> None:
    expected = await home.stream((), "high", MANY_TOKENS)
    async with await home.session() as session:
        await session.append(HISTORY)
        used = (await restorer_of(session)).node_id
        generation = session.generate(MANY_TOKENS)
        token_ids: list[int] = []
        async for tokens in generation:
            token_ids.extend(tokens.token_ids)
            if used in home.archives:
                await home.archives.pop(used).stop()
        assert tuple(token_ids) == expected
        assert generation.done is not None
        assert generation.done.restorer_rebuild_count == 1
        assert (await restorer_of(session)).codec == "kvarn4"


async def test_what_cannot_be_packed_is_refused_by_name(home: Home) -> None:
    with pytest.raises(BadRequest, match=r"restorer.quality"):
        await home.session("high", restorer="projection", restorer_model="tiny-dflash")
    plan = await home.client.fleet.plan(
        home.model, kv_strategy="restored", context_tokens=900, kv_quality="economy"
    )
    assert any("packed by kvarn3 (--kv-quality economy)" in reason for reason in plan.reasons)
