"""Pairs of roads in one process, what they leave behind, and how long the loop stalls."""

import asyncio
import os
import secrets
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import numpy as np
import psutil

from kakeya_fleet.node.links.roads.contract import Road, RoadBuilder, RoadPlan
from tests.support.patience import PATIENCE_SECONDS

CHILD = "kakeya_fleet.engine.backends.mlx_ring.ring_child"


def bytes_of(byte_count: int, seed: int = 0) -> memoryview:
    """Random bytes, the same for the same seed."""
    return memoryview(bytearray(np.random.default_rng(seed).bytes(byte_count)))


def same(one: memoryview, other: memoryview) -> bool:
    return len(one) == len(other) and np.array_equal(
        np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8)
    )


async def plans(
    builder: RoadBuilder, *, nonce: bytes | None = None, other_nonce: bytes | None = None
) -> tuple[RoadPlan, RoadPlan]:
    """What the caller proposes, and what the other end answers."""
    nonce = nonce or secrets.token_bytes(32)
    caller = await builder.propose(nonce)
    other = await builder.answer(other_nonce or nonce, caller.terms)
    return caller, other


async def outcomes(
    caller: RoadPlan, other: RoadPlan
) -> tuple[Road | BaseException, Road | BaseException]:
    """What both builds gave: a road or an error each, the caller's first."""
    far, near = await asyncio.gather(
        other.build(caller.terms), caller.build(other.terms), return_exceptions=True
    )
    return near, far


async def pair(builder: RoadBuilder) -> tuple[Road, Road]:
    """A built road: the caller's end and the other."""
    near, far = await outcomes(*await plans(builder))
    if isinstance(near, BaseException):
        raise near
    if isinstance(far, BaseException):
        raise far
    return near, far


async def carry(
    sender: Road, receiver: Road, data: memoryview, seconds: float = 20.0
) -> memoryview:
    """Sends and receives at once; what came."""
    _, came = await asyncio.gather(
        sender.send(data, seconds=seconds), receiver.receive(len(data), seconds=seconds)
    )
    return came


def ring_children(pid: int | None = None) -> list[psutil.Process]:
    """Processes of rings among the descendants of a process, zombies included."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            if process.status() == psutil.STATUS_ZOMBIE or CHILD in process.cmdline():
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return sorted(found, key=lambda process: process.pid)


def traces(folders: Iterable[Path] = ()) -> set[str]:
    """What a road may leave: children, descriptors, ports, threads, names in memory and files."""
    return {
        *(f"process {process.pid}" for process in ring_children()),
        *(f"descriptor {target}" for target in _descriptors()),
        *(f"port {entry.laddr.port}" for entry in psutil.Process().net_connections("tcp")),
        *(f"thread {thread.name}" for thread in threading.enumerate() if "road" in thread.name),
        *(f"file {path}" for path in files(folders)),
        *(f"mapped {path}" for path in _maps()),
    }


def files(folders: Iterable[Path] = ()) -> list[Path]:
    """Names of roads in shared memory, the temporary folder, and all that is in `folders`."""
    shared = (Path("/dev/shm"), Path(tempfile.gettempdir()))
    found = [path for folder in shared for path in folder.glob("kakeya-road*")]
    return found + [path for folder in folders for path in folder.iterdir()]


def _descriptors() -> Iterator[str]:
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if "kakeya" in target or target.startswith("socket:"):
            yield target


def _maps() -> set[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if "kakeya" in line}


async def until(condition: Callable[[], object], what: Callable[[], object] = lambda: "") -> None:
    """Waits for what nothing announces."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, what()
        await asyncio.sleep(0.005)


@asynccontextmanager
async def leaves_nothing(*folders: Path) -> AsyncIterator[None]:
    """Of what is made inside, nothing is left soon after."""
    before = traces(folders)
    yield
    await until(lambda: traces(folders) <= before, lambda: traces(folders) - before)


class LoopTurns:
    """How often the event loop turned: others could run as often."""

    def __init__(self) -> None:
        self.count = 0
        self._handle: asyncio.Handle | None = None

    def __enter__(self) -> Self:
        self._turn()
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _turn(self) -> None:
        self.count += 1
        self._handle = asyncio.get_running_loop().call_soon(self._turn)
