"""What carries a session's features shows in GetNode, the metrics and done; never in a token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from kakeya.v1 import placement_pb2
from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.node.links.protocol.changes import ChangeCause, LinkChange, LinkLog
from kakeya_fleet.node.links.protocol.contract import LinkPurpose, RoadKind
from kakeya_fleet.node.links.roads.shared_memory_road import SharedMemoryRoads
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support.late_vectors import wait_for_vectors

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [index * 5 % 96 for index in range(50)]
TOKENS = 60


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def alone(verifier: nodes.Node) -> list[int]:
    """The verifier's own stream."""
    client = calls.Caller(verifier.channel)
    session = await client.open()
    await client.append(session, PROMPT)
    return (await client.generate(session, 2 * TOKENS)).token_ids


@pytest.fixture(scope="module")
def drafter(checkpoint: Path, random_drafter: Callable[..., Path]) -> Path:
    return random_drafter(checkpoint, "drafter")


async def test_a_link_over_shared_memory_says_so_everywhere(
    neighbourhood: nodes.Neighbourhood,
    alone: list[int],
    checkpoint: Path,
    drafter: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wait_for_vectors(monkeypatch)
    # Which road tensors take is tried here, not how late a draft may be on a busy machine.
    settings = replace(nodes.SETTINGS, links="local", draft_deadline_seconds=20.0)
    verifier, proposer = [
        await neighbourhood.start(name, spec, settings=settings, roads=[SharedMemoryRoads()])
        for name, spec in (
            ("road-verifier", f"verifier={checkpoint}"),
            ("road-proposer", f"proposer={drafter}"),
        )
    ]
    client = calls.Caller(verifier.channel)

    def on_road() -> bool:
        links = verifier.roles.links.statuses()
        return bool(links) and links[0].transport == placement_pb2.TRANSPORT_LOCAL

    session = await client.open(mode=calls.FIXED, proposer="drafter", proposer_node="road-proposer")
    await client.append(session, PROMPT)
    assert verifier.roles.links.statuses() == []
    first = await client.generate(session, 20)
    await calls.until(on_road)
    second = await client.generate(session, TOKENS)
    assert first.token_ids + second.token_ids == alone[: 20 + TOKENS]
    assert second.done.speculation.drafted_count > 0
    assert second.done.speculation.faults == []
    # The road came up in one of them, or between.
    changes = [*first.done.link_changes, *second.done.link_changes]
    (change,) = changes
    assert change.transport == placement_pb2.TRANSPORT_LOCAL
    assert change.purpose == wire.LINK_PURPOSE_FEATURES
    assert (change.generation, change.peer_node_id) == (1, "road-proposer")
    assert "shared memory" in change.reason
    assert 0 <= change.start_seconds < 60
    for node, peer, is_caller in (
        (verifier, "road-proposer", True),
        (proposer, "road-verifier", False),
    ):
        (link,) = node.roles.links.statuses()
        assert (link.peer_node_id, link.is_caller) == (peer, is_caller)
        assert link.purpose == wire.LINK_PURPOSE_FEATURES
        assert (link.transport, link.generation) == (placement_pb2.TRANSPORT_LOCAL, 1)
        # All that the first draft of the second answer needed; what came behind it may still wait.
        assert link.byte_count >= (len(PROMPT) + 20 - 1) * 64
        assert link.tensor_count > 3
        assert link.demotion_count == 0
        assert link.reason
        assert node.metric("kakeya_link_transports", transport="local") == 1
    sent = {"transport": "local", "way": "sent"}
    assert verifier.metric("kakeya_link_transport_bytes_total", **sent) > 0
    assert verifier.metric("kakeya_link_send_seconds_count", transport="local") > 0
    # The link that fetched the encoder may have lived long enough to be promoted too.
    assert verifier.metric("kakeya_link_changes_total", to="local", cause="forced") in (1, 2)
    await client.close(session)
    await calls.until(lambda: not proposer.roles.links.statuses())


async def test_the_log_of_changes_is_bounded_and_gives_each_as_news_once() -> None:
    def change(at: int) -> LinkChange:
        return LinkChange(
            float(at), "n", LinkPurpose.FEATURES, RoadKind.RING, at, ChangeCause.FAULT, "r"
        )

    log = LinkLog(3)
    assert log.news() == ()
    for at in range(2):
        log.add(change(at))
    assert log.news() == (change(0), change(1))
    assert log.news() == ()
    for at in range(2, 9):
        log.add(change(at))
        log.since(0.0)
    assert log.news() == log.since(0.0) == (change(6), change(7), change(8))
    assert log.since(7.0) == (change(7), change(8))
