"""How fast a model's files go from node to node, beside plain TCP, and when a source dies.

    python -m scripts.bench.model_copy --out benchmarks/model_copy.json

Real agents on this machine, each with a store of its own: over loopback, then over a wire of
1 Gbit/s between two network namespaces, where they may be had. Sources have a model of
`--megabytes` of random bytes, which they have pulled, so that its digests are known. Per round, in
an order shuffled anew: `raw TCP`, one connection between two processes that carries as many bytes
in pieces of 8 MiB and keeps none; a copy from one source; from two; and from two of which one is
killed when half has come. A copy's seconds are from the call to its end, all bytes hashed, written
and brought to the disk (fsync). Beside them stand what one thread takes to hash the bytes, and what
it takes to write them and bring them to the disk: a copy does both; and the processor time, user
and kernel, of target and source in a copy from one. Target and sources share this machine's
processors, which two machines would not.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import random
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from kakeya import AsyncClient, PulledModel
from kakeya_fleet.engine.models import pulled_models
from kakeya_fleet.engine.models.model_manifest import PIECE_BYTES, Manifest, ModelFile
from kakeya_fleet.engine.models.pulled_models import PulledPart
from scripts.bench.intervals import summary
from scripts.bench.machine import command, machine, write_report
from scripts.bench.network_namespaces import FAR, NEAR, SLOW, TwoNamespaces, what_is_missing
from scripts.bench.raw_tcp import raw_tcp_peer
from scripts.support.agent_process import AgentProcess, LocalFleet
from scripts.support.child_process import Behind

MODEL, TARGET = "measured", "target"
MB = 10**6
WEIGHTS = "model.safetensors"
RAW, HASHED, WRITTEN = "raw TCP", "hashed", "written"
ONE, TWO, KILLED = "one source", "two sources", "two sources, one killed"
GOAL = 0.8
"""Of the link's speed."""
SEED = 20_261_127


def make_model(store: Path, byte_count: int, rng: random.Random) -> bytes:
    """Puts the model into a store, as a pull would; its weights."""
    # More at once than Python makes.
    data = b"".join(rng.randbytes(MB) for _ in range(byte_count // MB))
    files = {"config.json": b"{}", WEIGHTS: data}
    digests = b"".join(
        hashlib.sha256(content[start : start + PIECE_BYTES]).digest()
        for content in files.values()
        for start in range(0, len(content), PIECE_BYTES)
    )
    named = tuple(ModelFile(name, len(content)) for name, content in files.items())
    with _store_at(store):
        part = PulledPart(Manifest(MODEL, named, digests))
        part.open()
        for piece in part.manifest.pieces():
            part.write(piece, files[piece.file][piece.offset : piece.offset + piece.byte_count])
        part.finish(["nobody"])
        part.close()
    return data


@contextmanager
def _store_at(store: Path) -> Any:
    """Has this process keep models there."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(store)
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = before


@dataclass(frozen=True, slots=True)
class Ground:
    """Where target and sources are; `behind` starts what is at `far`."""

    near: str
    far: str
    behind: Behind = list


LOOPBACK = Ground("127.0.0.1", "127.0.0.1")


class Copies:
    """A fleet of two sources and a target."""

    def __init__(self, fleet: LocalFleet, folder: Path, byte_count: int, ground: Ground) -> None:
        self._fleet, self._folder, self._ground = fleet, folder, ground
        self.data = b""
        for name in ("source-1", "source-2"):
            # Of one seed: both have the same bytes.
            self.data = make_model(folder / name, byte_count, random.Random(SEED))
        self._target = self._start(TARGET)
        self._sources = {name: self._start(name) for name in ("source-1", "source-2")}

    def _start(self, name: str) -> AgentProcess:
        peers = [each.address for each in self._fleet.agents if each.running]
        store = self._folder / name
        environment = {
            "XDG_CACHE_HOME": str(store),
            "OMP_NUM_THREADS": "1",
            "KAKEYA_INSECURE": "true",
        }
        is_near = name == TARGET
        agent = self._fleet.start(
            name,
            peers=peers,
            bind=f"{self._ground.near if is_near else self._ground.far}:0",
            environment=environment,
            behind=list if is_near else self._ground.behind,
        )
        agent.wait_for("ready", seconds=300)
        return agent

    async def copy(self, names: Sequence[str], *, kills: bool = False) -> dict[str, Any]:
        """One copy from these sources, the last of which is killed when half has come."""
        ids = [self._sources[name].node_id for name in names]
        victim = self._sources[names[-1]]
        agents = [self._target, *(self._sources[name] for name in names)]
        async with AsyncClient(self._target.address) as client:
            await _knows(client, ids)
            before = {} if kills else _processor_seconds(agents)
            began = time.perf_counter()
            pull = client.fleet.pull_model(MODEL, sources=ids)
            killed_at = 0
            async for progress in pull:
                transfer = progress.transfer
                done = transfer.done_bytes if transfer is not None else 0
                if kills and not killed_at and 2 * done >= len(self.data):
                    killed_at = done
                    victim.kill()
            seconds = time.perf_counter() - began
            after = {} if kills else _processor_seconds(agents)
            pulled = pull.pulled
            assert pulled is not None
            self._check(pulled)
            await client.fleet.remove_model(MODEL)
        if not victim.running:
            self._sources[names[-1]] = self._start(names[-1])
        return {
            "seconds": seconds,
            "processor_seconds": {name: after[name] - before[name] for name in after},
            "killed_at_bytes": killed_at,
            "from": {each.node_name: each.done_bytes for each in pulled.sources},
            "faults": {each.node_name: each.fault for each in pulled.sources if each.fault},
        }

    def _check(self, pulled: PulledModel) -> None:
        with _store_at(self._folder / TARGET):
            place = pulled_models.stored_place(MODEL)
        assert place is not None
        assert (place / WEIGHTS).read_bytes() == self.data
        assert pulled.byte_count == len(self.data) + len(b"{}")


def _processor_seconds(agents: Sequence[AgentProcess]) -> dict[str, float]:
    """Of each so far, in user and kernel."""
    times = {each.options.name: psutil.Process(each.pid).cpu_times() for each in agents}
    return {name: found.user + found.system for name, found in times.items()}


async def _knows(client: AsyncClient, ids: Sequence[str]) -> None:
    """Waits until the target has the cards of those nodes."""
    async with asyncio.timeout(60), client.fleet.watch() as events:
        async for _ in events:
            if set(ids) <= {each.node_id for each in await client.fleet.nodes()}:
                return


def hashed(data: bytes, _folder: Path, _ground: Ground) -> float:
    """Seconds in which one thread hashes the bytes, a piece at a time."""
    view, began = memoryview(data), time.perf_counter()
    for start in range(0, len(data), PIECE_BYTES):
        hashlib.sha256(view[start : start + PIECE_BYTES]).digest()
    return time.perf_counter() - began


def written(data: bytes, folder: Path, _ground: Ground) -> float:
    """Seconds in which they are written and brought to the disk."""
    began = time.perf_counter()
    with (folder / "written").open("wb") as file:
        file.write(data)
        os.fsync(file.fileno())
    seconds = time.perf_counter() - began
    (folder / "written").unlink()
    return seconds


def raw(data: bytes, _folder: Path, ground: Ground) -> float:
    """Seconds in which one connection carries them."""
    view = memoryview(data)
    with raw_tcp_peer(ground.far, ground.behind) as way:
        way.transfer(view[:PIECE_BYTES])
        return sum(
            way.transfer(view[start : start + PIECE_BYTES])
            for start in range(0, len(data), PIECE_BYTES)
        )


PLAIN: dict[str, Callable[[bytes, Path, Ground], float]] = {
    RAW: raw,
    HASHED: hashed,
    WRITTEN: written,
}
BOTH = ("source-1", "source-2")
WIRE = SLOW.name
NETWORKS = ("loopback", WIRE)
"""In this order."""


async def measure(arguments: argparse.Namespace, folder: Path, ground: Ground) -> dict[str, Any]:
    """All ways, as often as asked."""
    seconds: dict[str, list[float]] = {}
    processor: dict[str, list[float]] = {}
    deaths: list[dict[str, Any]] = []
    with LocalFleet(f"copies-{secrets.token_hex(4)}", directory=folder / "agents") as fleet:
        copies = await asyncio.to_thread(Copies, fleet, folder, arguments.megabytes * MB, ground)
        order = random.Random(arguments.seed)
        for number in range(-1, arguments.rounds):
            ways = [*PLAIN, ONE, TWO, KILLED]
            for way in order.sample(ways, len(ways)):
                if way in PLAIN:
                    took = await asyncio.to_thread(PLAIN[way], copies.data, folder, ground)
                else:
                    names = BOTH[:1] if way == ONE else BOTH
                    found = await copies.copy(names, kills=way == KILLED)
                    took = found["seconds"]
                    if way == ONE and number >= 0:
                        for name, spent in found["processor_seconds"].items():
                            processor.setdefault(name, []).append(spent)
                    if found["killed_at_bytes"]:
                        deaths.append(found)
                # Round -1 warms every way up.
                if number >= 0:
                    seconds.setdefault(way, []).append(took)
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    byte_count = arguments.megabytes * MB
    middle = {way: sorted(found)[len(found) // 2] for way, found in seconds.items()}
    return {
        "ways": {
            way: {
                "seconds": summary(found),
                "gigabytes_per_second": byte_count / middle[way] / 1e9,
                "of_raw_tcp": middle[RAW] / middle[way],
            }
            for way, found in seconds.items()
        },
        "processor_seconds_a_gigabyte": {
            name: statistics.median(found) * 1e9 / byte_count for name, found in processor.items()
        },
        "deaths": deaths,
        "goal_of_raw_tcp": GOAL,
        "goal_met": middle[RAW] / middle[ONE] >= GOAL,
    }


def show(network: str, found: dict[str, Any]) -> None:
    """The figures as a table."""
    print(network)
    for way, each in found["ways"].items():
        print(
            f"{way:<26} {each['seconds']['median']:7.3f} s  "
            f"{each['gigabytes_per_second']:6.3f} GB/s  {each['of_raw_tcp']:5.2f} of raw TCP"
        )
    for name, seconds in found["processor_seconds_a_gigabyte"].items():
        print(f"{name}: {seconds:.2f} s of processors a GB")
    for death in found["deaths"]:
        print(f"killed after {death['killed_at_bytes'] / MB:.0f} MB: {death['faults']}")


def main(words: Sequence[str] | None = None) -> None:
    """Measures and writes JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the stores are; by default temporary")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(words)
    report: dict[str, Any] = {
        "command": command(__file__),
        "machine": machine(),
        "load_average": os.getloadavg()[0],
        "method": " ".join((__doc__ or "").split("\n\n")[2].split()),
        "megabytes": arguments.megabytes,
        "piece_bytes": PIECE_BYTES,
        "rounds": arguments.rounds,
        "seed": arguments.seed,
        "networks": {},
    }
    for network in arguments.networks:
        missing = what_is_missing() if network == WIRE else ""
        if missing:
            report["networks"][network] = {"left_out": missing}
            continue
        with ExitStack() as stack:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="kakeya-copies-", dir=arguments.folder)
            )
            road, ground = None, LOOPBACK
            if network == WIRE:
                # This process is alone behind the wire from here on: loopback comes first.
                namespaces = stack.enter_context(TwoNamespaces())
                road = namespaces.calibrated(SLOW)
                ground = Ground(NEAR, FAR, namespaces.behind)
            found = asyncio.run(measure(arguments, Path(folder), ground))
        report["networks"][network] = found | ({"road": road.summary()} if road else {})
        show(network, found)
        write_report(arguments.out, report)
    write_report(arguments.out, report)


if __name__ == "__main__":
    main()
