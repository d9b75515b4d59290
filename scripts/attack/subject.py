"""The agent that is attacked: a real process, what it holds, and what its log says."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import aiohttp
import psutil
from prometheus_client.parser import text_string_to_metric_families

from kakeya import AsyncClient
from scripts.bench.soak_agent import PROBE_TOKENS, differing, probe
from scripts.support.agent_process import AgentProcess, LocalFleet

MODEL = "tiny"
PROPOSERS = ("ngram", "tiny-dflash")
SERVED = (f"verifier={MODEL}", *(f"proposer={name}" for name in PROPOSERS), "archive=512MiB")
"""All roles, of the smallest models that are shipped."""
PROMPT = [(7 * index) % 512 + 300 for index in range(PROBE_TOKENS)]
LEAVING_SECONDS = 30.0
"""What callers who have gone may hold a little longer."""
LOOK_SECONDS = 0.1
REST_SECONDS = 2.0
EVENTS = "watches.events"
_RAISED = re.compile(r"^  File .*\n(?: {3,}.*\n)*([A-Za-z_][\w.]*(?:: .{0,120})?)", re.MULTILINE)
"""The last line of a traceback that stands in the log as it is, and not in an event."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a process has now, as the system says."""

    resident_bytes: int
    descriptors: int
    threads: int


def held_by(process: psutil.Process) -> Held:
    """Raises `psutil.NoSuchProcess` when it has ended."""
    return Held(process.memory_info().rss, process.num_fds(), process.num_threads())


class Subject:
    """One agent under attack; it is asked for the same answers before and after."""

    def __init__(self, agent: AgentProcess, fleet: LocalFleet) -> None:
        """Waits until it is ready."""
        self.agent = agent
        self._fleet = fleet
        self.address = str(agent.ready.get("local_address") or agent.address)
        """Where programs of this machine call it."""
        self.member_address = agent.address
        self.http_address = str(agent.ready["http_address"])
        self.process = psutil.Process(agent.pid)
        self._answers: dict[str, str] = {}

    def join(self, name: str) -> str:
        """Starts a node that joins the agent's fleet through it; its id, once it has joined."""
        newcomer = self._fleet.start(name, peers=[self.address])
        newcomer.wait_for("peer_joined", seconds=60)
        return str(newcomer.ready["node_id"])

    def held(self) -> Held:
        """Raises `psutil.NoSuchProcess` when it has ended."""
        return held_by(self.process)

    async def archive_address(self) -> str:
        """Where ArchiveService answers, by its card."""
        async with AsyncClient(self.address) as client:
            card = (await client.fleet.node()).card
        if card.archive is None:
            raise ValueError("the agent's card names no archive")
        return f"{self.address.rpartition(':')[0]}:{card.archive.port}"

    async def differing_answers(self) -> list[str]:
        """Names of answers to a fixed prompt that are other ones than those of the first look."""
        async with AsyncClient(self.address) as client:
            answers = await probe(client, MODEL, PROMPT)
        self._answers = self._answers or answers
        return differing(answers, self._answers)

    def log_faults(self) -> dict[str, object]:
        """What of its log tells of something that it did not expect."""
        log = self.agent.log
        errors: Counter[str] = Counter()
        for line in log.splitlines():
            event = _event(line)
            if event.get("level") in {"error", "critical"}:
                words = str(event.get("exception", "")).strip().splitlines()
                errors[" ".join([str(event.get("event")), *words[-1:]])] += 1
        raised = Counter(_RAISED.findall(log))
        return {"errors": dict(errors), "raised": dict(raised), "bytes": len(log)}

    async def errors_by_reason(self) -> dict[str, float]:
        """What the agent itself has counted of calls that ended with an error."""
        return await self._samples("kakeya_rpc_errors_total", "reason")

    async def used(self) -> dict[str, float]:
        """What callers hold of each of the agent's bounds, as it counts.

        Without the latest events: what happens fills them, and nobody gives them back.
        """
        found = await self._samples("kakeya_admission_used", "limit")
        return {limit: used for limit, used in found.items() if used and limit != EVENTS}

    async def used_again(self, before: Mapping[str, float]) -> dict[str, float]:
        """`used`, once that is `before` again, or else after `LEAVING_SECONDS`."""
        ends = time.monotonic() + LEAVING_SECONDS
        used = await self.used()
        while used != before and time.monotonic() < ends:
            await asyncio.sleep(LOOK_SECONDS)
            used = await self.used()
        return used

    async def used_at_rest(self) -> dict[str, float]:
        """`used`, once nothing was given back for `REST_SECONDS`, or after `LEAVING_SECONDS`."""
        ends = time.monotonic() + LEAVING_SECONDS
        used = None
        while (now := await self.used()) != used and time.monotonic() < ends:
            used = now
            await asyncio.sleep(REST_SECONDS)
        return now

    async def stalls(self) -> dict[str, dict[str, float]]:
        """Stalls of the agent's event loop beyond 100 ms since its start, by cause."""
        counts = await self._samples("kakeya_event_loop_stall_seconds_count", "cause")
        sums = await self._samples("kakeya_event_loop_stall_seconds_sum", "cause")
        return {
            cause: {"count": count, "seconds": sums[cause]}
            for cause, count in counts.items()
            if count
        }

    async def kept_bytes(self) -> dict[str, float]:
        """Bytes that it counts as kept for callers: keys and values, archives, links."""
        links = (await self._samples("kakeya_admission_used", "limit")).get("links.memory_bytes")
        return {
            "keys and values": (await self._samples("kakeya_kv_bytes", ""))[""],
            "archives": (await self._samples("kakeya_archive_bytes", ""))[""],
            "links": links or 0.0,
        }

    async def _samples(self, name: str, label: str) -> dict[str, float]:
        """By the value of `label`; one without labels is under an empty name."""
        async with aiohttp.ClientSession() as session:
            text = await (await session.get(f"http://{self.http_address}/metrics")).text()
        return {
            sample.labels.get(label, ""): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        }

    def report(self) -> dict[str, object]:
        """What it holds, or that it has ended."""
        return asdict(self.held()) if self.agent.running else {"exit": self.agent.wait()}


def _event(line: str) -> Mapping[str, object]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def attacked(
    name: str,
    environment: Mapping[str, str] | None = None,
    files: int | None = None,
    directory: Path | None = None,
) -> Iterator[Subject]:
    """An agent of a fleet of its own with all roles; it is ended with the context.

    It may have `files` open, as many as this process may by default. Its state is in the folder of
    its name in `directory`, where it may be a member already.
    """
    own = {
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # Names of models that are made up are looked for nowhere else.
        "HF_HUB_OFFLINE": "1",
        **(environment or {}),
    }
    with LocalFleet(f"attack-{name}", directory=directory) as fleet:
        agent = fleet.start(name, serve=SERVED, environment=own)
        if files is not None:
            # Long before it looks how many it may have: it has to load its libraries first.
            resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (files, files))
        yield Subject(agent, fleet)
