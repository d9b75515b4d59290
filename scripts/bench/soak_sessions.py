"""Hours of turns through the Python SDK against a real node, in buckets of ten minutes.

    python -m scripts.bench.soak_sessions --hours 4 --out benchmarks/soak.json
    python -m scripts.bench.soak_sessions --hours 2 --continue benchmarks/soak.json

Applications take turns on sessions of every kind of cache, with a drafter and without:
they append a few tokens, read the answer, think, leave one answer of ten in its middle,
fork now and then, and open another session when the context is used up. Each bucket
tells turns and their seconds, failures by reason, what the node holds, and whether the
answers to a fixed prompt are still the first ones, to the bit. The report is written
after each bucket; SIGINT and SIGTERM end the sitting with what was measured.
`--continue` adds a sitting to a report: a run is as long as its sittings together, and
the report says how many those were, of which commit, and how long the longest was.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psutil

from kakeya import AsyncClient, KakeyaError, NodeSample
from scripts.bench.machine import command, machine, write_report
from scripts.bench.soak_agent import PROBE_TOKENS, Application, Habits, differing, probe
from scripts.bench.soak_tally import Tally, totals
from scripts.support.agent_process import LocalFleet

SERVED = ["verifier=tiny", "proposer=tiny-dflash", "archive=256MiB"]
MODEL = "tiny"
TEXT_OF = argparse
"""The module whose source is what applications say."""


def commit() -> str | None:
    """The software's, with a plus sign when files differ from it; None without git."""
    root = Path(__file__).resolve().parents[2]
    said = subprocess.run(
        ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout.strip() or None if said.returncode == 0 else None


def cpu_seconds(process: psutil.Process) -> float:
    """Processor seconds that a process took so far, of the user and of the system."""
    times = process.cpu_times()
    return times.user + times.system


async def node_sample(client: AsyncClient) -> NodeSample:
    """What the node says of its next second. Raises `EOFError` when its stream ends first."""
    async with client.fleet.watch_node() as activity:
        async for event in activity:
            if isinstance(event, NodeSample):
                return event
    raise EOFError("the node ended its stream of samples")


class Sitting:
    """One run of the applications against one node, with its buckets as they are told."""

    def __init__(
        self,
        client: AsyncClient,
        node: psutil.Process,
        arguments: argparse.Namespace,
        write: Callable[[dict[str, object]], None],
    ) -> None:
        """`write` is given the sitting as it stands, after each bucket."""
        self._client = client
        self._node = node
        self._arguments = arguments
        self._write = write
        self._stop = asyncio.Event()
        self._prompt: list[int] = []
        self._first: dict[str, str] = {}
        self.told: dict[str, object] = {
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "command": command(__file__),
            "machine": machine(),
            "ended": "running",
            "buckets": [],
        }

    def stop(self) -> None:
        """Ends the sitting after the bucket that runs, which is cut."""
        self._stop.set()

    async def run(self) -> None:
        """All buckets."""
        codec = await self._client.text(MODEL)
        text = codec.encode(inspect.getsource(TEXT_OF))
        self._prompt = text[:PROBE_TOKENS]
        self._first = await probe(self._client, MODEL, self._prompt)
        self.told["probe_answers"] = self._first
        habits = Habits(self._arguments.pause_seconds)
        applications = [
            Application(self._client, MODEL, text, habits, seed)
            for seed in range(self._arguments.applications)
        ]
        living = [asyncio.create_task(each.live()) for each in applications]
        try:
            await self._buckets(applications, living)
        finally:
            for task in living:
                task.cancel()
            await asyncio.gather(*living, return_exceptions=True)

    async def _buckets(
        self, applications: list[Application], living: list[asyncio.Task[None]]
    ) -> None:
        buckets: list[dict[str, object]] = []
        self.told["buckets"] = buckets
        begun = time.monotonic()
        end = begun + self._arguments.hours * 3600.0
        while (now := time.monotonic()) < end and not self._stop.is_set():
            tally = Tally()
            for application in applications:
                application.tally = tally
            cpu = cpu_seconds(self._node)
            await self._rest(min(self._arguments.bucket_seconds, end - now), living)
            bucket = tally.summary(time.monotonic() - now)
            bucket["whole"] = not self._stop.is_set()
            bucket |= self._held(cpu) | await self._asked()
            buckets.append(bucket)
            self.told["ended"] = "asked" if self._stop.is_set() else "running"
            self._write(self.told)
        if not self._stop.is_set():
            self.told["ended"] = "hours"
            self._write(self.told)

    async def _rest(self, seconds: float, living: list[asyncio.Task[None]]) -> None:
        """Until the bucket is over. Raises what ended an application: it should never end."""
        stopped = asyncio.create_task(self._stop.wait())
        done, _ = await asyncio.wait(
            {stopped, *living}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        stopped.cancel()
        for task in done - {stopped}:
            task.result()

    def _held(self, cpu_before: float) -> dict[str, object]:
        """What the processes hold now, by the system."""
        return {
            "node_cpu_seconds": cpu_seconds(self._node) - cpu_before,
            "node_resident_bytes": self._node.memory_info().rss,
            "node_open_files": self._node.num_fds(),
            "node_threads": self._node.num_threads(),
            "client_resident_bytes": psutil.Process().memory_info().rss,
        }

    async def _asked(self) -> dict[str, object]:
        """What the node says that it holds, and whether it still answers as at first."""
        try:
            sample = await node_sample(self._client)
            answers = await probe(self._client, MODEL, self._prompt)
        except KakeyaError as error:
            return {"probe": {"answers": 0, "differed": [], "failed": error.reason}}
        return {
            "node_kv_bytes": sample.kv_bytes,
            "node_archive_bytes": sample.archive_bytes,
            "node_sessions": sample.session_count,
            "probe": {"answers": len(answers), "differed": differing(answers, self._first)},
        }


def begun_report(arguments: argparse.Namespace) -> dict[str, object]:
    """A new report, or the one that goes on."""
    if arguments.goes_on is not None:
        report: dict[str, object] = json.loads(arguments.goes_on.read_bytes())
        return report
    return {
        "what": " ".join((__doc__ or "").split("\n\n")[2].split()),
        "served": SERVED,
        "applications": arguments.applications,
        "pause_seconds": arguments.pause_seconds,
        "bucket_seconds": arguments.bucket_seconds,
        "sittings": [],
    }


def written_report(report: dict[str, object], path: Path, told: dict[str, object]) -> None:
    """Writes the report with the sitting as it stands, and says its latest bucket."""
    sittings = [*report["sittings"], told]  # type: ignore[misc]
    whole = {**report, "totals": totals(sittings), "sittings": sittings}
    write_report(path, whole)
    print(json.dumps(told["buckets"][-1]), file=sys.stderr, flush=True)  # type: ignore[index]


async def sit(arguments: argparse.Namespace, address: str, pid: int) -> None:
    """One sitting, from the node's readiness to the end of the last bucket."""
    report = begun_report(arguments)
    path = arguments.goes_on or arguments.out
    async with AsyncClient(address) as client:
        sitting = Sitting(
            client, psutil.Process(pid), arguments, partial(written_report, report, path)
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, sitting.stop)
        await sitting.run()


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--bucket-seconds", type=float, default=600.0)
    parser.add_argument("--applications", type=int, default=6)
    parser.add_argument(
        "--pause-seconds", type=float, default=1.0, help="mean think time before a turn"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/soak.json"))
    parser.add_argument(
        "--continue",
        dest="goes_on",
        type=Path,
        metavar="REPORT",
        help="adds this run to a report, instead of --out",
    )
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Starts the node, sits, ends the node."""
    arguments = parse(words)
    with LocalFleet("soak") as fleet:
        agent = fleet.start("soak", serve=SERVED)
        asyncio.run(sit(arguments, agent.address, agent.pid))


if __name__ == "__main__":
    main()
