"""Links beside whose stream roads come, fail and go: no tensor lost, doubled or out of order."""

from __future__ import annotations

import asyncio
import itertools

import numpy as np
import pytest

from kakeya.v1 import placement_pb2
from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.node.links import road_desk, road_talk, used_road
from kakeya_fleet.node.links.contract import LinkClosed, RoadKind
from kakeya_fleet.node.links.delivery import Outbox
from kakeya_fleet.node.links.grpc_streams import CallerStream
from kakeya_fleet.node.links.link_log import ChangeCause, LinkLog
from kakeya_fleet.node.links.open_links import LinkUse
from kakeya_fleet.node.links.promotion import LinkMode
from kakeya_fleet.node.links.wire_tensor import from_buffer
from tests.support import fake_roads, linked_pairs

LARGE = 100_000


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch):
    monkeypatch.setattr(used_road, "ROAD_SECONDS", 0.3)
    monkeypatch.setattr("kakeya_fleet.node.links.promotion.FIRST_PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(road_talk, "READY_SECONDS", 0.3)
    monkeypatch.setattr(road_talk, "ANSWER_SECONDS", 0.3)


def tensor(number, byte_count=LARGE):
    data = np.random.default_rng(number).integers(0, 256, byte_count, np.uint8)
    return from_buffer(f"t{number}", "int8", (byte_count,), memoryview(data), number)


class Linked:
    """A link over gRPC, whose ends have fake roads, and what it told of."""

    def __init__(self, linked_pairs, fake_roads, mode=LinkMode.LOCAL, **shared):
        self.pairs = linked_pairs
        self.shared = fake_roads.Shared(**shared)
        self.builders = [fake_roads.FakeRoads(self.shared), fake_roads.FakeRoads(self.shared)]
        self.modes = (mode, mode)
        self.log = LinkLog()

    async def __aenter__(self):
        self.hosts = self.pairs.linked_hosts(((self.builders[0],), (self.builders[1],)), self.modes)
        self.caller_host, self.served_host, channel = await self.hosts.__aenter__()
        request = wire.OpenLinkRequest(purpose=wire.LINK_PURPOSE_KEYS_VALUES)
        opened = await self.caller_host.links.open(
            channel,
            request,
            peer_node_id="served",
            timeout=10.0,
            use=LinkUse(on_change=self.log.add),
        )
        self.caller, self.served = opened.end, await self.served_host.handler.next()
        return self

    async def __aexit__(self, *exit_):
        await self.hosts.__aexit__(*exit_)
        # Whatever happened: no road and no reservation is left.
        assert self.shared.open_roads == self.shared.open_plans == 0

    async def ready(self, kind="local"):
        await self.pairs.carried_by(kind, self.caller, self.served, seconds=5)

    async def exchange(self, count, first=0, byte_count=LARGE):
        """Sends both ways at once; every tensor must arrive once, in order, as it was."""

        async def send(end):
            for number in range(first, first + count):
                await end.send(tensor(number, byte_count))
            await end.flush()

        async def receive(end):
            for number in range(first, first + count):
                got, sent = await end.receive(), tensor(number, byte_count)
                assert (got.name, got.first_position) == (sent.name, number)
                assert bytes(got.data) == bytes(sent.data)

        ends = (self.caller, self.served)
        async with asyncio.timeout(20):
            await asyncio.gather(*map(send, ends), *map(receive, ends))
        for end in ends:
            assert end.status().tensor_count == 2 * (first + count)


@pytest.fixture
def linked():
    def make(**fields):
        return Linked(linked_pairs, fake_roads, **fields)

    return make


async def test_a_forced_road_carries_everything(linked):
    async with linked() as link:
        await link.ready()
        await link.exchange(8)
        await link.exchange(8, 8, 100)
        assert link.shared.carried == 32
        assert link.caller.state.generation == link.served.state.generation == 1
        (change,) = link.log.since(0.0)
        assert (change.kind, change.cause, change.generation) == (
            RoadKind.LOCAL,
            ChangeCause.FORCED,
            1,
        )
        assert link.builders[0].nonces == link.builders[1].nonces
        assert len(link.builders[0].nonces[0]) == 32
        labels = {"transport": "local", "way": "sent"}
        name = "kakeya_link_transport_bytes_total"
        assert link.caller_host.metric(name, **labels) == 8 * LARGE + 8 * 100
        assert link.caller_host.metric("kakeya_link_bytes_total") == 8 * LARGE + 8 * 100
        assert link.caller_host.metric("kakeya_link_transports", transport="local") == 1
        await link.caller.close()
        assert link.caller_host.metric("kakeya_link_transports", transport="local") == 0
        assert link.caller_host.links.statuses() == []


@pytest.mark.parametrize("fate", ["fails", "dies", "lost", "corrupt", "frozen"])
@pytest.mark.parametrize("after", [0, 1, 5])
async def test_a_fault_at_any_tensor_loses_and_doubles_none(linked, fate, after):
    fates = itertools.chain(itertools.repeat("whole", after), [fate], itertools.repeat("whole"))
    async with linked(fates=fates) as link:
        await link.ready()
        await link.exchange(8)
        for end in (link.caller, link.served):
            assert end.status().demotion_count == 1
        # It comes back as another generation.
        await link.ready()
        await link.exchange(4, 8)
        assert link.caller.state.generation == link.served.state.generation == 2
        kinds = [change.kind for change in link.log.since(0.0)]
        assert kinds == [RoadKind.LOCAL, RoadKind.GRPC, RoadKind.LOCAL]
        assert link.log.since(0.0)[1].reason
        assert link.caller_host.metric("kakeya_link_changes_total", to="local", cause="forced") == 2


async def test_roads_that_always_fail_leave_the_link_on_its_stream(linked, monkeypatch):
    fates = itertools.cycle(["whole", "corrupt", "whole", "lost", "whole", "dies", "fails"])
    monkeypatch.setattr("kakeya_fleet.node.links.promotion.FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr("kakeya_fleet.node.links.promotion.LONGEST_PAUSE_SECONDS", 0.002)
    monkeypatch.setattr(used_road, "ROAD_SECONDS", 0.05)
    async with linked(fates=fates) as link:
        for turn in range(12):
            # The checksum of the large ones is made in a thread: roads fail meanwhile.
            await link.exchange(6, 6 * turn, (LARGE, 400_000)[turn % 2])
            await asyncio.sleep(0.02)
        assert link.caller.status().demotion_count > 2


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("fault", ["refused", "build fails", "never ready", "dies when ready"])
async def test_a_road_that_never_stands_costs_nothing(linked, who, fault):
    link = linked()
    link.builders[who].faults = [fault]
    async with link:
        await link.exchange(6)
        sent = 6
        # The second attempt.
        async with asyncio.timeout(10):
            while link.caller.state.generation < 2:
                # A road that died unused is noticed by the next tensor.
                await link.exchange(1, sent)
                sent += 1
                await asyncio.sleep(0.01)
        await link.ready()
        await link.exchange(6, sent)
        assert link.builders[1].attempts == 1 + (who == 1 or fault != "refused")


async def test_a_link_that_ends_while_a_road_is_built_leaves_nothing(linked):
    for who, closing in itertools.product((0, 1), (0, 1)):
        link = linked()
        link.builders[who].faults = ["never ready"]
        async with link:
            async with asyncio.timeout(5):
                while not link.builders[1].attempts:  # noqa: ASYNC110 no event
                    await asyncio.sleep(0.001)
            await (link.caller, link.served)[closing].close()
            await asyncio.wait_for((link.caller, link.served)[1 - closing].wound_up(), 5)


async def test_an_end_that_dies_in_mid_transfer_ends_the_other(linked):
    async with linked(fates=fake_roads.always("frozen")) as link:
        await link.ready()
        await link.caller.send(tensor(0))
        await asyncio.sleep(0.01)
        link.caller.end("killed", drop=True)
        with pytest.raises(LinkClosed):
            await asyncio.wait_for(link.served.receive(), 5)


async def trial(link, count=40):
    """Sends one tensor after the other, as one that measures would."""
    for number in range(count):
        await link.caller.send(tensor(number))
        await link.caller.flush()
        assert (await link.served.receive()).first_position == number
        if number == 5:
            async with asyncio.timeout(5):
                while not link.shared.open_roads:  # noqa: ASYNC110 no event
                    await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)


async def test_a_faster_road_is_measured_and_stays(linked, monkeypatch):
    link = linked(mode=LinkMode.AUTO)
    # Chunks take longer than the road, by far.
    slow_down(monkeypatch, 0.02)
    async with link:
        await trial(link, 5)
        assert link.caller.state.kind is RoadKind.GRPC
        await trial(link, 40)
        assert link.caller.state.kind is RoadKind.LOCAL
        assert "shared memory takes" in link.caller.state.reason
        # The other end sends nothing, and knows by which way it receives.
        assert link.served.state.kind is RoadKind.LOCAL
        changes = link.log.since(0.0)
        assert [change.cause for change in changes] == [ChangeCause.FASTER]
        carried = link.shared.carried
        await trial(link, 3)
        assert link.shared.carried == carried + 3


async def test_a_road_is_measured_under_traffic_that_never_pauses(linked, monkeypatch):
    slow_down(monkeypatch, 0.01)
    async with linked(mode=LinkMode.AUTO) as link:

        async def send():
            number = 0
            while link.caller.state.kind is RoadKind.GRPC:
                await link.caller.send(tensor(number))
                number += 1
            return number

        sending = asyncio.create_task(send())
        async with asyncio.timeout(10):
            while not sending.done():
                await link.served.receive()
        assert link.served.status().tensor_count < 200
        (change,) = link.log.since(0.0)
        assert change.cause is ChangeCause.FASTER


async def test_a_slower_road_is_measured_and_left_by_both(linked, monkeypatch):
    # However long the trial takes here, no second one begins.
    monkeypatch.setattr("kakeya_fleet.node.links.promotion.FIRST_PAUSE_SECONDS", 60.0)
    async with linked(mode=LinkMode.AUTO, seconds=lambda _count: 0.02) as link:
        await trial(link)
        assert link.caller.state.kind is link.served.state.kind is RoadKind.GRPC
        assert "takes" in link.caller.state.reason
        async with asyncio.timeout(5):
            while link.shared.open_roads:  # noqa: ASYNC110 no event
                await asyncio.sleep(0.01)
        # Nothing but the trial went by it.
        assert link.shared.carried <= 8
        assert link.log.since(0.0) == ()


async def test_small_tensors_ask_for_no_road(linked):
    async with linked(mode=LinkMode.AUTO) as link:
        await link.exchange(50, byte_count=2000)
        assert link.builders[0].attempts == 0


async def test_an_unwanted_road_is_never_tried(linked):
    async with linked(mode=LinkMode.GRPC) as link:
        await link.exchange(8)
        assert link.builders[0].attempts == link.builders[1].attempts == 0
        assert link.caller.state.kind is RoadKind.GRPC


@pytest.mark.parametrize("who", [0, 1], ids=["caller", "served"])
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "by itself"])
async def test_a_host_that_has_the_road_only_later_gets_it_later(linked, who, is_told, monkeypatch):
    """The link opens before the trial of the ring has ended, at either end."""
    pause = 30.0 if is_told else 0.05
    monkeypatch.setattr("kakeya_fleet.node.links.promotion.FIRST_PAUSE_SECONDS", pause)
    link = linked()
    link.builders[who].available = "it is being tried"
    async with link:
        await link.exchange(4)
        ends, hosts = (link.caller, link.served), (link.caller_host, link.served_host)
        async with asyncio.timeout(5):
            while "not available" not in link.caller.state.reason:  # noqa: ASYNC110 no event
                await asyncio.sleep(0.001)
        assert "it is being tried" in ends[who].state.reason
        assert link.caller.state.kind is link.served.state.kind is RoadKind.GRPC
        assert link.builders[1].attempts == 0
        assert link.builders[0].attempts == 0 or who == 1
        link.builders[who].available = ""
        if is_told:
            # Only the caller proposes: it asks the other end again when it looks itself.
            for host in hosts:
                host.links.look_again()
        await link.ready()
        await link.exchange(4, 4)
        assert link.shared.carried >= 8
    # One that never has it is asked ever more rarely, also when nothing travels.
    monkeypatch.setattr("kakeya_fleet.node.links.promotion.FIRST_PAUSE_SECONDS", 0.02)
    link = linked()
    link.builders[who].available = "MLX is not installed"
    async with link:
        await asyncio.sleep(0.3)
        assert link.builders[0].attempts <= 5
        assert "MLX is not installed" in link.caller.state.reason
        assert link.builders[1].attempts == 0


async def test_the_first_kind_that_works_is_taken():
    link = Linked(linked_pairs, fake_roads, LinkMode.AUTO)
    link.builders[1].faults = ["refused"]
    rings = [fake_roads.FakeRoads(link.shared, RoadKind.RING) for _ in range(2)]
    modes = (LinkMode.AUTO, LinkMode.AUTO)
    builders = tuple((link.builders[index], rings[index]) for index in range(2))
    async with linked_pairs.linked_hosts(builders, modes) as (caller_host, other, channel):
        ends = await caller_host.open(channel, other)
        for number in range(8):
            await ends[0].send(tensor(number))
            await ends[1].receive()
        async with asyncio.timeout(5):
            while rings[0].attempts == 0:  # noqa: ASYNC110 no event
                await asyncio.sleep(0.005)
    assert link.builders[0].attempts == rings[0].attempts == 1
    assert link.shared.open_roads == link.shared.open_plans == 0


async def test_an_idle_road_is_given_back(linked, monkeypatch):
    monkeypatch.setattr("kakeya_fleet.node.links.promotion.IDLE_SECONDS", 0.2)
    monkeypatch.setattr(road_desk, "JUDGING_SECONDS", 0.05)
    slow_down(monkeypatch, 0.01)
    async with linked(mode=LinkMode.AUTO) as link:
        await trial(link, 30)
        assert link.shared.open_roads == 2
        async with asyncio.timeout(5):
            while link.shared.open_roads:  # noqa: ASYNC110 no event
                await asyncio.sleep(0.01)
        assert link.caller.state.kind is RoadKind.GRPC
        # The event loop's other tasks come first.
        attempts = link.builders[0].attempts
        await asyncio.sleep(0.3)
        assert link.builders[0].attempts == attempts
        await link.caller.send(tensor(99))
        assert (await link.served.receive()).first_position == 99


def slow_down(monkeypatch, seconds):
    """Makes the caller's chunks take longer."""
    write = CallerStream.write

    async def slowly(self, envelope):
        if envelope.HasField("chunk"):
            await asyncio.sleep(seconds)
        await write(self, envelope)

    monkeypatch.setattr(CallerStream, "write", slowly)


@pytest.mark.parametrize(("who", "step"), [(0, "propose"), (1, "answer")])
async def test_what_nobody_foresaw_is_a_fault_of_the_road(linked, who, step):
    link = linked()
    builder = link.builders[who]
    genuine = getattr(builder, step)

    async def odd(*_given):
        setattr(builder, step, genuine)
        raise ValueError("odd")

    setattr(builder, step, odd)
    async with link:
        await link.exchange(6)
        await link.ready()
        await link.exchange(6, 6)
        assert link.caller.state.generation == 2


async def test_what_arrived_after_the_end_is_of_no_account():
    box = Outbox(1000)
    box.sent(box.add(tensor(0, 10)), 0, 0.0)
    box.clear()
    assert box.take(1) == []


async def test_a_caller_that_proposes_road_after_road_waits_for_their_ends(linked):
    """Each may have a process and a segment, which take a while to end."""
    async with linked() as link:
        await link.ready()
        desk, said = link.served._desk, []
        desk._drop()
        link.served._sender.say_road = said.append
        began = desk._newest
        for generation in range(began + 1, began + 40):
            desk.heard(
                wire.RoadMessage(
                    generation=generation,
                    step=wire.ROAD_STEP_PROPOSE,
                    transport=placement_pb2.TRANSPORT_LOCAL,
                    nonce=bytes(road_talk.NONCE_BYTES),
                )
            )
        assert len(desk._tasks) <= road_desk.MOST_ENDING
        refused = [message for message in said if message.step == wire.ROAD_STEP_FAILED]
        assert "still being cleared" in refused[-1].reason
