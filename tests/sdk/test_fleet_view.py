from __future__ import annotations

import asyncio
import dataclasses
import json

import grpc
import pytest

import kakeya
from kakeya import AsyncClient, FleetSnapshot, Liveness, NodeChanged, NodeRemoved
from kakeya.generated import wire
from kakeya.v1 import capability_pb2, model_pb2, placement_pb2, tensor_pb2
from tests.support.patience import PATIENCE_SECONDS
from tests.support.scripted_node import ScriptedNode

CARD = capability_pb2.CapabilityCard(
    node_id="aa" * 32,
    name="mini-1",
    public_key=b"\x01\x02",
    addresses=["127.0.0.1:7700", "10.0.0.1:7700"],
    accelerator=capability_pb2.Accelerator(kind="cpu", name="M4"),
    memory_total_bytes=16,
    memory_free_bytes=8,
    protocol_min=1,
    protocol_max=1,
    models=[
        model_pb2.ModelOffer(
            model_id="ngram", role=model_pb2.ROLE_PROPOSER, kind=model_pb2.MODEL_KIND_NGRAM
        )
    ],
)
SELF = capability_pb2.NodeStatus(card=CARD, liveness=capability_pb2.LIVENESS_ALIVE, is_self=True)
STRANGER = capability_pb2.NodeStatus(
    card=capability_pb2.CapabilityCard(node_id="bb" * 32),
    liveness=capability_pb2.LIVENESS_SUSPECT,
    age_seconds=3,
    round_trip_seconds=0.5,
)
EVENTS = [
    capability_pb2.WatchFleetResponse(
        snapshot=capability_pb2.FleetSnapshot(fleet_name="home", nodes=[SELF, STRANGER])
    ),
    capability_pb2.WatchFleetResponse(),
    capability_pb2.WatchFleetResponse(changed=STRANGER),
    capability_pb2.WatchFleetResponse(removed_node_id="bb" * 32),
]


async def test_nodes_with_and_without_a_card(node: ScriptedNode) -> None:
    node.fleet_events = EVENTS
    async with AsyncClient(node.address) as client:
        known, stranger = await client.fleet.nodes()
        assert known.name == "mini-1"
        assert known.address == "127.0.0.1:7700"
        assert known.liveness is Liveness.ALIVE
        assert known.is_self
        assert known.round_trip_seconds is None
        assert known.models[0].role is kakeya.Role.PROPOSER
        assert known.card is not None
        assert known.card.public_key == "0102"
        assert stranger.card is None
        assert (stranger.name, stranger.address, stranger.models) == ("b" * 12, "", ())
        assert stranger.liveness is Liveness.SUSPECT
        assert stranger.round_trip_seconds == 0.5
        json.dumps(dataclasses.asdict(known))
        # The look does not go on watching.
        assert await asyncio.to_thread(node.streams[0].cancelled.wait, PATIENCE_SECONDS)


async def test_a_watch_gives_a_snapshot_then_changes_and_ends_when_left(node: ScriptedNode) -> None:
    node.fleet_events = EVENTS
    async with AsyncClient(node.address) as client:
        seen = []
        async for event in client.fleet.watch():
            seen.append(event)
            if len(seen) == 3:
                break
        assert isinstance(seen[0], FleetSnapshot)
        assert seen[0].fleet_name == "home"
        assert isinstance(seen[1], NodeChanged)
        assert seen[2] == NodeRemoved("bb" * 32)
        assert await asyncio.to_thread(node.streams[0].cancelled.wait, PATIENCE_SECONDS)


async def test_a_watch_that_falls_behind_says_so(node: ScriptedNode) -> None:
    node.refuse("WatchFleet", grpc.StatusCode.RESOURCE_EXHAUSTED, reason="WATCHER_TOO_SLOW")
    async with AsyncClient(node.address) as client:
        with pytest.raises(kakeya.WatcherTooSlow):
            await anext(aiter(client.fleet.watch()))


async def test_the_node_as_it_sees_itself(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        await client.create_session("tiny")
        seen = await client.fleet.node()
        assert seen.card.name == "mini-1"
        link = kakeya.PeerLink("bb", 0.001, breaker_open=False, address="10.8.0.2:7600")
        assert seen.links == (link,)
        assert seen.load.session_count == 1
        assert seen.load.kv_bytes == 7
        assert not seen.draining


async def test_a_plan_is_asked_for_with_all_of_its_fields(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        plan = await client.fleet.plan(
            "tiny",
            proposer_model="ngram",
            proposer_node_id="bb",
            verifier_node_id="aa",
            context_tokens=4096,
            kv_strategy=kakeya.KvStrategy.FULL,
            sink_tokens=1,
            window_tokens=2,
            block_size=3,
            without_proposer=True,
        )
        assert plan.reasons == ("mini-2 drafts fastest",)
        assert plan.verifier.node_name == "mini-1"
        assert node.requests["Plan"] == [
            placement_pb2.PlanRequest(
                verifier_model="tiny",
                proposer_model="ngram",
                proposer_node_id="bb",
                verifier_node_id="aa",
                context_tokens=4096,
                kv_strategy=placement_pb2.KV_STRATEGY_FULL,
                sink_tokens=1,
                window_tokens=2,
                block_size=3,
                without_proposer=True,
            )
        ]
        with pytest.raises(kakeya.BadRequest):
            await client.fleet.plan("tiny", context_tokens=-1)


def test_tensor_links_and_what_archives_are_waited_for() -> None:
    answer = capability_pb2.GetNodeResponse(
        links=[
            capability_pb2.PeerLink(node_id="aa", round_trip_seconds=0.5, archive_wait_seconds=0.25)
        ],
        tensor_links=[
            capability_pb2.TensorLinkStatus(
                peer_node_id="bb",
                purpose=tensor_pb2.LINK_PURPOSE_FEATURES,
                transport=placement_pb2.TRANSPORT_RING,
                generation=1,
                bytes_per_second=2.5,
                reason="The ring is faster.",
                changed_seconds_ago=3.5,
                is_caller=True,
                tensor_count=4,
                byte_count=5,
                demotion_count=6,
            )
        ],
    )
    seen = wire.node(answer)
    assert seen.links[0].archive_wait_seconds == 0.25
    assert seen.tensor_links == (
        kakeya.TensorLink(
            "bb",
            kakeya.LinkPurpose.FEATURES,
            kakeya.Transport.RING,
            generation=1,
            bytes_per_second=2.5,
            reason="The ring is faster.",
            changed_seconds_ago=3.5,
            is_caller=True,
            tensor_count=4,
            byte_count=5,
            demotion_count=6,
        ),
    )


def test_the_host_and_seed_peers_that_cannot_be_joined() -> None:
    answer = capability_pb2.GetNodeResponse(
        card=capability_pb2.CapabilityCard(host_id="cd" * 16),
        seed_faults=[
            capability_pb2.SeedFault(
                address="10.0.0.9:7600",
                reason="UNREACHABLE",
                message="nothing answers there",
                mend="start a node there",
                since_seconds=61.5,
                attempt_count=7,
            )
        ],
    )
    seen = wire.node(answer)
    assert seen.card.host_id == "cd" * 16
    assert seen.seed_faults == (
        kakeya.SeedFault(
            "10.0.0.9:7600", "UNREACHABLE", "nothing answers there", "start a node there", 61.5, 7
        ),
    )


async def test_leave_drains(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        assert await client.fleet.leave(drain_seconds=2.5) == "aa"
        assert node.requests["Leave"][0].drain_seconds == 2.5
