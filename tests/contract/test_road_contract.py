"""Every road: bytes in order, both ways at once, and an end that everybody hears of."""

import asyncio
import importlib.util
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kakeya_fleet.node.links.roads.contract import Road, RoadBuilder, RoadFailed
from kakeya_fleet.node.links.roads.ring_road import RingRoads
from kakeya_fleet.node.links.roads.shared_memory_road import SharedMemoryRoads
from tests.support import road_pairs
from tests.support.breadth import all_wide_but, wide
from tests.support.patience import PATIENCE_SECONDS

MIB = 1 << 20
Ends = tuple[Road, Road]
# Nothing, less than a piece, whole pieces, more than one with a rest, more than all slots.
# The roads keep some 8 MiB each way.
LARGE = 24 * MIB
SIZES = (0, 1, 4 * MIB + 1, 0, 3, 8 * MIB, LARGE, 65_537)
HERE = "127.0.0.1"


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short one: a Unix socket's path has some hundred characters at most."""
    with tempfile.TemporaryDirectory(prefix="kk-") as folder:
        yield Path(folder)


ROADS = ["shared_memory", "shared_files", "ring"]
# The processes of a ring take longest to start. What is said of the end of a road is said of
# rings too where one closes, where a deadline is over, and where a transfer is broken off.
no_ring = pytest.mark.parametrize("builder", all_wide_but(ROADS[:2], ROADS), indirect=True)


@pytest.fixture(params=ROADS)
def builder(request: pytest.FixtureRequest, tmp_path: Path) -> RoadBuilder:
    if request.param == "shared_memory":
        return SharedMemoryRoads()
    if request.param == "shared_files":
        return SharedMemoryRoads(directory=tmp_path, piece_bytes=100_001, slot_count=2)
    if importlib.util.find_spec("mlx") is None:
        pytest.skip("MLX is not installed")
    return RingRoads(HERE)


@pytest.fixture
async def road(builder: RoadBuilder, tmp_path: Path) -> AsyncIterator[Ends]:
    """Both ends; the test may close them. Nothing may be left of them."""
    async with road_pairs.leaves_nothing(tmp_path):
        near, far = await road_pairs.pair(builder)
        yield near, far
        await near.close()
        await far.close()


async def test_bytes_arrive_in_order_both_ways_at_once(road: Ends, builder: RoadBuilder) -> None:
    near, far = road
    assert near.kind is far.kind is builder.kind

    async def send(end: Road, seed: int) -> None:
        for number, size in enumerate(SIZES):
            data = road_pairs.bytes_of(size, seed + number)
            kept = bytes(data[:100])
            await end.send(data, seconds=60)
            # What send has returned for belongs to the caller again.
            data[:] = bytes(len(data))
            assert size == 0 or kept != bytes(data[:100]) or size < 4

    async def receive(end: Road, seed: int) -> None:
        came = []
        for number, size in enumerate(SIZES):
            data = await end.receive(size, seconds=60)
            assert road_pairs.same(data, road_pairs.bytes_of(size, seed + number)), number
            came.append(data)
        # What receive has returned is not written over by what comes later.
        for number in range(4):
            assert road_pairs.same(came[number], road_pairs.bytes_of(SIZES[number], seed + number))

    await asyncio.gather(send(near, 1), receive(far, 1), send(far, 101), receive(near, 101))


@no_ring
async def test_calls_of_one_end_are_served_in_their_order(road: Ends) -> None:
    near, far = road
    data = [road_pairs.bytes_of(3 * MIB + number, number) for number in range(4)]
    sending = [asyncio.ensure_future(near.send(each, seconds=20)) for each in data]
    receiving = [asyncio.ensure_future(far.receive(len(each), seconds=20)) for each in data]
    came = await asyncio.gather(*receiving)
    await asyncio.gather(*sending)
    assert all(road_pairs.same(one, other) for one, other in zip(came, data, strict=True))


@pytest.mark.parametrize(
    ("builder", "closing"),
    [("shared_memory", 0), ("shared_files", 1), wide("ring", 0), ("ring", 1)],
    indirect=["builder"],
)
async def test_close_ends_transfers_of_both_ends(road: Ends, closing: int) -> None:
    ends = road
    await road_pairs.carry(*ends, road_pairs.bytes_of(10))
    waiting = [asyncio.ensure_future(end.receive(10, seconds=30)) for end in ends]
    sending = asyncio.ensure_future(ends[0].send(road_pairs.bytes_of(LARGE), seconds=30))
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await ends[closing].close()
        for each in (*waiting, sending):
            with pytest.raises(RoadFailed):
                await each
        for end in ends:
            with pytest.raises(RoadFailed):
                await end.receive(0, seconds=30)
            with pytest.raises(RoadFailed):
                await end.send(road_pairs.bytes_of(1), seconds=30)
        await ends[closing].close()


async def test_a_deadline_ends_the_road_for_both_directions(road: Ends) -> None:
    near, far = road
    with pytest.raises(RoadFailed, match=r"0\.05 s"):
        await near.receive(1, seconds=0.05)
    with pytest.raises(RoadFailed, match=r"0\.05 s"):
        await near.send(memoryview(b"x"), seconds=30)
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(RoadFailed):
            await far.receive(1, seconds=30)


@no_ring
async def test_a_deadline_while_the_slots_are_full(road: Ends) -> None:
    near, far = road
    data = road_pairs.bytes_of(LARGE)
    with pytest.raises(RoadFailed, match=r"took longer than 0\.05 s"):
        await near.send(data, seconds=0.05)
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(RoadFailed):
            await far.receive(len(data), seconds=30)


async def test_a_transfer_that_is_broken_off_never_leaves_half_of_it(road: Ends) -> None:
    near, far = road
    data = road_pairs.bytes_of(LARGE)
    # More than all slots hold, and nobody receives: it is certainly amid.
    sending = asyncio.ensure_future(near.send(data, seconds=30))
    await asyncio.wait({sending}, timeout=0.02)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(RoadFailed):
            await far.receive(len(data), seconds=30)
        with pytest.raises(RoadFailed, match="broken off"):
            await near.send(road_pairs.bytes_of(1), seconds=30)


# Files are divided finer: that costs more turns, and none that is longer.
@pytest.mark.parametrize("builder", ["shared_memory", wide("ring")], indirect=True)
async def test_the_loop_goes_on_while_64_mib_travel(road: Ends) -> None:
    data = road_pairs.bytes_of(64 * MIB)
    near, far = road
    await road_pairs.carry(near, far, data)
    with road_pairs.LoopTurns() as turns:
        await asyncio.gather(road_pairs.carry(near, far, data), road_pairs.carry(far, near, data))
    assert turns.count >= 128, "a turn for each MiB at least"


async def test_what_is_not_built_leaves_nothing(builder: RoadBuilder, tmp_path: Path) -> None:
    async with road_pairs.leaves_nothing(tmp_path):
        caller, other = await road_pairs.plans(builder)
        await caller.abandon()
        await other.abandon()
        await caller.abandon()


async def test_a_build_that_is_cancelled_leaves_nothing(
    builder: RoadBuilder, tmp_path: Path
) -> None:
    for seconds in (0.0, 0.02, 0.2):
        async with road_pairs.leaves_nothing(tmp_path):
            caller, other = await road_pairs.plans(builder)
            building = asyncio.ensure_future(caller.build(other.terms))
            await asyncio.sleep(seconds)
            building.cancel()
            with pytest.raises(asyncio.CancelledError):
                await building
            await other.abandon()


async def test_a_nonce_is_a_secret_that_terms_never_say(builder: RoadBuilder) -> None:
    for refused in (b"", b"x" * 15, b"x" * 65):
        with pytest.raises(RoadFailed, match="nonce"):
            await builder.propose(refused)
    nonce = bytes(range(65, 97))
    caller, other = await road_pairs.plans(builder, nonce=nonce)
    said = str(caller.terms) + str(other.terms)
    assert nonce.hex() not in said
    assert nonce.decode() not in said
    await caller.abandon()
    await other.abandon()
