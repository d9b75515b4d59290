"""Codecs that were measured, over whole nodes: resumed sessions, restarts, resets, bad files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kakeya import (
    AsyncClient,
    KvQuality,
    MeasuredCodec,
    ModelNotFound,
    NotLoopback,
)
from kakeya_fleet.fleet.placement.codec_ladder import PackedQuality
from kakeya_fleet.node.app.settings import NodeSettings
from kakeya_fleet.node.config.state_directory import CODECS_FILE
from kakeya_fleet.node.membership import network
from kakeya_fleet.node.planning.codec_ledger import CodecLedger, model_key
from kakeya_fleet.node.planning.codec_store import ModelKey
from kakeya_fleet.node.watch.event_log import EventKind
from tests.node.conftest import Eventually, RunningAgent, StartAgent

HISTORY = tuple((17 * index + index * index // 3) % 96 for index in range(400))
TOKENS = 60
BAD = [0.9] * 16
"""Nats that no quality bears."""


@pytest.fixture
def spec(random_checkpoint: Callable[..., Path]) -> str:
    return f"verifier={random_checkpoint()}"


def measured_by(agent: RunningAgent) -> tuple[CodecLedger, ModelKey, str]:
    """Its ledger, and the key and the id of its model."""
    role = agent.node.roles.verifier
    ((model_id, served),) = role.by_model.items()
    return role.codecs, model_key(served.verifier.info), model_id


async def codecs_of(client: AsyncClient) -> dict[str, MeasuredCodec]:
    return {each.codec: each for each in await client.fleet.codecs()}


async def test_a_session_that_goes_on_elsewhere_keeps_its_codec_and_its_stream(
    start_agent: StartAgent, spec: str, eventually: Eventually
) -> None:
    first = await start_agent("a", serve=[spec])
    second = await start_agent("b", serve=[spec], peers=[first.address])
    ledger, model, model_id = measured_by(second)
    assert await ledger.record(model, "kvarn4", BAD)
    asked = {"kv_strategy": "full", "speculation": "off", "kv_quality": "high"}
    async with AsyncClient(second.address) as client:
        session = await client.create_session(model_id, tokens=HISTORY, **asked)  # type: ignore[arg-type]
        other = (await session.generate(TOKENS).collect()).token_ids
        assert (await session.info()).restorer.codec == "int8"  # type: ignore[union-attr]

    async def known() -> bool:
        async with AsyncClient(first.address) as client:
            return len(await client.fleet.nodes()) == 2

    await eventually(known)
    async with AsyncClient(first.address) as client:
        whole = await client.create_session(model_id, tokens=HISTORY, **asked)  # type: ignore[arg-type]
        expected = (await whole.generate(TOKENS).collect()).token_ids
        assert expected != other, "the codecs say the same"
        session = await client.create_session(
            model_id,
            tokens=HISTORY,
            resume=True,
            **asked,  # type: ignore[arg-type]
        )
        begun = (await session.generate(10).collect()).token_ids
        await first.leave()
        rest = (await session.generate(TOKENS - 10).collect()).token_ids
        assert (*begun, *rest) == expected
        assert len(session.resumptions) == 1
        restorer = (await session.info()).restorer
        assert restorer is not None
        assert (restorer.codec, restorer.quality) == ("kvarn4", KvQuality.HIGH)


async def test_a_restart_keeps_what_was_measured_and_a_reset_forgets_it(
    start_agent: StartAgent, spec: str, tmp_path: Path
) -> None:
    agent = await start_agent("a", serve=[spec])
    ledger, model, model_id = measured_by(agent)
    await ledger.record(model, "kvarn4", BAD)
    await agent.leave()
    assert (tmp_path / "a" / CODECS_FILE).stat().st_mode & 0o777 == 0o600
    agent = await start_agent("a", serve=[spec])
    async with AsyncClient(agent.address) as client:
        found = await codecs_of(client)
        assert list(found) == ["int8", "kvarn4", "kvarn4v3", "kvarn3", "kvarn3v2", "kvarn2"]
        assert found["kvarn4"].position_count == 16
        assert found["kvarn4"].divergence_nats == pytest.approx(0.9)
        assert found["int8"].qualities == (KvQuality.HIGH,)
        assert found["kvarn3"].qualities == (KvQuality.ECONOMY,)
        with pytest.raises(ModelNotFound, match="no verifier 'other'"):
            await client.fleet.reset_codecs("other")
        assert await client.fleet.reset_codecs(model_id) == 1
        found = await codecs_of(client)
        assert found["kvarn4"].qualities == (KvQuality.HIGH,)
        assert found["kvarn4"].position_count == 0
        assert await client.fleet.reset_codecs() == 0
    await agent.leave()
    again, model, _ = measured_by(await start_agent("a", serve=[spec]))
    assert again.standing(model, PackedQuality.HIGH).codec == "kvarn4"


async def test_a_file_that_cannot_be_read_is_told_and_the_node_serves(
    start_agent: StartAgent, spec: str, tmp_path: Path, eventually: Eventually
) -> None:
    folder = tmp_path / "a"
    folder.mkdir(mode=0o700)
    (folder / CODECS_FILE).write_bytes(b"not what it should be " * 500)
    agent = await start_agent("a", serve=[spec])

    async def told() -> bool:
        return any(
            each.kind is EventKind.CODECS_LOST and "moved to codecs.sqlite.aside" in each.message
            for each in agent.node.activity.events.latest
        )

    await eventually(told)
    async with AsyncClient(agent.address) as client:
        assert len(await client.fleet.codecs()) == 6


async def test_only_its_own_machine_resets_a_node(
    start_agent: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await start_agent("a")
    async with AsyncClient(agent.address) as client:
        assert await client.fleet.codecs() == ()
        monkeypatch.setattr(network, "is_own_address", lambda _: False)
        with pytest.raises(NotLoopback, match="from its own machine only"):
            await client.fleet.reset_codecs()


async def test_an_idle_node_measures_by_itself(
    start_agent: StartAgent, spec: str, eventually: Eventually
) -> None:
    agent = await start_agent(
        "a",
        settings=NodeSettings(codec_quiet_seconds=0.0),
        serve=[spec],
        codec_sampling=True,
    )
    ledger, model, model_id = measured_by(agent)
    async with AsyncClient(agent.address) as client:
        asked = {"kv_strategy": "full", "kv_quality": "high"}
        await client.create_session(model_id, tokens=HISTORY, **asked)  # type: ignore[arg-type]

        async def is_measured() -> bool:
            return ledger.divergence(model, "kvarn4").count == 16

        await eventually(is_measured)
