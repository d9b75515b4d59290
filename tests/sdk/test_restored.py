from __future__ import annotations

from collections.abc import Callable

import grpc
import pytest

from kakeya import (
    ArchiveFull,
    AsyncClient,
    BadRequest,
    KakeyaError,
    NoArchive,
    RestorerKind,
    RestorerLost,
    TrainedForAnother,
)
from kakeya.generated import wire
from kakeya.v1 import capability_pb2, placement_pb2, runtime_pb2
from tests.support.scripted_node import ScriptedNode


async def test_a_session_asks_for_what_restores(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        await client.create_session(
            "tiny",
            kv_strategy="restored",
            restorer="projection",
            restorer_model="tiny-dflash",
            restorer_node_id="aa",
        )
        await client.create_session("tiny", kv_strategy="restored")
        await client.create_session("tiny", restorer=RestorerKind.IDENTITY)
        with pytest.raises(BadRequest, match="archive, projection, identity"):
            await client.create_session("tiny", restorer="magic")
        await client.fleet.plan("tiny", kv_strategy="restored", restorer_node_id="bb")
    asked = [request.restorer for request in node.requests["CreateSession"]]
    assert asked == [
        placement_pb2.Restorer(
            kind=placement_pb2.RESTORER_KIND_PROJECTION,
            model_id="tiny-dflash",
            node_id="aa",
        ),
        placement_pb2.Restorer(),
        placement_pb2.Restorer(kind=placement_pb2.RESTORER_KIND_IDENTITY),
    ]
    present = [request.HasField("restorer") for request in node.requests["CreateSession"]]
    # A node of an earlier version, and another strategy, must not see one.
    assert present == [True, False, True]
    (planned,) = (request.restorer for request in node.requests["Plan"])
    assert planned.node_id == "bb"


async def test_a_session_asks_for_what_is_enough_where_memory_is_short(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        await client.create_session(
            "tiny", kv_strategy="full", kv_quality="high", kv_quality_when_short="economy"
        )
        with pytest.raises(BadRequest, match="kv_quality_when_short"):
            await client.create_session("tiny", kv_strategy="full", kv_quality_when_short="some")
        with pytest.raises(BadRequest, match="kv_quality"):
            await client.create_session("tiny", kv_strategy="full", kv_quality="")
    (asked,) = (request.restorer for request in node.requests["CreateSession"])
    assert asked == placement_pb2.Restorer(
        quality=placement_pb2.KV_QUALITY_HIGH, quality_when_short=placement_pb2.KV_QUALITY_ECONOMY
    )


def test_where_evicted_positions_are_is_told() -> None:
    message = runtime_pb2.SessionInfo(
        restorer=runtime_pb2.RestorerInfo(
            restorer=placement_pb2.Restorer(
                kind=placement_pb2.RESTORER_KIND_ARCHIVE,
                node_id="bb",
            ),
            node_name="mini-2",
            evicted_token_count=900,
            evicted_bytes=1 << 20,
            rebuild_count=2,
            lost=True,
            archives=[
                placement_pb2.ArchiveRange(
                    archive=placement_pb2.Placement(node_id="bb", node_name="mini-2"),
                    first_position=4,
                    end_position=8192,
                )
            ],
        )
    )
    told = wire.session_info(message).restorer
    assert told is not None
    assert (told.kind, told.node_id, told.node_name) == (RestorerKind.ARCHIVE, "bb", "mini-2")
    assert (told.evicted_token_count, told.evicted_bytes) == (900, 1 << 20)
    assert (told.rebuild_count, told.lost) == (2, True)
    (shared,) = told.archives
    assert (shared.archive.node_name, shared.first_position, shared.end_position) == (
        "mini-2",
        4,
        8192,
    )
    assert wire.session_info(runtime_pb2.SessionInfo()).restorer is None
    done = runtime_pb2.GenerateDone(restorer_rebuild_count=3)
    assert wire.generation_done(done).restorer_rebuild_count == 3
    archive = capability_pb2.ArchiveOffer(
        capacity_bytes=9, free_bytes=7, port=5, arithmetic="torch"
    )
    card = wire.card(capability_pb2.CapabilityCard(archive=archive))
    assert card.archive is not None
    assert (card.archive.capacity_bytes, card.archive.free_bytes, card.archive.port) == (9, 7, 5)
    assert wire.card(capability_pb2.CapabilityCard()).archive is None


@pytest.mark.parametrize(
    ("reason", "code", "kind"),
    [
        ("NO_ARCHIVE", grpc.StatusCode.FAILED_PRECONDITION, NoArchive),
        ("ARCHIVE_FULL", grpc.StatusCode.RESOURCE_EXHAUSTED, ArchiveFull),
        ("TRAINED_FOR_ANOTHER", grpc.StatusCode.FAILED_PRECONDITION, TrainedForAnother),
    ],
)
async def test_refusals_have_their_class(
    node: ScriptedNode, reason: str, code: grpc.StatusCode, kind: type[KakeyaError]
) -> None:
    node.refuse("CreateSession", code, reason=reason)
    async with AsyncClient(node.address) as client:
        with pytest.raises(kind):
            await client.create_session("tiny", kv_strategy="restored")


async def test_tokens_of_an_append_that_lost_its_archive_are_in_the_history(
    node: ScriptedNode, token_at: Callable[[int], int]
) -> None:
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", kv_strategy="restored")
        await session.append([1, 2])
        # As a node does: it appends first, and computes then.
        node.refuse("AppendTokens", grpc.StatusCode.UNAVAILABLE, reason="RESTORER_LOST", after=True)
        with pytest.raises(RestorerLost):
            await session.append([3, 4])
        assert session.history == (1, 2, 3, 4)
        completion = await session.generate(2).collect()
        assert completion.token_ids == (token_at(4), token_at(5))
