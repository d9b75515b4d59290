"""What `fleet top` makes of a node that tells anything."""

import asyncio
import contextlib
import math

import pytest

from kakeya import AsyncClient
from kakeya.v1 import capability_pb2, runtime_pb2
from kakeya_fleet.node.cli.top.picture import draw
from kakeya_fleet.node.cli.top.view import TopView
from kakeya_fleet.node.cli.top.watch import FleetWatcher
from kakeya_fleet.node.cli.top.watched_fleet import WatchedFleet
from tests.support.scripted_node import ScriptedNode, card_of, fleet_of

FORGED = "me\x1b]0;you\x07\n mini-9  dead"


@pytest.mark.parametrize("speed", [41.0, math.nan, math.inf])
async def test_the_screen_stands_and_nothing_steers_it(speed: float) -> None:
    node = ScriptedNode()
    history = capability_pb2.NodeHistory(
        node=capability_pb2.GetNodeResponse(card=card_of(node)),
        samples=[capability_pb2.NodeSample(at_unix=1.0, tokens_per_second=speed)],
    )
    node.node_events = [capability_pb2.WatchNodeResponse(history=history)]
    activity = runtime_pb2.SessionActivity(
        session=runtime_pb2.SessionInfo(session_id="s1", client_label=FORGED, age_seconds=-1.0)
    )
    snapshot = runtime_pb2.SessionsSnapshot(sessions=[activity])
    node.session_events = [runtime_pb2.WatchSessionsResponse(snapshot=snapshot)]
    await node.start()
    node.fleet_events = [fleet_of(node)]
    fleet, changed = WatchedFleet(), asyncio.Event()
    async with AsyncClient(node.address) as client:
        watcher = FleetWatcher(client, fleet, changed.set)
        watching = asyncio.create_task(watcher.run())
        while not watcher.has_heard_all():
            assert not watching.done()
            await changed.wait()
            changed.clear()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    await node.stop()
    for view in (TopView(), TopView(pane="sessions", session_id="s1", is_detailed=True)):
        lines = draw(fleet, view, 100, 24)
        assert len(lines) == 24
        assert all(line.plain.isprintable() for line in lines)
    assert fleet.nodes[0].trouble == ("" if math.isfinite(speed) else "UNEXPECTED_ERROR")
