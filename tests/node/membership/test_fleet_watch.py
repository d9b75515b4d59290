import asyncio

import pytest

from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.node.membership.fleet_watch import (
    WATCH_QUEUE,
    Change,
    FleetWatch,
    NodeState,
    Removed,
)
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.refusals import WatcherTooSlow
from tests.node.conftest import ValueOf


def state(number: int) -> NodeState:
    return NodeState(f"{number:064x}", None, Liveness.ALIVE, 0.0, 0.0, is_self=False)


@pytest.fixture
def watch(metrics: NodeMetrics) -> FleetWatch:
    return FleetWatch(metrics)


async def test_every_watcher_gets_every_change_in_order(watch: FleetWatch) -> None:
    with watch.watcher() as one, watch.watcher() as other:
        changes: list[Change] = [state(1), Removed("x"), state(2)]
        for change in changes:
            watch.publish(change)
        assert [await one.next() for _ in changes] == changes
        assert [await other.next() for _ in changes] == changes


async def test_a_watcher_waits_for_the_next_change(watch: FleetWatch) -> None:
    with watch.watcher() as watcher:
        waiting = asyncio.ensure_future(watcher.next())
        await asyncio.sleep(0)
        assert not waiting.done()
        watch.publish(state(1))
        assert await waiting == state(1)


async def test_a_full_queue_ends_only_that_watcher(watch: FleetWatch, value_of: ValueOf) -> None:
    with watch.watcher() as slow, watch.watcher() as quick:
        for number in range(WATCH_QUEUE + 1):
            watch.publish(state(number))
            assert await quick.next() == state(number)
        with pytest.raises(WatcherTooSlow):
            await slow.next()
        watch.publish(state(0))
        assert await quick.next() == state(0)
    assert value_of("kakeya_watchers_dropped_total") == 1


async def test_as_many_as_the_queue_holds_are_kept(watch: FleetWatch, value_of: ValueOf) -> None:
    with watch.watcher() as watcher:
        for number in range(WATCH_QUEUE):
            watch.publish(state(number))
        assert [await watcher.next() for _ in range(WATCH_QUEUE)][-1] == state(WATCH_QUEUE - 1)
    assert value_of("kakeya_watchers_dropped_total") == 0


async def test_close_ends_a_watch_after_what_is_queued(watch: FleetWatch) -> None:
    with watch.watcher() as watcher:
        watch.publish(state(1))
        watch.close()
        assert await watcher.next() == state(1)
        assert await watcher.next() is None
    with watch.watcher() as late:
        assert await late.next() is None
