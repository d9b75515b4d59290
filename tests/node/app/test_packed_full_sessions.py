"""`full` sessions that pack what is behind their latest positions, on their own node."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from kakeya import (
    AsyncClient,
    AsyncSession,
    BadRequest,
    KvQuality,
    KvStrategy,
    OutOfKvMemory,
    Speculation,
)
from kakeya_fleet.engine.codecs.known import codec_named
from kakeya_fleet.node.watch.event_log import EventKind
from scripts.support.placement import when_it_can_be_had
from tests.node.conftest import Scrape, StartAgent
from tests.support.breadth import wide

HISTORY = tuple((17 * index + index * index // 3) % 96 for index in range(430))
TOKENS = 30
"""A tile is packed while they are said, at 447 positions."""
HEAD_DIM, KV_HEADS, LAYERS = 32, 2, 2


@dataclass
class Home:
    """A verifier that drafts for itself, and nobody else."""

    client: AsyncClient
    model: str
    metrics_address: str

    async def session(self, quality: str | None = "high", **options: object) -> AsyncSession:
        asked = {"kv_strategy": "full", "speculation": "off", "kv_quality": quality} | options
        opening = partial(self.client.create_session, self.model, **asked)  # type: ignore[arg-type]
        return await when_it_can_be_had(opening)

    async def stream(
        self, cuts: Sequence[int], quality: str | None, **options: object
    ) -> tuple[int, ...]:
        """What it says after the history, which is appended in pieces that end at `cuts`."""
        async with await self.session(quality, **options) as session:
            start = 0
            for end in (*cuts, len(HISTORY)):
                await session.append(HISTORY[start:end])
                start = end
            return (await session.generate(TOKENS).collect()).token_ids


@pytest.fixture
async def home(
    start_agent: StartAgent, random_checkpoint: Callable[..., Path]
) -> AsyncIterator[Home]:
    agent = await start_agent("v", serve=[f"verifier={random_checkpoint()}", "proposer=ngram"])
    (model,) = (each["model_id"] for each in agent.ready["models"] if each["role"] == "verifier")
    async with AsyncClient(agent.address) as client:
        yield Home(client, model, agent.ready["metrics_address"])


async def test_the_history_alone_decides_and_another_quality_says_something_else(
    home: Home,
) -> None:
    streams = {}
    for quality in ("high", "economy"):
        expected = await home.stream((), quality)
        assert await home.stream((1, 63, 64, 200, 390), quality) == expected
        drafted = await home.stream((150,), quality, speculation=Speculation("ngram"))
        assert drafted == expected
        # Whose memory is taken at once.
        assert await home.stream((97,), quality, max_history_tokens=600) == expected
        streams[quality] = expected
    exact = await home.stream((), "lossless")
    assert exact == await home.stream((), None)
    assert len({exact, *streams.values()}) > 1, "nothing was packed"


async def test_more_of_the_latest_positions_may_stay_as_they_lie(home: Home) -> None:
    """As many bytes more, and a stream of its own, whatever the cuts and whoever drafts."""
    wide: dict[str, object] = {"window_tokens": 200}
    expected = await home.stream((), "economy", **wide)
    assert await home.stream((1, 63, 64, 200, 390), "economy", **wide) == expected
    drafted = await home.stream((150,), "economy", speculation=Speculation("ngram"), **wide)
    assert drafted == expected
    # All of what is said is seen as it lies.
    whole = await home.stream((), "economy", window_tokens=len(HISTORY) + TOKENS)
    assert whole == await home.stream((), "lossless")
    kept = {}
    for asked, window in ((16, 64), (64, 64), (200, 200)):
        async with await home.session("economy", window_tokens=asked) as session:
            await session.append(HISTORY)
            info = await session.info()
            kept[asked] = info.kv_bytes
            assert info.window_tokens == window
            assert any(f"the latest {window} positions" in each for each in info.plan.reasons)
    assert kept[16] == kept[64] < kept[200]


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


async def test_a_session_that_goes_back_has_the_stream_of_its_text(home: Home) -> None:
    expected = await home.stream((), "high")
    async with await home.session() as session:
        await session.append(HISTORY)
        await session.generate(20).collect()
        # Before what is packed, and within the window.
        for kept in (100, len(HISTORY) - 3):
            await session.rewind(kept)
            await session.append(HISTORY[kept:])
            assert (await session.generate(TOKENS).collect()).token_ids == expected


@pytest.mark.parametrize(
    ("quality", "codec"), [wide(KvQuality.HIGH, "kvarn4"), (KvQuality.ECONOMY, "kvarn3")]
)
async def test_session_and_node_say_what_is_packed(
    home: Home, quality: KvQuality, codec: str, scrape: Scrape
) -> None:
    async with await home.session(None) as plain, await home.session(quality) as session:
        for each in (plain, session):
            await each.append(HISTORY)
            await each.generate(1).collect()
        info = await session.info()
        assert info.kv_strategy is KvStrategy.FULL
        assert info.resident_token_count == len(HISTORY)
        assert info.forgotten_token_count == 0
        restorer = info.restorer
        assert restorer is not None
        assert (restorer.quality, restorer.codec) == (quality, codec)
        # The last query was at position 429: 64 * ((429 - 64 + 1) // 64) positions have left.
        assert restorer.evicted_token_count == 320 - 64
        tile_bytes = codec_named(codec).tile_bytes(HEAD_DIM)
        assert restorer.evicted_bytes == LAYERS * KV_HEADS * tile_bytes * (512 // 64)
        position = LAYERS * KV_HEADS * 2 * HEAD_DIM * 4
        resident = position * 256
        assert info.kv_bytes == restorer.evicted_bytes + resident
        assert any(f"packed by {codec}" in reason for reason in info.plan.reasons)
        assert (await home.session("lossless")) is not None
        told = await scrape(home.metrics_address)
        saved = (320 - 64) * position - restorer.evicted_bytes
        packed = re.findall(r"^kakeya_kv_(?:packed|saved)_bytes (\S+)", told, re.MULTILINE)
        assert [float(each) for each in packed] == [restorer.evicted_bytes, saved]


async def test_short_of_memory_a_session_that_allows_it_is_packed_and_says_so(
    home: Home, start_agent: StartAgent, random_checkpoint: Callable[..., Path], scrape: Scrape
) -> None:
    """Its history fits packed alone; one that does not allow that is refused."""
    expected = await home.stream((), "high")
    position = LAYERS * KV_HEADS * 2 * HEAD_DIM * 4
    packed = LAYERS * KV_HEADS * codec_named("kvarn4").tile_bytes(HEAD_DIM) * (512 // 64)
    small = await start_agent(
        "small",
        serve=[f"verifier={random_checkpoint()}"],
        kv_budget_bytes=256 * position + packed,
    )
    async with AsyncClient(small.address) as client:
        beside = replace(home, client=client)
        async with await beside.session("lossless") as session:
            await session.append(HISTORY[:200])
            done = (await session.generate(1).collect()).done
            assert done is not None
            assert done.kv_quality is KvQuality.LOSSLESS
            with pytest.raises(OutOfKvMemory):
                await session.append(HISTORY[200:])
        async with await beside.session(None, kv_quality_when_short="high") as session:
            assert any(
                "packed by kvarn4 (--kv-quality-when-short high)" in each
                for each in (await session.info()).plan.reasons
            )
            await session.append(HISTORY[:200])
            assert (await session.info()).restorer is None
            await session.append(HISTORY[200:])
            found = await session.generate(TOKENS).collect()
            assert found.token_ids == expected
            assert found.done is not None
            assert found.done.kv_quality is KvQuality.HIGH
            restorer = (await session.info()).restorer
            assert restorer is not None
            assert (restorer.quality, restorer.codec) == (KvQuality.HIGH, "kvarn4")
    (event,) = [
        each for each in small.node.activity.events.latest if each.kind is EventKind.SESSION_SHRUNK
    ]
    assert "is packed by kvarn4 from now on" in event.message
    told = await scrape(small.ready["metrics_address"])
    assert re.search(r"^kakeya_sessions_shrunk_total 1.0$", told, re.MULTILINE)


async def test_more_sessions_fit_than_unpacked(home: Home) -> None:
    """Of those whose memory is taken at once: it is the packed bytes that are admitted."""
    plan = await home.client.fleet.plan(home.model, kv_strategy="full", context_tokens=1000)
    packed = await home.client.fleet.plan(
        home.model, kv_strategy="full", context_tokens=1000, kv_quality="high"
    )
    # Of float32: 1,024 positions, or 256 and 1,024 packed ones.
    assert packed.kv_bytes < 0.45 * plan.kv_bytes
    assert any("stays on the verifier and is packed by kvarn4" in each for each in packed.reasons)


async def test_what_is_meant_for_archives_is_refused(home: Home) -> None:
    for options in (
        {"restorer": "archive"},
        {"restorer": "projection", "restorer_model": "tiny-dflash"},
        {"restorer_node_id": "abc"},
    ):
        with pytest.raises(BadRequest, match="takes the quality alone"):
            await home.session(**options)
    with pytest.raises(BadRequest, match="restored or full"):
        await home.session(kv_strategy="sink_window")


async def test_what_is_not_packed_when_memory_is_short_is_refused(home: Home) -> None:
    with pytest.raises(BadRequest, match="no less exact"):
        await home.session("high", kv_quality_when_short="high")
    with pytest.raises(BadRequest, match="ask for kv_strategy full"):
        await home.session(None, kv_quality_when_short="high", kv_strategy="restored")
