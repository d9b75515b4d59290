"""Snapshots of any size, and what changes while they are sent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

import pytest

from kakeya.v1 import capability_pb2 as wire
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.grpc_settings import DATA_MESSAGE_BYTES
from kakeya_fleet.node.rpc.refusals import AnswerTooLarge, WatcherTooSlow
from kakeya_fleet.node.watch.backlog import Backlog
from kakeya_fleet.node.watch.snapshot_parts import PART_BYTES, snapshot_and_changes
from kakeya_fleet.node.watch.watchers import WATCH_QUEUE, Watchers
from tests.support.patience import PATIENCE_SECONDS

Message = tuple[str, float | None]
"""A key with its newest value, None for its end."""
THING_BYTES = 1024


def subject_of(message: Message) -> tuple[str, bool]:
    return message[0], message[1] is None


class Things:
    """Values that rise, by key: a `Watched`, and those who watch it."""

    def __init__(self, count: int) -> None:
        self.values = {f"{index:05}": 0.0 for index in range(count)}
        self.values_of_old: dict[str, float] = {}
        self.watchers: Watchers[Message] = Watchers(NodeMetrics())

    def touch(self, key: str) -> None:
        """A new key comes, another's value rises by 1."""
        self.values[key] = self.values.get(key, self.values_of_old.pop(key, 0.0)) + 1.0
        self.watchers.publish((key, self.values[key]))

    def end(self, key: str) -> None:
        self.values_of_old[key] = self.values.pop(key)
        self.watchers.publish((key, None))

    async def watch(self, *, in_parts: bool = True) -> AsyncIterator[wire.WatchFleetResponse]:
        with self.watchers.watcher() as watcher:
            backlog: Backlog[Message] = Backlog(sorted(self.values), subject_of)
            async for message in snapshot_and_changes(watcher, backlog, self, in_parts=in_parts):
                yield message

    def item(self, key: str) -> wire.NodeStatus | None:
        value = self.values.get(key)
        return None if value is None else self.status(key, value)

    @staticmethod
    def status(key: str, value: float) -> wire.NodeStatus:
        card = wire.CapabilityCard(node_id=key, name="x" * (THING_BYTES - 32))
        return wire.NodeStatus(card=card, age_seconds=value)

    def snapshot(self, items: Sequence[wire.NodeStatus], *, more: bool) -> wire.WatchFleetResponse:
        return wire.WatchFleetResponse(snapshot=wire.FleetSnapshot(nodes=items, more=more))

    def changed(self, key: str) -> wire.WatchFleetResponse | None:
        status = self.item(key)
        return None if status is None else wire.WatchFleetResponse(changed=status)

    def change(self, message: Message) -> wire.WatchFleetResponse:
        key, value = message
        if value is None:
            return wire.WatchFleetResponse(removed_node_id=key)
        return wire.WatchFleetResponse(changed=self.status(key, value))


class Told:
    """What one watcher was told: parts, then changes. Refuses what goes backwards."""

    def __init__(self, messages: AsyncIterator[wire.WatchFleetResponse]) -> None:
        self._messages = messages
        self.values: dict[str, float] = {}
        self.parts: list[wire.FleetSnapshot] = []
        self.changes: list[Message] = []

    async def read(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            message = await anext(self._messages)
        match message.WhichOneof("kind"):
            case "snapshot":
                assert not self.changes, "a part behind a change"
                assert not self.parts or self.parts[-1].more, "a part behind the last one"
                self.parts.append(message.snapshot)
                for node in message.snapshot.nodes:
                    assert node.card.node_id not in self.values, "told twice in one snapshot"
                    self.values[node.card.node_id] = node.age_seconds
            case "changed":
                key, value = message.changed.card.node_id, message.changed.age_seconds
                assert not self.parts[-1].more, "a change within the snapshot"
                assert value >= self.values.get(key, 0.0), "an older state behind a newer one"
                self.values[key] = value
                self.changes.append((key, value))
            case _:
                del self.values[message.removed_node_id]
                self.changes.append((message.removed_node_id, None))

    async def read_snapshot(self) -> None:
        while not self.parts or self.parts[-1].more:
            await self.read()


async def test_parts_are_cut_by_bytes_and_make_the_whole_in_order() -> None:
    things = Things(1000)
    told = Told(things.watch())
    await told.read_snapshot()
    assert list(told.values) == sorted(things.values)
    assert len(told.parts) == -(-1000 * THING_BYTES // PART_BYTES)
    assert max(part.ByteSize() for part in told.parts) < PART_BYTES + 2 * THING_BYTES
    assert [part.more for part in told.parts] == [True] * (len(told.parts) - 1) + [False]


async def test_of_nothing_there_is_one_part() -> None:
    told = Told(Things(0).watch())
    await told.read_snapshot()
    assert [(len(part.nodes), part.more) for part in told.parts] == [(0, False)]


async def test_what_changes_while_parts_are_sent_is_told_once_and_as_it_is_by_then() -> None:
    things = Things(1000)
    told = Told(things.watch())
    await told.read()
    first, last = "00000", "00999"
    for _ in range(3):
        things.touch(first)
        things.touch(last)
    things.touch("new")
    things.end("00001")
    things.end("00998")
    await told.read_snapshot()
    assert told.values[last] == 3.0
    assert "00998" not in told.values
    for _ in range(3):
        await told.read()
    assert told.changes == [(first, 3.0), ("new", 1.0), ("00001", None)]
    assert told.values == things.values
    things.touch(first)
    await told.read()
    assert told.changes[-1] == (first, 4.0)


async def test_the_last_part_says_so_although_all_that_was_left_ended_before_it() -> None:
    things = Things(200)
    told = Told(things.watch())
    await told.read()
    assert told.parts[-1].more
    for key in sorted(things.values)[len(told.values) :]:
        things.end(key)
    await told.read()
    assert [(len(part.nodes), part.more) for part in told.parts[1:]] == [(0, False)]


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_when_the_watcher_ends_with_what_is_there(seed: int) -> None:
    rng = random.Random(seed)
    things = Things(400)
    told = Told(things.watch())
    await told.read()
    for step in range(600):
        for _ in range(rng.randrange(3)):
            key = rng.choice(list(things.values))
            match rng.randrange(4):
                case 0:
                    things.end(key)
                    if rng.random() < 0.3:
                        things.touch(key)
                case 1:
                    things.touch(f"new {step}")
                case _:
                    things.touch(key)
        if rng.random() < 0.1 and (told.parts[-1].more or told.values != things.values):
            await told.read()
    await told.read_snapshot()
    while told.values != things.values:
        await told.read()


async def test_who_reads_a_part_now_and_then_is_not_too_slow() -> None:
    things = Things(2000)
    told = Told(things.watch())
    await told.read()
    while told.parts[-1].more:
        for key in list(things.values)[:WATCH_QUEUE]:
            things.touch(key)
        await told.read()
    assert len(told.parts) > 10
    while told.values != things.values:
        await told.read()


async def test_who_reads_nothing_is_ended_within_the_snapshot_too() -> None:
    things = Things(2000)
    told = Told(things.watch())
    await told.read()
    for _ in range(WATCH_QUEUE + 1):
        things.touch("00000")
    assert len(things.watchers) == 0
    with pytest.raises(WatcherTooSlow):
        await told.read()


async def test_what_comes_and_goes_unheard_of_does_not_add_up() -> None:
    backlog: Backlog[Message] = Backlog(["a", "b"], subject_of)
    backlog.was_told(backlog.next_of_snapshot())
    for index in range(1000):
        backlog.note((f"{index}", 1.0))
        backlog.note((f"{index}", None))
    backlog.note(("a", 1.0))
    backlog.note(("a", None))
    assert backlog.next_later() == ("a", ("a", None))
    assert backlog.next_later() is None
    assert backlog.has_more


async def test_who_does_not_ask_for_parts_gets_one_message_as_long_as_it_fits() -> None:
    things = Things(DATA_MESSAGE_BYTES // THING_BYTES - 100)
    watch = things.watch(in_parts=False)
    message = await anext(watch)
    assert len(message.snapshot.nodes) == len(things.values)
    assert not message.snapshot.more
    things.touch("00000")
    assert (await anext(watch)).changed.age_seconds == 1.0


async def test_who_does_not_ask_for_parts_is_told_when_it_does_not_fit() -> None:
    things = Things(DATA_MESSAGE_BYTES // THING_BYTES + 100)
    with pytest.raises(AnswerTooLarge, match="in_parts"):
        await anext(things.watch(in_parts=False))
    assert len(things.watchers) == 0
