"""What every link keeps to, whatever carries it: order, exactly once, bounds, ends."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import numpy as np
import pytest

from kakeya_fleet.node.links.ends.link_end import LinkEnd
from kakeya_fleet.node.links.protocol.contract import LinkClosed, LinkPurpose, RoadKind
from kakeya_fleet.node.links.protocol.settings import LinkLimits
from kakeya_fleet.node.links.protocol.tensor import TensorDtype, WireTensor, from_buffer
from tests.support.breadth import wide
from tests.support.linked_pairs import linked_pair, wound_up
from tests.support.patience import PATIENCE_SECONDS

KINDS = ["memory", "grpc", "local"]
MIB = 1 << 20
Pair = tuple[LinkEnd, LinkEnd]
OpenPair = Callable[..., AbstractAsyncContextManager[Pair]]
STALL_SECONDS = 0.05
"""The longest that a transfer may hold up an event loop."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "ring":
        pytest.importorskip("mlx.core")
    return str(request.param)


# To start a ring takes seconds: what the other tests ask of a link it shows here, or in the
# contract of roads.
and_a_ring = pytest.mark.parametrize("kind", [*KINDS, wide("ring")], indirect=True)


@pytest.fixture
def pair(kind: str) -> OpenPair:
    def open_pair(limits: LinkLimits | None = None) -> AbstractAsyncContextManager[Pair]:
        return linked_pair(kind, limits=limits)

    return open_pair


def tensor(
    name: str, byte_count: int, seed: int = 0, dtype: str = "int8", first_position: int = 0
) -> WireTensor:
    data = np.random.default_rng(seed).bytes(byte_count)
    shape = (byte_count // TensorDtype(dtype).item_bytes,)
    return from_buffer(name, dtype, shape, memoryview(data), first_position)


def same(received: WireTensor, sent: WireTensor) -> bool:
    return (
        received.name == sent.name
        and received.dtype == sent.dtype
        and received.shape == sent.shape
        and received.first_position == sent.first_position
        and bytes(received.data) == bytes(sent.data)
    )


@and_a_ring
async def test_tensors_arrive_once_each_in_order_both_ways(pair: OpenPair, kind: str) -> None:
    sizes = [0, 1, 3, 64 * 1024, MIB + 1, 5, 2 * MIB, 0, 700_000, 17] * 2
    there = [tensor(f"t{index}", size, index) for index, size in enumerate(sizes)]
    back = [tensor(f"b{index}", size, index + 50) for index, size in enumerate(sizes[::-1])]
    async with pair() as (caller, served):
        assert caller.link_id == served.link_id
        assert caller.purpose is served.purpose is LinkPurpose.FEATURES
        assert (caller.is_caller, served.is_caller) == (True, False)

        async def sent(end: LinkEnd, tensors: Sequence[WireTensor]) -> None:
            for each in tensors:
                await end.send(each)
            await end.flush()

        async def received(end: LinkEnd, tensors: Sequence[WireTensor]) -> None:
            for each in tensors:
                assert same(await end.receive(), each)

        await asyncio.gather(
            sent(caller, there), sent(served, back), received(served, there), received(caller, back)
        )
        for end in (caller, served):
            state = end.state
            assert state.kind is (RoadKind.GRPC if kind == "memory" else RoadKind(kind))
            assert state.generation == (1 if kind in ("local", "ring") else 0)
            assert state.reason
            assert (state.tensor_count, state.byte_count) == (2 * len(sizes), 2 * sum(sizes))
            assert state.demotion_count == 0
            assert state.bytes_per_second > 0


@pytest.mark.parametrize("dtype", sorted(TensorDtype))
async def test_every_format_arrives_as_it_is(dtype: TensorDtype) -> None:
    async with linked_pair("grpc") as (caller, served):
        item = dtype.item_bytes
        data = np.random.default_rng(3).bytes(24 * item)
        sent = from_buffer("x", dtype, (2, 3, 4), memoryview(data), 1 << 33)
        await caller.send(sent)
        assert same(await served.receive(), sent)
        scalar = from_buffer("scalar", dtype, (), memoryview(data[:item]))
        await served.send(scalar)
        assert same(await caller.receive(), scalar)


class LoopWatch:
    """How long the event loop let a timer wait, and how much of that it worked itself."""

    def __init__(self) -> None:
        self.waited = self.worked = 0.0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before, worked = loop.time(), time.thread_time()
            await asyncio.sleep(0.005)
            self.waited = max(self.waited, loop.time() - before - 0.005)
            self.worked = max(self.worked, time.thread_time() - worked)


@pytest.mark.parametrize("kind", ["grpc"], indirect=True)
async def test_64_mib_go_through_and_the_event_loop_goes_on(pair: OpenPair) -> None:
    # The same bytes each time: their checksum must not be what is waited for.
    sent = tensor("large", 64 * MIB, 7)
    expected = zlib.crc32(sent.data)
    watches: list[LoopWatch] = []
    async with pair(limits=LinkLimits(budget_bytes=64 * MIB)) as (caller, served):
        while len(watches) < 2 or (len(watches) < 12 and watches[-1].waited > STALL_SECONDS):
            watches.append(LoopWatch())
            watching = asyncio.create_task(watches[-1].run())
            try:
                await caller.send(sent)
                got = await served.receive()
                await caller.flush()
            finally:
                watching.cancel()
            assert await asyncio.to_thread(zlib.crc32, got.data) == expected
    # What the loop's own thread does is bounded whatever else runs on the host.
    assert max(watch.worked for watch in watches) <= STALL_SECONDS
    # A thread that keeps the interpreter to itself stalls it in every transfer; cores that
    # are shared with others do so in some.
    assert min(watch.waited for watch in watches) <= STALL_SECONDS


async def test_the_byte_budget_holds_senders_back(pair: OpenPair) -> None:
    limits = LinkLimits(budget_bytes=MIB)
    async with pair(limits=limits) as (caller, served):
        # What arrived counts as taken up to the receiver's own budget.
        sending = [
            asyncio.create_task(caller.send(tensor(f"t{index}", MIB // 2, index)))
            for index in range(12)
        ]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sum(task.done() for task in sending) < 4:  # noqa: ASYNC110 no event
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        done = sum(task.done() for task in sending)
        # Two under way, and what the other end holds: its budget, and one that made it more.
        assert 4 <= done <= 5, done
        assert not caller.try_send(tensor("more", 1, 0))
        for index in range(12):
            assert same(await served.receive(), tensor(f"t{index}", MIB // 2, index))
        await asyncio.gather(*sending)
        await caller.flush()
        # One that is larger than the budget goes alone.
        await caller.send(tensor("huge", 3 * MIB, 5))
        assert same(await served.receive(), tensor("huge", 3 * MIB, 5))


async def test_flush_waits_until_the_other_end_has_it(pair: OpenPair) -> None:
    async with pair() as (caller, served):
        await caller.flush()
        for index in range(5):
            await caller.send(tensor(f"t{index}", 300_000, index))
        await caller.flush()
        assert served.state.tensor_count == 5


@pytest.mark.parametrize("who", [0, 1])
async def test_either_end_closes_both(pair: OpenPair, who: int) -> None:
    async with pair() as ends:
        closing, other = ends[who], ends[1 - who]
        await closing.send(tensor("before", 100_000, 1))
        await closing.flush()
        waiting = asyncio.create_task(closing.receive())
        await asyncio.sleep(0)
        await asyncio.gather(closing.close(), closing.close())
        with pytest.raises(LinkClosed, match="closed by this end"):
            await waiting
        # What had arrived is not lost; then it is over, however often it is asked for.
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert same(await other.receive(), tensor("before", 100_000, 1))
            for _ in range(2):
                with pytest.raises(LinkClosed):
                    await other.receive()
            await wound_up(other)
        for end in ends:
            for call in (end.send(tensor("late", 1, 0)), end.flush(), end.receive()):
                with pytest.raises(LinkClosed):
                    await call
            with pytest.raises(LinkClosed):
                end.try_send(tensor("late", 1, 0))
            assert end.end_reason


async def test_who_waits_for_room_or_a_flush_hears_of_the_end(pair: OpenPair) -> None:
    async with pair(limits=LinkLimits(budget_bytes=1000)) as (caller, served):
        waiting = [asyncio.create_task(caller.send(tensor("t", 1000, 1))) for _ in range(9)]
        await asyncio.sleep(0.1)
        flushing = asyncio.create_task(caller.flush())
        await asyncio.sleep(0)
        await served.close()
        results = await asyncio.wait_for(
            asyncio.gather(*waiting, flushing, return_exceptions=True), PATIENCE_SECONDS
        )
        assert isinstance(results[-1], LinkClosed)
        assert isinstance(results[-2], LinkClosed)
        assert all(result is None or isinstance(result, LinkClosed) for result in results)


async def test_a_cancelled_send_or_receive_loses_nothing(pair: OpenPair) -> None:
    async with pair(limits=LinkLimits(budget_bytes=1000)) as (caller, served):
        receiving = asyncio.create_task(served.receive())
        await asyncio.sleep(0.01)
        receiving.cancel()
        await asyncio.wait((receiving,))
        # The first is taken, the second makes too much that nobody received.
        for index in range(2):
            await asyncio.wait_for(caller.send(tensor(f"t{index}", 800, index)), PATIENCE_SECONDS)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(caller.send(tensor("dropped", 800, 9)), 0.05)
        names = [
            (await asyncio.wait_for(served.receive(), PATIENCE_SECONDS)).name for _ in range(2)
        ]
        await caller.send(tensor("last", 10, 1))
        names.append((await asyncio.wait_for(served.receive(), PATIENCE_SECONDS)).name)
        assert names == ["t0", "t1", "last"]
