"""Codecs measured on a node's own packed sessions, and what new sessions get by it."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kakeya.v1 import placement_pb2, placement_pb2_grpc, runtime_pb2
from kakeya_fleet.engine.codecs import known
from kakeya_fleet.engine.sessions.session_record import Activity
from kakeya_fleet.fleet.placement.codec_ladder import PackedQuality
from kakeya_fleet.node.config.state_directory import CODECS_FILE
from kakeya_fleet.node.planning.codec_ledger import CodecLedger, model_key
from kakeya_fleet.node.planning.codec_store import ModelKey
from kakeya_fleet.node.roles.settings import CodecSettings
from kakeya_fleet.node.roles.verifier.codec_sampling import CodecSampling
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from kakeya_fleet.node.watch.event_log import EventKind
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support.patience import PATIENCE_SECONDS

HISTORY = [(17 * index + index * index // 3) % 96 for index in range(300)]
OTHER = [(5 * index + index * index // 7) % 96 for index in range(280)]
HIGH, ECONOMY = PackedQuality.HIGH, PackedQuality.ECONOMY
AT_ONCE = CodecSettings(quiet_seconds=0.0, share=1.0)
FULL = placement_pb2.KV_STRATEGY_FULL
NUMBERS = {HIGH: placement_pb2.KV_QUALITY_HIGH, ECONOMY: placement_pb2.KV_QUALITY_ECONOMY}


class Home:
    """A verifier's node, its sampling, and a client."""

    def __init__(self, node: nodes.Node) -> None:
        self.node = node
        self.caller = calls.Caller(node.channel)
        (self.model_id,) = node.roles.verifiers

    @property
    def sampling(self) -> CodecSampling:
        return self.node.roles.verifier.sampling

    @property
    def ledger(self) -> CodecLedger:
        return self.node.roles.verifier.codecs

    @property
    def served(self) -> ServedVerifier:
        return self.node.roles.verifiers[self.model_id]

    @property
    def model(self) -> ModelKey:
        return model_key(self.served.verifier.info)

    def count(self, codec: str) -> int:
        return self.ledger.divergence(self.model, codec).count

    async def opened(self, tokens: list[int], quality: PackedQuality = HIGH, **fields: Any) -> Any:
        """A packed session with these tokens."""
        restorer = placement_pb2.Restorer(quality=NUMBERS[quality], codec=fields.pop("codec", ""))
        request = runtime_pb2.CreateSessionRequest(
            model_id=self.model_id,
            kv_strategy=FULL,
            restorer=restorer,
            speculation=runtime_pb2.Speculation(mode=calls.OFF),
            initial_token_ids=tokens,
            **fields,
        )
        return await self.caller.stub.CreateSession(request, timeout=PATIENCE_SECONDS)

    async def codec_of(self, session_id: str) -> str:
        return str((await self.caller.info(session_id)).restorer.restorer.codec)

    async def settle(self) -> None:
        """Computes all that is noted."""
        while await self.sampling.sample():
            pass


@pytest_asyncio.fixture
async def around() -> AsyncIterator[nodes.Neighbourhood]:
    async with nodes.Neighbourhood() as started:
        yield started


@pytest.fixture
def start(
    around: nodes.Neighbourhood, random_checkpoint: Callable[..., Path], tmp_path: Path
) -> Callable[..., Any]:
    async def started(name: str = "home", **changed: Any) -> Home:
        codecs = replace(AT_ONCE, file=tmp_path / CODECS_FILE, **changed)
        settings = replace(nodes.SETTINGS, codecs=codecs)
        return Home(await around.start(name, f"verifier={random_checkpoint()}", settings=settings))

    return started


@pytest_asyncio.fixture
async def home(start: Callable[..., Any]) -> Home:
    return await start()  # type: ignore[no-any-return]


async def test_packed_sessions_that_idle_are_measured(home: Home) -> None:
    session = await home.opened(HISTORY)
    assert home.count("kvarn4") == 0
    await home.settle()
    # That in use, and the next one down; nothing is to be learned by the same tokens again.
    assert (home.count("kvarn4"), home.count("kvarn4v3")) == (16, 16)
    await home.opened(HISTORY)
    await home.settle()
    assert (home.count("int8"), home.count("kvarn4"), home.count("kvarn4v3")) == (0, 16, 16)
    await home.opened(OTHER, ECONOMY)
    await home.settle()
    assert home.count("kvarn3v2") == 16
    codecs = ("kvarn4", "kvarn4v3", "kvarn3", "kvarn3v2")
    means = [home.ledger.divergence(home.model, each).mean for each in codecs]
    assert means == sorted(means)
    assert home.node.metric("kakeya_codec_samples_total") == 16 * 4
    assert home.node.metric(
        "kakeya_codec_divergence_nats", model=home.model_id, codec="kvarn4"
    ) == (pytest.approx(means[0]))
    assert home.served.budget.guest is None
    held = home.served.verifier.pool.used_bytes
    await home.caller.stub.CloseSession(
        runtime_pb2.CloseSessionRequest(session_id=session.session_id)
    )
    assert home.served.verifier.pool.used_bytes < held


async def test_what_is_not_packed_or_too_short_is_not_measured(home: Home) -> None:
    await home.opened(HISTORY[:200])
    request = runtime_pb2.CreateSessionRequest(
        model_id=home.model_id, kv_strategy=FULL, initial_token_ids=HISTORY
    )
    await home.caller.stub.CreateSession(request, timeout=PATIENCE_SECONDS)
    assert not await home.sampling.sample()


async def test_a_worse_codec_gives_way_to_more_bits_and_open_sessions_keep_theirs(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(known.CODECS, "kvarn4", replace(known.CODECS["kvarn2"], name="kvarn4"))
    before = await home.opened(HISTORY, request_id="r1")
    expected = (await home.caller.generate(before.session_id, 24)).token_ids
    await home.settle()
    assert home.ledger.standing(home.model, HIGH).codec == "int8"
    (event,) = [
        each for each in home.node.activity.events.latest if each.kind is EventKind.CODEC_CHANGED
    ]
    assert "--kv-quality high pack by int8 instead of kvarn4. kvarn4 was measured on 16" in (
        event.message
    )
    assert "fleet codecs --reset" in event.mend
    after = await home.opened(HISTORY)
    assert (await home.codec_of(after.session_id), after.codec) == ("int8", "int8")
    assert await home.codec_of(before.session_id) == before.codec == "kvarn4"
    fork = await home.caller.stub.ForkSession(
        runtime_pb2.ForkSessionRequest(session_id=before.session_id), timeout=10
    )
    assert await home.codec_of(fork.session_id) == "kvarn4"
    # The same request again is the same session, whatever was decided meanwhile.
    assert (await home.opened(HISTORY, request_id="r1")).session_id == before.session_id
    # Whoever goes on from its tokens says by what it packed.
    resumed = await home.opened(HISTORY, codec="kvarn4")
    assert resumed.codec == "kvarn4"
    assert (await home.caller.generate(resumed.session_id, 24)).token_ids == expected
    assert (await home.caller.info(after.session_id)).restorer.restorer.quality == NUMBERS[HIGH]


async def test_plans_quote_what_was_measured_here(home: Home) -> None:
    stub = placement_pb2_grpc.PlacementServiceStub(home.node.channel)
    request = placement_pb2.PlanRequest(
        verifier_model=home.model_id,
        kv_strategy=FULL,
        restorer=placement_pb2.Restorer(quality=NUMBERS[HIGH]),
    )

    async def reasons() -> str:
        return " ".join((await stub.Plan(request, timeout=PATIENCE_SECONDS)).plan.reasons)

    assert "On SmolLM2-135M-Instruct that moved" in await reasons()
    opened = await home.opened(HISTORY)
    assert "On SmolLM2-135M-Instruct that moved" in " ".join(opened.plan.reasons)
    await home.settle()
    assert "Measured here on 16 positions of this model" in await reasons()
    opened = await home.opened(OTHER)
    assert "Measured here on 16 positions of this model" in " ".join(opened.plan.reasons)


async def test_a_restart_keeps_it_and_a_reset_forgets(start: Callable[..., Any]) -> None:
    home = await start("first")
    await home.opened(HISTORY)
    await home.settle()
    found = home.ledger.rungs(home.model)
    await home.node.stop()
    again = await start("second")
    assert again.ledger.rungs(again.model) == found
    assert (
        again.node.metric("kakeya_codec_divergence_nats", model=again.model_id, codec="kvarn4") > 0
    )
    assert await again.ledger.reset("0" * 64) == 0
    assert await again.ledger.reset(again.model.weights_digest) == 2
    assert again.count("kvarn4") == 0
    third = await start("third")
    assert third.count("kvarn4") == 0


async def test_it_gives_way_to_a_session_that_works_after_one_chunk(home: Home) -> None:
    session_id = (await home.opened(HISTORY)).session_id
    worker, pool = home.served.worker, home.served.verifier.pool
    held = pool.used_bytes
    begun, chunks = asyncio.Event(), 0
    run = worker.run

    async def watched(function: Callable[[], Any]) -> Any:
        nonlocal chunks
        result = await run(function)
        chunks += getattr(function, "__name__", "") == "step"
        begun.set()
        return result

    object.__setattr__(worker, "run", watched)
    sampling = asyncio.create_task(home.sampling.sample())
    await begun.wait()
    with home.node.roles.sessions.hold(session_id, Activity.GENERATING):
        assert await sampling
    assert chunks <= 2
    assert home.count("kvarn4") == 0
    assert pool.used_bytes == held
    assert home.served.budget.guest is None
    assert home.node.metric("kakeya_codec_samplings_given_up_total") == 1
    assert home.sampling.wait_seconds() > 0.0
    # The history is still there, and is computed when it is quiet again.
    await home.settle()
    assert home.count("kvarn4") == 16


async def test_samplings_have_their_share_of_the_time(start: Callable[..., Any]) -> None:
    home = await start(share=0.02)
    assert home.sampling.wait_seconds() == 0.0
    await home.opened(HISTORY)
    began = time.monotonic()
    await home.sampling.sample()
    # What it took, 49 times over; it cannot have taken longer than the whole call.
    took = time.monotonic() - began
    assert 0.0 < home.sampling.wait_seconds() <= 49 * took


async def test_it_waits_until_all_sessions_are_quiet(start: Callable[..., Any]) -> None:
    home = await start(quiet_seconds=3600.0)
    session_id = (await home.opened(HISTORY)).session_id
    assert 3500.0 < home.sampling.wait_seconds() <= 3600.0
    with home.node.roles.sessions.hold(session_id, Activity.APPENDING):
        assert home.sampling.wait_seconds() == 3600.0


async def test_few_histories_wait_and_not_for_ever(start: Callable[..., Any]) -> None:
    home = await start(histories=2)
    for first in range(3):
        await home.opened([first, *HISTORY])
    await home.settle()
    assert home.count("kvarn4") == 2 * 16
    old = await start("old", kept_seconds=0.0)
    await old.opened([5, *HISTORY])
    assert not await old.sampling.sample()


async def test_without_room_nobody_rests_and_nothing_is_measured(home: Home) -> None:
    await home.opened(HISTORY)
    pool = home.served.verifier.pool
    home.node.roles.sessions.share(home.served.budget, pool.used_bytes + 1024)
    assert await home.sampling.sample()
    assert home.count("kvarn4") == 0
    assert not any(each.record.session.is_resting for each in home.node.roles.sessions.page()[0])


async def test_a_model_that_is_removed_takes_its_histories_along(home: Home) -> None:
    await home.opened(HISTORY)
    served = home.served
    # What other tests left is not looked through with what is removed.
    gc.freeze()
    await home.node.roles.verifier.remove(home.model_id, 0.0)
    assert served.withdrawn.is_set()
    assert not await home.sampling.sample()


async def test_a_node_that_drains_measures_nothing(home: Home) -> None:
    await home.opened(HISTORY)
    await home.node.roles.drain(0.0)
    assert not await home.sampling.sample()


async def test_it_may_be_turned_off(start: Callable[..., Any]) -> None:
    home = await start(samples=False)
    await home.opened(HISTORY)
    assert not await home.sampling.sample()


async def test_a_failing_forward_reaches_no_session(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await home.opened(HISTORY)
    monkeypatch.setattr(home.served.verifier, "forward", _not_finite(home.served.verifier.forward))
    await home.settle()
    assert home.count("kvarn4") == 0
    monkeypatch.undo()
    assert (await home.caller.generate(session.session_id, 4)).token_ids


def _not_finite(forward: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(*arguments: Any, **named: Any) -> Any:
        logits = forward(*arguments, **named)
        return None if logits is None else logits * float("nan")

    return wrong


async def test_a_codec_that_no_quality_has_is_refused(home: Home) -> None:
    refused = await calls.refused_by(home.opened(HISTORY, codec="kivi2"))
    assert (refused.reason, refused.metadata["field"]) == ("BAD_REQUEST", "restorer.codec")
