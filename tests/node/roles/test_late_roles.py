"""A node that serves nothing loads what serves with the first call, or the first role."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from kakeya.v1 import (
    placement_pb2,
    placement_pb2_grpc,
    proposer_pb2,
    proposer_pb2_grpc,
    runtime_pb2,
    runtime_pb2_grpc,
    tensor_pb2,
    tensor_pb2_grpc,
)
from kakeya_fleet.node.admission.allowance import Allowance, Refuse
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.limits import Limits
from kakeya_fleet.node.app import roles as of_node
from kakeya_fleet.node.app.serving_roles import ServingRoles
from kakeya_fleet.node.config.role_spec import parse_role_spec
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.expected_roles import ExpectedRoles
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support.homes import refusal

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVING = (
    "kakeya_fleet.engine.codecs",
    "kakeya_fleet.engine.kv",
    "kakeya_fleet.engine.proposers.loading",
    "kakeya_fleet.engine.sessions",
    "kakeya_fleet.engine.verifiers",
    "kakeya_fleet.fleet.placement",
    "kakeya_fleet.node.app.serving_roles",
    "kakeya_fleet.node.links.ends",
    "kakeya_fleet.node.links.transport",
    "kakeya_fleet.node.roles.archive",
    "kakeya_fleet.node.roles.proposer",
    "kakeya_fleet.node.roles.verifier.verifier_role",
    "kakeya_fleet.node.roles.worker",
)
"""Modules, and packages, of what serves."""
TENSORS = {"torch", "transformers", "mlx", "safetensors"}
"""Libraries that a proposer of n-grams has no use for."""
PROGRAM = """
import asyncio, json, sys
from kakeya_fleet.node.app.composition import open_node
from kakeya_fleet.node.config.config import build

def on_event(event):
    if event["event"] == "ready":
        # Standard output is the log's too.
        print(json.dumps(sorted(sys.modules)), file=sys.stderr)
        node.leave(0.1)

async def main():
    global node
    async with open_node(build(json.loads(sys.argv[1]), {}), on_event) as node:
        await node.serve()

asyncio.run(main())
"""


@pytest.fixture
def makes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One for each time that what serves was asked for, whether it was imported before or not."""
    asked: list[str] = []

    def serving_roles() -> type[ServingRoles]:
        asked.append("asked")
        return ServingRoles

    monkeypatch.setattr(of_node, "_serving_roles", serving_roles)
    return asked


async def modules_of(tmp_path: Path, *serve: str) -> set[str]:
    """What an agent has loaded when it is ready."""
    configuration = {"state": str(tmp_path / "state"), "serve": list(serve), "mdns": False}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        json.dumps(configuration),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, printed = await process.communicate()
    return set(json.loads(printed))


async def test_an_agent_that_serves_nothing_is_ready_without_what_serves(tmp_path: Path) -> None:
    loaded = await modules_of(tmp_path)
    assert "kakeya_fleet.node.app.roles" in loaded
    assert [name for name in SERVING if name in loaded] == []


async def test_an_agent_that_serves_has_all_of_it(tmp_path: Path) -> None:
    """Else the names above say nothing."""
    loaded = await modules_of(tmp_path, "proposer=ngram")
    assert [name for name in SERVING if name not in loaded] == []
    assert loaded & TENSORS == set()


async def test_every_service_refuses_what_is_not_served_by_the_first_call_as_by_later_ones(
    neighbourhood: nodes.Neighbourhood, makes: list[str]
) -> None:
    for number, reason_of in enumerate((_session, _tokenizer, _block, _draft, _plan, _link)):
        node = await neighbourhood.start(f"idle-{number}")
        assert makes == []
        first, second = [await reason_of(node.channel) for _ in range(2)]
        assert first == second == "MODEL_NOT_FOUND", reason_of.__name__
        assert makes != []
        makes.clear()


async def test_a_watch_that_came_first_hears_of_the_sessions_behind_it(
    neighbourhood: nodes.Neighbourhood, makes: list[str], checkpoint: Path
) -> None:
    node = await neighbourhood.start("watched")
    stub = runtime_pb2_grpc.RuntimeServiceStub(node.channel)
    watch = stub.WatchSessions(runtime_pb2.WatchSessionsRequest(), timeout=60)
    first: Any = await watch.read()
    assert first.WhichOneof("kind") == "snapshot"
    asked = len(makes)
    await node.roles.add(parse_role_spec(f"verifier={checkpoint}"))
    assert len(makes) == asked
    await neighbourhood.directory.put(node.node_id, node.address, node.roles.offers(), None)
    session = await calls.Caller(node.channel).open()
    heard: Any = await watch.read()
    assert heard.changed.session.session_id == session
    watch.cancel()


async def test_calls_that_come_together_make_it_once(
    neighbourhood: nodes.Neighbourhood, makes: list[str]
) -> None:
    node = await neighbourhood.start("crowded")
    ways = (_session, _draft, _plan, _link) * 4
    assert set(await asyncio.gather(*(way(node.channel) for way in ways))) == {"MODEL_NOT_FOUND"}
    # In the thread, and in the loop.
    assert len(makes) == 2


async def test_a_call_that_waits_for_it_while_the_node_drains_is_refused_as_leaving(
    neighbourhood: nodes.Neighbourhood,
) -> None:
    node = await neighbourhood.start("draining")
    await node.roles.drain(0.0)
    for way in (_session, _block, _draft, _link):
        assert await way(node.channel) == "DRAINING"


async def test_a_node_that_served_nothing_drains_and_closes(
    neighbourhood: nodes.Neighbourhood, makes: list[str]
) -> None:
    node = await neighbourhood.start("leaving")
    assert not node.roles.offers()
    assert not node.roles.uses()
    assert not node.roles.served()
    await node.roles.drain(1.0)
    node.roles.close_watches()
    await node.stop()
    assert makes == []


async def _session(channel: grpc.aio.Channel) -> str:
    stub = runtime_pb2_grpc.RuntimeServiceStub(channel)
    return await refusal(stub.CreateSession(runtime_pb2.CreateSessionRequest(model_id="none")))


async def _tokenizer(channel: grpc.aio.Channel) -> str:
    stub = runtime_pb2_grpc.RuntimeServiceStub(channel)
    return await refusal(stub.GetTokenizer(runtime_pb2.GetTokenizerRequest(model_id="none")).read())


async def _block(channel: grpc.aio.Channel) -> str:
    stub = proposer_pb2_grpc.ProposerServiceStub(channel)
    request = proposer_pb2.ProposeBlockRequest(
        model_id="none", committed_token_ids=[1], block_size=4
    )
    return await refusal(stub.ProposeBlock(request))


async def _draft(channel: grpc.aio.Channel) -> str:
    async def requests() -> AsyncIterator[proposer_pb2.DraftRequest]:
        yield proposer_pb2.DraftRequest(open=proposer_pb2.DraftOpen(model_id="none"))

    stub = proposer_pb2_grpc.ProposerServiceStub(channel)
    return await refusal(stub.Draft(requests()).read())


async def _plan(channel: grpc.aio.Channel) -> str:
    stub = placement_pb2_grpc.PlacementServiceStub(channel)
    return await refusal(stub.Plan(placement_pb2.PlanRequest(verifier_model="none")))


async def _link(channel: grpc.aio.Channel) -> str:
    stub = tensor_pb2_grpc.TensorServiceStub(channel)
    request = tensor_pb2.OpenLinkRequest(
        purpose=tensor_pb2.LINK_PURPOSE_FEATURES, model_id="none", sender_node_id="other"
    )
    return await refusal(stub.OpenLink(request))


async def test_bounds_of_what_serves_show_before_it_is_there_as_it_will_share_them() -> None:
    """`fleet limits` and /metrics of an idle node name them; the first who shares one decides."""
    asked: dict[str, Refuse] = {}

    class Asked(Allowances):
        def share(self, name: str, refuse: Refuse) -> Allowance:
            asked[name] = refuse
            return super().share(name, refuse)

    metrics = NodeMetrics()
    fleet = nodes.View("alone", nodes.Directory())
    expected = ExpectedRoles((), nodes.SETTINGS.group)
    roles = of_node.Roles(
        expected, nodes.SETTINGS, fleet, metrics, allowances=Asked(Limits(), metrics)
    )
    shown = dict(asked)
    asked.clear()
    await roles.reset_codecs("")
    assert asked == shown
    await roles.close()
