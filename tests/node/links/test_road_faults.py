"""Roads whose children, peers, secrets or memory fail: heard of in time, and nothing is left."""

import asyncio
import importlib.util
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from kakeya_fleet.engine.backends.mlx_ring.protocol import proof
from kakeya_fleet.node.links.roads.contract import Road, RoadBuilder, RoadFailed
from kakeya_fleet.node.links.roads.meeting import Meeting, host_digest
from kakeya_fleet.node.links.roads.ring_road import RingRoads
from kakeya_fleet.node.links.roads.segment import anonymous_file, seal
from kakeya_fleet.node.links.roads.shared_memory_road import SharedMemoryRoads
from tests.support import road_pairs

MIB = 1 << 20
HERE = "127.0.0.1"
# Longer than a test may take: what ends has noticed a death; measured: after 0.03 s.
FOR_EVER_SECONDS = 300.0

ring = pytest.mark.skipif(importlib.util.find_spec("mlx") is None, reason="MLX is not installed")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A short one: a Unix socket's path has some hundred characters at most."""
    with tempfile.TemporaryDirectory(prefix="kk-") as folder:
        yield Path(folder)


def held_by(folder: Path) -> set[Path]:
    return set(folder.iterdir())


async def both_fail(ends: Iterable[Road], byte_count: int = 1) -> None:
    """Both directions of both ends raise at once."""
    for end in ends:
        with pytest.raises(RoadFailed):
            # What was under way may still arrive before the end is noticed.
            while True:
                await end.receive(byte_count, seconds=FOR_EVER_SECONDS)
        with pytest.raises(RoadFailed):
            await end.send(memoryview(bytes(byte_count)), seconds=FOR_EVER_SECONDS)


async def child_of(building: asyncio.Future[Road]) -> psutil.Process:
    """The child that a build has started."""
    await road_pairs.until(lambda: building.done() or road_pairs.ring_children())
    return road_pairs.ring_children()[0]


@ring
async def test_a_killed_child_ends_the_road_at_once() -> None:
    data = memoryview(bytes(64 * MIB))
    async with road_pairs.leaves_nothing():
        near, far = await road_pairs.pair(RingRoads(HERE))
        transfers = (
            road_pairs.carry(near, far, data, FOR_EVER_SECONDS),
            road_pairs.carry(far, near, data, FOR_EVER_SECONDS),
        )
        tasks = [asyncio.ensure_future(each) for each in transfers]
        await asyncio.wait(tasks, timeout=0.01)
        os.kill(road_pairs.ring_children()[1].pid, signal.SIGKILL)
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, RoadFailed) for each in ended), ended
        await both_fail((near, far))
        await near.close()
        await far.close()


@ring
async def test_a_frozen_child_ends_the_road_at_the_deadline() -> None:
    data = memoryview(bytes(64 * MIB))
    async with road_pairs.leaves_nothing():
        near, far = await road_pairs.pair(RingRoads(HERE))
        os.kill(road_pairs.ring_children()[1].pid, signal.SIGSTOP)
        ended = await asyncio.gather(
            near.send(data, seconds=0.5),
            far.receive(len(data), seconds=0.5),
            far.send(data, seconds=0.5),
            near.receive(len(data), seconds=0.5),
            return_exceptions=True,
        )
        assert all(isinstance(each, RoadFailed) for each in ended), ended
        await both_fail((near, far))
        await near.close()
        await far.close()


@ring
@pytest.mark.parametrize(("sent", "rank"), [(signal.SIGKILL, 0), (signal.SIGSTOP, 1)])
async def test_a_child_that_dies_or_freezes_before_ready(sent: signal.Signals, rank: int) -> None:
    # Rank 0 is killed once it listens, however late that is on a busy machine.
    ready_seconds = 20.0 if rank == 0 else 0.5
    async with road_pairs.leaves_nothing():
        caller, other = await road_pairs.plans(RingRoads(HERE, ready_seconds=ready_seconds))
        # Alone, the child waits inside MLX: rank 0 to be called, rank 1 to be answered.
        plan, peer = (other, caller) if rank == 0 else (caller, other)
        building = asyncio.ensure_future(plan.build(peer.terms))
        child = await child_of(building)
        # Rank 1 is met at its very start.
        await road_pairs.until(lambda: rank == 1 or _listens(child))
        os.kill(child.pid, sent)
        with pytest.raises(RoadFailed, match=r"signal 9|READY"):
            await building
        await peer.abandon()


@ring
async def test_a_stranger_that_echoes_is_no_peer() -> None:
    """It takes both of the peer's places in the ring and gives back all that it hears."""
    called: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
    called = asyncio.get_running_loop().create_future()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async with road_pairs.leaves_nothing():
        server = await asyncio.start_server(lambda *both: called.set_result(both), HERE, 0)
        terms = {"address": f"{HERE}:{server.sockets[0].getsockname()[1]}"}
        plan = await RingRoads(HERE).answer(secrets.token_bytes(32), terms)
        building = asyncio.ensure_future(plan.build(terms))
        left_reader, left_writer = await _connected(plan.terms["address"], building)
        right_reader, right_writer = await called
        # The ring hears on one side what it said on the other.
        echoing = [echo(left_reader, right_writer), echo(right_reader, left_writer)]
        with pytest.raises(RoadFailed, match="nonce"):
            await asyncio.gather(building, *echoing)
        server.close()


@ring
async def test_a_stranger_that_says_nothing_costs_the_ready_time() -> None:
    async with road_pairs.leaves_nothing():
        caller, other = await road_pairs.plans(RingRoads(HERE, ready_seconds=2.0))
        building = asyncio.ensure_future(other.build(caller.terms))
        _, writer = await _connected(other.terms["address"], building)
        ended = await asyncio.gather(building, caller.build(other.terms), return_exceptions=True)
        assert all("READY" in str(end) for end in ended), ended
        assert all(isinstance(end, RoadFailed) for end in ended), ended
        writer.close()


async def _connected(
    address: str, building: asyncio.Future[Road]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = address.split(":")
    while True:
        assert not building.done(), building
        try:
            return await asyncio.open_connection(host, int(port))
        except ConnectionRefusedError:
            await asyncio.sleep(0.005)


@ring
async def test_an_idle_ring_takes_no_time_of_a_core_and_hears_of_the_death_of_a_child() -> None:
    """MLX spins while it waits for bytes, so nothing is awaited that was not announced."""

    def used() -> float:
        times = (child.cpu_times() for child in road_pairs.ring_children())
        return sum(each.user + each.system for each in times)

    async with road_pairs.leaves_nothing():
        ends = await road_pairs.pair(RingRoads(HERE))
        await road_pairs.carry(ends[0], ends[1], road_pairs.bytes_of(MIB))
        before = used()
        await asyncio.sleep(0.5)
        assert used() - before < 0.1
        os.kill(road_pairs.ring_children()[0].pid, signal.SIGKILL)
        # The survivor ends by itself: what it would send now would be lost unsaid.
        await road_pairs.until(lambda: not road_pairs.ring_children())
        await both_fail(ends)
        for end in ends:
            await end.close()


@pytest.mark.parametrize(
    ("roads", "segment_count"), [(SharedMemoryRoads, 1), (lambda **of: RingRoads(HERE, **of), 2)]
)
async def test_full_shared_memory_is_said_and_given_back(
    roads: Callable[..., RoadBuilder], segment_count: int
) -> None:
    async with road_pairs.leaves_nothing():
        # Each segment has 16 MiB and a page; a ring has one at each end.
        builder = roads(
            limit_bytes=(16 * segment_count + 15) * MIB, piece_bytes=4 * MIB, slot_count=2
        )
        plans = await road_pairs.plans(builder)
        for _ in range(2):
            with pytest.raises(RoadFailed, match="shared memory"):
                await builder.propose(secrets.token_bytes(32))
        for plan in plans:
            await plan.abandon()
        again = await builder.propose(secrets.token_bytes(32))
        await again.abandon()


async def test_memory_that_the_host_does_not_give(tmp_path: Path) -> None:
    """The limit on the size of files holds for segments too, as a full host does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with road_pairs.leaves_nothing(tmp_path):
        for builder in (SharedMemoryRoads(), SharedMemoryRoads(directory=tmp_path)):
            resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, limits[1]))
            try:
                with pytest.raises(RoadFailed, match=r"no shared memory .* File too large"):
                    await builder.propose(secrets.token_bytes(32))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            again = await builder.propose(secrets.token_bytes(32))
            await again.abandon()


async def test_shared_memory_with_different_nonces() -> None:
    async with road_pairs.leaves_nothing():
        plans = await road_pairs.plans(
            SharedMemoryRoads(ready_seconds=0.5), other_nonce=secrets.token_bytes(32)
        )
        near, far = await road_pairs.outcomes(*plans)
        assert "within 0.5 s" in str(near)
        assert isinstance(far, RoadFailed)


async def test_a_silent_stranger_at_the_meeting_does_not_keep_the_peer_out() -> None:
    async with road_pairs.leaves_nothing():
        caller, other = await road_pairs.plans(SharedMemoryRoads())
        name = "\0" + caller.terms["socket"][1:]
        with socket.socket(socket.AF_UNIX) as stranger, socket.socket(socket.AF_UNIX) as liar:
            stranger.connect(name)
            liar.connect(name)
            liar.sendall(secrets.token_bytes(32))
            ends = await road_pairs.outcomes(caller, other)
            # Neither was given the segment.
            assert stranger.recv(1) == liar.recv(1) == b""
        data = road_pairs.bytes_of(MIB)
        near, far = ends
        assert not isinstance(near, BaseException)
        assert not isinstance(far, BaseException)
        assert road_pairs.same(await road_pairs.carry(near, far, data), data)
        await near.close()
        await far.close()


async def test_another_host_is_refused_at_once() -> None:
    builder = SharedMemoryRoads()
    caller = await builder.propose(secrets.token_bytes(32))
    with pytest.raises(RoadFailed, match="another host"):
        await builder.answer(secrets.token_bytes(32), {**caller.terms, "host": "f" * 64})
    await caller.abandon()


@pytest.mark.parametrize(
    ("holds", "size", "said"), [(False, 0, "nonce"), (True, 1, "has .* bytes"), (True, 0, "")]
)
async def test_a_segment_without_the_nonce_is_not_the_callers(
    holds: bool, size: int, said: str
) -> None:
    """Somebody who knows the nonce by name only hands over memory of his own."""
    nonce = secrets.token_bytes(32)
    async with road_pairs.leaves_nothing():
        meeting = Meeting(None)
        terms = {
            "host": host_digest(),
            "socket": meeting.address,
            "piece_bytes": "4096",
            "slot_count": "1",
        }
        other = await SharedMemoryRoads(ready_seconds=2).answer(nonce, terms)
        building = asyncio.ensure_future(other.build(terms))
        comer = await meeting.next_comer()
        assert await asyncio.get_running_loop().sock_recv(comer, 100) == proof(
            nonce, "answering end"
        )
        memory = anonymous_file(None)
        os.ftruncate(memory, 4096 * 3 + size)
        seal(memory)
        os.pwrite(memory, nonce if holds else b"", 0)
        socket.send_fds(comer, [b"\0"], [memory])
        os.close(memory)
        if said:
            with pytest.raises(RoadFailed, match=said):
                await building
        else:
            await (await building).close()
        comer.close()
        meeting.close()


async def test_terms_that_are_no_ring_address() -> None:
    async with road_pairs.leaves_nothing():
        for terms in ({}, {"address": "h"}, {"address": "[::1]:1"}, {"address": "h:0"}):
            with pytest.raises(RoadFailed, match="address"):
                await RingRoads(HERE).answer(secrets.token_bytes(32), terms)
            plan = await RingRoads(HERE).propose(secrets.token_bytes(32))
            with pytest.raises(RoadFailed, match="address"):
                await plan.build(terms)


async def test_a_killed_agents_socket_is_swept(tmp_path: Path) -> None:
    """Where sockets have names, the next start removes those of the dead, and no others."""
    dead = tmp_path / f"kakeya-road-{os.getpid()}-12345-abcd"
    foreign = tmp_path / "kakeya-road-notes.txt"
    dead.touch()
    foreign.touch()
    builder = SharedMemoryRoads(directory=tmp_path)
    first = await builder.propose(secrets.token_bytes(32))
    second = await builder.propose(secrets.token_bytes(32))
    names = {Path(plan.terms["socket"]) for plan in (first, second)}
    assert held_by(tmp_path) == names | {foreign}
    await first.abandon()
    await second.abandon()
    assert held_by(tmp_path) == {foreign}


AGENT = """
import asyncio, secrets
from kakeya_fleet.node.links.roads.ring_road import RingRoads

async def main():
    nonce, builder = secrets.token_bytes(32), RingRoads("127.0.0.1", ready_seconds=60)
    caller = await builder.propose(nonce)
    # Only rank 0: its child waits inside MLX and holds its interpreter.
    await (await builder.answer(nonce, caller.terms)).build(caller.terms)

asyncio.run(main())
"""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of which the road's part is not READY."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    root = Path(__file__).parents[3]
    with subprocess.Popen([sys.executable, "-c", AGENT], env=environment, cwd=root) as process:
        yield process
        process.kill()


@ring
async def test_an_agent_that_is_killed_before_its_ring_is_ready_leaves_nothing(
    agent: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    await road_pairs.until(lambda: any(map(_listens, road_pairs.ring_children(agent.pid))))
    (child,) = road_pairs.ring_children(agent.pid)
    ports = {entry.laddr.port for entry in child.net_connections("tcp")}
    assert ports
    before = {each.pid for each in psutil.Process(agent.pid).children(recursive=True)}
    agent.kill()
    await road_pairs.until(lambda: not child.is_running())
    assert road_pairs.files((tmp_path,)) == []
    # A port that is free again may be another's by now: what counts is whose it is.
    listening = {
        entry.pid
        for entry in psutil.net_connections("tcp")
        if entry.status == "LISTEN" and entry.laddr and entry.laddr.port in ports
    }
    assert not listening & {agent.pid, *before}


def _listens(child: psutil.Process) -> bool:
    try:
        return any(entry.status == "LISTEN" for entry in child.net_connections("tcp"))
    except psutil.Error:
        return False
