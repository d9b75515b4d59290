"""Links beside whose stream roads come, fail and go: no tensor lost, doubled or out of order."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Never, Self

import numpy as np
import pytest

from kakeya_fleet.node.config.backoff import Backoff
from kakeya_fleet.node.links.ends.link_end import LinkEnd
from kakeya_fleet.node.links.ends.road_driver import MOST_UNSAID
from kakeya_fleet.node.links.protocol.changes import ChangeCause, LinkChange
from kakeya_fleet.node.links.protocol.contract import LinkClosed, LinkMode, RoadKind
from kakeya_fleet.node.links.protocol.messages import RoadMessage, RoadStep
from kakeya_fleet.node.links.protocol.settings import LinkSettings
from kakeya_fleet.node.links.protocol.tensor import WireTensor, from_buffer
from tests.support import fake_roads, linked_pairs
from tests.support.patience import PATIENCE_SECONDS

LARGE = 100_000
# Longer than a process waits for a core on a busy machine, most times.
CLEARLY_SECONDS = 0.05
# No deadline of these passes because a busy machine is slow.
PATIENT = LinkSettings(
    again=Backoff(0.02, 300.0), transfer_seconds=30.0, ready_seconds=30.0, answer_seconds=30.0
)
# For what only a deadline finds.
SHORT = replace(PATIENT, transfer_seconds=1.0, ready_seconds=1.0)


def tensor(number: int, byte_count: int = LARGE) -> WireTensor:
    data = np.random.default_rng(number).integers(0, 256, byte_count, np.uint8).data
    return from_buffer(f"t{number}", "int8", (byte_count,), data, number)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 no event
            await asyncio.sleep(0.001)


class Linked:
    """A link over memory, whose hosts have fake roads."""

    def __init__(
        self, *, mode: LinkMode = LinkMode.LOCAL, settings: LinkSettings = PATIENT, **shared: Any
    ) -> None:
        self.mode, self.settings = mode, settings
        self.shared = fake_roads.Shared(**shared)
        self.builders = [fake_roads.FakeRoads(self.shared) for _ in range(2)]

    async def __aenter__(self) -> Self:
        self.hosts = [
            linked_pairs.Host((builder,), self.mode, self.settings) for builder in self.builders
        ]
        self.link = linked_pairs.InMemory.between(*self.hosts)
        self.ends = self.caller, self.served = self.link.ends
        return self

    async def __aexit__(self, *exit_: object) -> None:
        await self.link.close()
        # Whatever happened: no road and no reservation is left.
        assert self.shared.open_roads == self.shared.open_plans == 0

    @property
    def changes(self) -> tuple[LinkChange, ...]:
        return self.link.log.since(0.0)

    async def ready(self) -> None:
        await linked_pairs.carried_by(RoadKind.LOCAL, *self.ends)

    async def exchange(self, count: int, first: int = 0, byte_count: int = LARGE) -> None:
        """Sends both ways at once; every tensor must arrive once, in order, as it was."""

        async def send(end: LinkEnd) -> None:
            for number in range(first, first + count):
                await end.send(tensor(number, byte_count))
            await end.flush()

        async def receive(end: LinkEnd) -> None:
            for number in range(first, first + count):
                got, sent = await end.receive(), tensor(number, byte_count)
                assert (got.name, got.first_position) == (sent.name, number)
                assert bytes(got.data) == bytes(sent.data)

        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*map(send, self.ends), *map(receive, self.ends))
        for end in self.ends:
            assert end.state.tensor_count == 2 * (first + count)

    async def one_by_one(self, count: int) -> None:
        """As one sends who measures."""
        for number in range(count):
            await self.caller.send(tensor(number))
            await self.caller.flush()
            assert (await self.served.receive()).first_position == number
            if number == self.settings.large_tensors:
                await until(lambda: self.shared.open_roads == 2)


async def test_a_forced_road_carries_everything() -> None:
    async with Linked() as link:
        await link.ready()
        await link.exchange(8)
        await link.exchange(8, 8, 100)
        assert link.shared.carried == 32
        assert link.caller.state.generation == link.served.state.generation == 1
        (change,) = link.changes
        assert (change.kind, change.cause) == (RoadKind.LOCAL, ChangeCause.FORCED)
        assert change.generation == 1
        assert link.builders[0].nonces == link.builders[1].nonces
        assert len(link.builders[0].nonces[0]) == 32
        host, byte_count = link.hosts[0], 8 * LARGE + 8 * 100
        labels = {"transport": "local", "way": "sent"}
        assert host.metric("kakeya_link_transport_bytes_total", **labels) == byte_count
        assert host.metric("kakeya_link_bytes_total") == byte_count
        assert host.metric("kakeya_link_transports", transport="local") == 1
        await link.caller.close()
        assert host.metric("kakeya_link_transports", transport="local") == 0
        assert host.links.statuses() == []


@pytest.mark.parametrize(
    ("fate", "after"), [("fails", 0), ("dies", 5), ("lost", 0), ("corrupt", 5), ("frozen", 0)]
)
async def test_a_fault_at_any_tensor_loses_and_doubles_none(fate: str, after: int) -> None:
    fates = itertools.chain(itertools.repeat("whole", after), [fate], itertools.repeat("whole"))
    settings = SHORT if fate in {"lost", "frozen"} else PATIENT
    async with Linked(fates=fates, settings=settings) as link:
        await link.ready()
        await link.exchange(8)
        for end in link.ends:
            assert end.state.demotion_count == 1
        # It comes back as another generation.
        await link.ready()
        await link.exchange(4, 8)
        assert link.caller.state.generation == link.served.state.generation == 2
        kinds = [change.kind for change in link.changes]
        assert kinds == [RoadKind.LOCAL, RoadKind.GRPC, RoadKind.LOCAL]
        assert link.changes[1].reason
        changed = {"to": "local", "cause": "forced"}
        assert link.hosts[0].metric("kakeya_link_changes_total", **changed) == 2


async def test_roads_that_always_fail_leave_the_link_on_its_stream() -> None:
    fates = itertools.cycle(["whole", "corrupt", "whole", "lost", "whole", "dies", "fails"])
    settings = replace(SHORT, again=Backoff(0.001, 0.001))
    async with Linked(fates=fates, settings=settings) as link:
        turn = 0
        while link.caller.state.demotion_count < 4:
            # The checksum of the large ones is made in a thread: roads fail meanwhile.
            await link.exchange(6, 6 * turn, (LARGE, 400_000)[turn % 2])
            turn += 1
            await until(lambda: link.shared.open_roads or link.caller.state.demotion_count > 3)


@pytest.mark.parametrize(
    ("who", "fault"),
    [
        (0, "refused"),
        (1, "refused"),
        (0, "build fails"),
        (1, "never ready"),
        (0, "dies when ready"),
    ],
)
async def test_a_road_that_never_stands_costs_nothing(who: int, fault: str) -> None:
    link = Linked(settings=SHORT if fault == "never ready" else PATIENT)
    link.builders[who].faults = [fault]
    async with link:
        await link.exchange(6)
        sent = 6
        # The second attempt; a road that died unused is noticed by the next tensor.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while link.caller.state.generation < 2:
                await link.exchange(1, sent)
                sent += 1
        await link.ready()
        await link.exchange(6, sent)
        assert link.builders[1].attempts == 1 + (who == 1 or fault != "refused")


async def test_a_link_that_ends_while_a_road_is_built_leaves_nothing() -> None:
    for who, closing in itertools.product((0, 1), (0, 1)):
        link = Linked()
        link.builders[who].faults = ["never ready"]
        async with link:
            await until(lambda: link.builders[1].attempts)  # noqa: B023
            await link.ends[closing].close()
            await asyncio.wait_for(linked_pairs.wound_up(link.ends[1 - closing]), PATIENCE_SECONDS)


async def test_an_end_that_dies_in_mid_transfer_ends_the_other() -> None:
    async with Linked(fates=fake_roads.always("frozen")) as link:
        await link.ready()
        await link.caller.send(tensor(0))
        await asyncio.sleep(0)
        link.caller.end("killed", drop=True)
        with pytest.raises(LinkClosed):
            await asyncio.wait_for(link.served.receive(), PATIENCE_SECONDS)


async def test_a_faster_road_is_measured_and_stays() -> None:
    async with Linked(mode=LinkMode.AUTO) as link:
        # Chunks take longer than the road, by far: also where this process waits for a core.
        link.link.streams[0].chunk_seconds = CLEARLY_SECONDS
        await link.one_by_one(40)
        assert link.caller.state.kind is RoadKind.LOCAL
        assert "shared memory takes" in link.caller.state.reason
        # The other end sends nothing, and knows by which way it receives.
        assert link.served.state.kind is RoadKind.LOCAL
        assert [change.cause for change in link.changes] == [ChangeCause.FASTER]
        carried = link.shared.carried
        await link.one_by_one(3)
        assert link.shared.carried == carried + 3


async def test_a_road_is_measured_under_traffic_that_never_pauses() -> None:
    async with Linked(mode=LinkMode.AUTO) as link:
        link.link.streams[0].chunk_seconds = CLEARLY_SECONDS

        async def send() -> None:
            number = 0
            while link.caller.state.kind is RoadKind.GRPC:
                await link.caller.send(tensor(number))
                number += 1

        sending = asyncio.create_task(send())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not sending.done():
                await link.served.receive()
        assert link.served.state.tensor_count < 200
        (change,) = link.changes
        assert change.cause is ChangeCause.FASTER


async def test_a_slower_road_is_measured_and_left_by_both() -> None:
    # However long the trial takes here, no second one begins.
    settings = replace(PATIENT, again=Backoff(300.0, 300.0))
    async with Linked(
        mode=LinkMode.AUTO, settings=settings, seconds=lambda _count: CLEARLY_SECONDS
    ) as link:
        await link.one_by_one(30)
        assert link.caller.state.kind is link.served.state.kind is RoadKind.GRPC
        assert "takes" in link.caller.state.reason
        await until(lambda: not link.shared.open_roads)
        # Nothing but the trial went by it.
        assert link.shared.carried <= 8
        assert link.changes == ()


@pytest.mark.parametrize(("who", "is_told"), [(0, True), (1, False)])
async def test_a_host_that_has_the_road_only_later_gets_it_later(who: int, is_told: bool) -> None:
    """The link opens before the trial of the ring has ended, at either end."""
    pause = 30.0 if is_told else 0.02
    link = Linked(settings=replace(PATIENT, again=Backoff(pause, 300.0)))
    link.builders[who].available = "it is being tried"
    async with link:
        await link.exchange(4)
        await until(lambda: "not available" in link.caller.state.reason)
        assert "it is being tried" in link.ends[who].state.reason
        assert link.caller.state.kind is link.served.state.kind is RoadKind.GRPC
        assert link.builders[1].attempts == 0
        assert link.builders[0].attempts == 0 or who == 1
        link.builders[who].available = ""
        if is_told:
            # Only the caller proposes: it asks the other end again when it looks itself.
            for host in link.hosts:
                host.links.look_again()
        await link.ready()
        await link.exchange(4, 4)
        assert link.shared.carried >= 8


@pytest.mark.parametrize(("who", "step"), [(0, "propose"), (1, "answer")])
async def test_what_nobody_foresaw_is_a_fault_of_the_road(who: int, step: str) -> None:
    link = Linked()
    builder = link.builders[who]
    genuine = getattr(builder, step)

    async def odd(*_given: object) -> Never:
        setattr(builder, step, genuine)
        raise ValueError("odd")

    setattr(builder, step, odd)
    async with link:
        await link.exchange(6)
        await link.ready()
        await link.exchange(6, 6)
        assert link.caller.state.generation == 2


async def test_an_end_that_reads_nothing_of_what_it_asks_for_is_left() -> None:
    """What is said of its roads waits for it: the memory for that is bounded."""
    async with Linked(mode=LinkMode.GRPC) as link:
        stream = link.link.streams[0]
        # The other end's stream takes no more, as its reader reads no more.
        link.caller._reading.cancel()
        for generation in range(1, MOST_UNSAID + 20):
            await stream.write(RoadMessage(generation, RoadStep.PROPOSE))
        await asyncio.wait_for(linked_pairs.wound_up(link.served), PATIENCE_SECONDS)
        assert "does not read" in link.served.end_reason
