"""Whole fleets of real processes on loopback.

fleet       an empty fleet; its agents are ended with the test
verifier    an agent of a fleet of its own that serves `tiny`, shared by a module
generate    tokens and end of one generation in a session of its own
freeze      stops a process, and returns when all of it stands still
warm        the folder of the process that agents are copies of, which runs

Tensors travel over gRPC unless a test sets KAKEYA_LINKS: test_link_faults is about the rest.
"""

import os
import signal
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import psutil
import pytest

from kakeya import AsyncClient, Completion, Speculation
from kakeya.options import GenerateOptions
from scripts.support.agent_process import AgentProcess, LocalFleet
from tests.support.patience import PATIENCE_SECONDS
from tests.warm.starting import WarmStarts

PROMPT = tuple(range(300, 340)) * 3
"""A history with repetitions, so that prompt lookup has something to draft."""


Generate = Callable[..., Awaitable[Completion]]


@pytest.fixture(scope="module", autouse=True)
def plain_links() -> Iterator[None]:
    """Agents try no ring, which takes each two processes, unless a test says otherwise."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("KAKEYA_LINKS", "grpc")
        yield


@pytest.fixture
def prompt() -> tuple[int, ...]:
    return PROMPT


@pytest.fixture
def fleet() -> Iterator[LocalFleet]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with LocalFleet(f"scenario-{uuid.uuid4().hex}") as agents:
        yield agents


@pytest.fixture(scope="module")
def shared_fleet() -> Iterator[LocalFleet]:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with LocalFleet(f"scenario-{uuid.uuid4().hex}") as agents:
        yield agents


@pytest.fixture(scope="module")
def verifier(shared_fleet: LocalFleet) -> AgentProcess:
    agent = shared_fleet.start("verifier", serve=("verifier=tiny",))
    assert agent.ready["address"]
    return agent


@pytest.fixture
def warm(warm_starts: WarmStarts, warm_folder: Path) -> Path:
    """For processes that make copies of it themselves."""
    warm_starts.begin()
    return warm_folder


@pytest.fixture
def generate() -> Generate:
    async def run(
        client: AsyncClient,
        history: Sequence[int],
        max_tokens: int,
        *,
        speculation: Speculation | Literal["auto", "off"] = "off",
        seed: int | None = None,
        sink_tokens: int = 4,
        window_tokens: int = 16,
    ) -> Completion:
        session = await client.create_session(
            "tiny",
            speculation=speculation,
            sink_tokens=sink_tokens,
            window_tokens=window_tokens,
        )
        async with session:
            await session.append(history)
            sampled: GenerateOptions = {} if seed is None else {"temperature": 0.9, "seed": seed}
            return await session.generate(max_tokens, **sampled).collect()

    return run


@pytest.fixture
def freeze() -> Callable[[AgentProcess], None]:
    """Stops all threads of an agent's process; until the last has, it may answer."""

    def stop(agent: AgentProcess) -> None:
        agent.signal(signal.SIGSTOP)
        until = time.monotonic() + PATIENCE_SECONDS
        while _thread_states(agent.pid) != {psutil.STATUS_STOPPED}:
            assert time.monotonic() < until, "it goes on"
            time.sleep(0.001)

    return stop


def _thread_states(pid: int) -> set[str]:
    """Of its threads, where the system tells them apart."""
    tasks = Path(f"/proc/{pid}/task")
    if not tasks.is_dir():
        return {psutil.Process(pid).status()}
    words = {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()}
    return {psutil.STATUS_STOPPED if word == "T" else word for word in words}
