"""/health is what a generation of the node's own shows."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from kakeya_fleet.engine.contracts.cache import KvCache
from kakeya_fleet.engine.contracts.verifier import Logits, Verifier
from kakeya_fleet.node.app.settings import NodeSettings
from kakeya_fleet.node.http.settings import HealthSettings
from kakeya_fleet.node.watch.event_log import EventKind
from tests.node.http.conftest import Ask, Eventually, HttpFleet, RunAgent, UntilReady
from tests.support.patience import PATIENCE_SECONDS


async def health(address: str) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{address}/health") as answer,
    ):
        return answer.status, json.loads(await answer.text())


USUAL = HealthSettings()
# The canary of a node that is well comes in time on a busy machine, too.
IMPATIENT = HealthSettings(fresh_seconds=0.1, canary_seconds=4.0)


def test_a_node_that_generates_is_well(fleet: HttpFleet, ask: Ask) -> None:
    answer = ask(fleet.one, "/health")
    assert (answer.status, answer.json["status"]) == (200, "ok")
    models = {role["model"]: role for role in answer.json["roles"]}
    assert models.keys() == {"tiny", "toy", "ngram"}
    assert models["ngram"]["state"] == "serving"
    for model in ("tiny", "toy"):
        assert models[model]["state"] in {"answering", "generating"}
        proved = models[model]["proved_seconds_ago"]
        assert proved < USUAL.fresh_seconds + USUAL.canary_seconds
    asked = {"model": "toy", "prompt": "abc", "max_tokens": 2}
    assert ask(fleet.one, "/v1/completions", asked).status == 200
    roles = ask(fleet.one, "/health").json["roles"]
    assert next(role for role in roles if role["model"] == "toy")["state"] == "generating"
    assert ask(fleet.gate, "/health").json["roles"] == []


def test_a_canary_is_no_session_of_anyones(fleet: HttpFleet, ask: Ask) -> None:
    def sessions() -> set[str]:
        lines = ask(fleet.one, "/metrics").body.decode().splitlines()
        return {each for each in lines if each.startswith("kakeya_sessions")}

    before = sessions()
    for _ in range(3):
        assert ask(fleet.one, "/health").status == 200
    assert sessions() == before


async def test_a_node_that_loads_or_hangs_or_leaves_is_not(
    run_agent: RunAgent, toy: Path, until_ready: UntilReady, eventually: Eventually
) -> None:
    agent, joined = await run_agent(
        settings=NodeSettings(health=IMPATIENT), serve=[f"verifier={toy}"]
    )
    address = joined["http_address"]
    status, body = await health(address)
    assert (status, body["reason"]) == (503, "LOADING")
    await until_ready(agent)
    status, body = await health(address)
    assert (status, body["roles"][0]["state"]) == (200, "answering")

    # A step that does not come back: the thread of the model hangs.
    (served,) = agent.roles.verifiers.values()
    release, began = threading.Event(), threading.Event()

    def hang() -> bool:
        began.set()
        return release.wait(60)

    hanging = asyncio.ensure_future(served.worker.run(hang))
    try:
        assert await asyncio.to_thread(began.wait, PATIENCE_SECONDS)
        await asyncio.sleep(IMPATIENT.fresh_seconds)
        for _ in range(3):
            status, body = await health(address)
            assert (status, body["reason"]) == (503, "WEDGED")
            assert "look at the node's log" in body["message"]
        # While it is known that it hangs nobody waits for it again.
        began_at = asyncio.get_running_loop().time()
        await health(address)
        took = asyncio.get_running_loop().time() - began_at
        assert took < IMPATIENT.canary_seconds, f"it was told after {took:.1f} s"
    finally:
        release.set()
    await hanging
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await health(address))[0] != 200:
            pass

    # One generation is under way, in a thread that hangs: the node drains, and waits.
    release.clear()
    hanging = asyncio.ensure_future(served.worker.run(lambda: release.wait(60)))
    asked = {"model": "toy", "prompt": "abc", "max_tokens": 4}
    async with aiohttp.ClientSession() as session:
        running = asyncio.ensure_future(
            session.post(f"http://{address}/v1/completions", json=asked)
        )
        try:
            roles = agent.roles

            async def waits() -> bool:
                return bool(served.worker._inbox.qsize() or roles.load_numbers().session_count)

            await eventually(waits)
            agent.leave(20)
            status, body = await health(address)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while body["reason"] != "DRAINING":
                    status, body = await health(address)
            assert status == 503
        finally:
            release.set()
            await hanging
            answer = await running
        assert answer.status in {200, 503}


async def test_logits_that_are_no_numbers_are_a_fault(
    run_agent: RunAgent, toy: Path, until_ready: UntilReady, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, joined = await run_agent(
        settings=NodeSettings(health=IMPATIENT), serve=[f"verifier={toy}"]
    )
    await until_ready(agent)
    (served,) = agent.roles.verifiers.values()
    honest = type(served.verifier).forward

    def broken(
        self: Verifier, cache: KvCache, token_ids: Sequence[int], *, want_logits: bool
    ) -> Logits | None:
        logits = honest(self, cache, token_ids, want_logits=want_logits)
        return logits * np.float32("nan") if logits is not None else None

    monkeypatch.setattr(type(served.verifier), "forward", broken)
    status, body = await health(joined["http_address"])
    assert (status, body["reason"]) == (503, "INVARIANT_VIOLATED")
    assert body["roles"][0]["state"] == "failing"


async def test_a_thread_that_fails_between_its_steps_is_told_until_it_does_no_more(
    run_agent: RunAgent, toy: Path, until_ready: UntilReady, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient = HealthSettings(fresh_seconds=0.1, canary_seconds=30.0)
    agent, joined = await run_agent(
        settings=NodeSettings(health=patient), serve=[f"verifier={toy}"]
    )
    await until_ready(agent)
    (served,) = agent.roles.verifiers.values()
    receive = served.worker._receive

    def broken() -> None:
        receive()
        raise ZeroDivisionError("a fault of the queue")

    monkeypatch.setattr(served.worker, "_receive", broken)
    address = joined["http_address"]
    # The thread may wait in what was replaced: that canary still computes.
    async with asyncio.timeout(60):
        while (told := await health(address))[0] == 200:
            pass
    status, body = told
    assert (status, body["reason"]) == (503, "WORKER_FAULT")
    assert body["roles"][0]["state"] == "failing"
    events = [event.kind for event in agent.activity.events.latest]
    assert EventKind.BACKGROUND_FAULT in events
    monkeypatch.undo()
    async with asyncio.timeout(60):
        while (await health(address))[0] != 200:
            pass
