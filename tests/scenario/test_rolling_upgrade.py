"""This release beside the one before, which is run from its commit: sessions and gossip go on.

The commit stands in scripts/support/previous_release.txt; where the history is not there, as in a
shallow clone, nothing is run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from kakeya import AsyncClient, AsyncSession, Liveness, Tls
from kakeya.options import SessionOptions
from scripts.support import agent_process
from scripts.support.agent_process import AgentProcess, LocalFleet
from scripts.support.previous_release import COMMIT, python_path, unpack, what_is_missing
from tests.support.breadth import wide
from tests.support.members import first_keeper, member
from tests.support.own_cache import RELEASES
from tests.support.trusted_nodes import tls_of
from tests.warm.starting import WarmProcess, WarmStarts

TOKENS = 500
DRAIN_SECONDS = "0.01"
"""In which no machine says all of them."""
KV: SessionOptions = {
    "kv_strategy": "sink_window",
    "sink_tokens": 4,
    "window_tokens": 16,
    "speculation": "off",
}
RESUMED: SessionOptions = {**KV, "resume": True}
PROMPT = (3, 1, 4, 1, 5)
NEW, OLD = "new", "old"


@pytest.fixture(scope="module")
def previous() -> Path:
    """The sources of the release before, unpacked once: compiling them takes longer than that."""
    folder = RELEASES / COMMIT
    if not folder.exists():
        RELEASES.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=RELEASES) as beside:
            unpacked = Path(beside) / "unpacked"
            unpack(unpacked)
            # Whose is later finds that of whoever runs at the same time.
            with suppress(OSError):
                unpacked.rename(folder)
    return folder


@dataclass
class Fleet:
    """Agents of either release; `verifier` is what they serve, `tls` how members are called."""

    agents: LocalFleet
    previous: Path
    verifier: str
    tls: Tls | None

    def start(self, name: str, release: str, *peers: AgentProcess) -> AgentProcess:
        environment = {"KAKEYA_DRAIN_SECONDS": DRAIN_SECONDS, "KAKEYA_PERIOD_SECONDS": "0.3"}
        if release == OLD:
            environment["PYTHONPATH"] = python_path(self.previous)
        addresses = [each.address for each in peers]
        return self.agents.start(
            name, serve=[self.verifier], peers=addresses, environment=environment
        )

    def client(self, agent: AgentProcess) -> AsyncClient:
        return AsyncClient(agent.address, tls=self.tls)

    async def met(self, *agents: AgentProcess) -> None:
        """Each of them holds all of them alive."""
        everyone = {each.node_id for each in agents}
        for each in agents:
            async with (
                asyncio.timeout(60),
                self.client(each) as client,
                client.fleet.watch() as changes,
            ):
                async for _ in changes:
                    known = await client.fleet.nodes()
                    if everyone <= {
                        node.node_id for node in known if node.liveness is Liveness.ALIVE
                    }:
                        break


@pytest.fixture(scope="module")
def understood_by_both() -> Iterator[None]:
    """The release before refuses a setting that came after it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("KAKEYA_CODEC_SAMPLING")
        yield


@pytest.fixture(scope="module")
def warm_previous(
    previous: Path, understood_by_both: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WarmStarts]:
    """Starts agents of the release before."""
    folder = tmp_path_factory.mktemp("warm")
    warm = WarmStarts(folder, previous, {"PYTHONPATH": python_path(previous)})
    yield warm
    warm.close()


@pytest.fixture
def starts(warm_previous: WarmStarts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents of either release start as copies of what has its libraries."""
    current = agent_process.start_process

    def start(
        command: Sequence[str], environment: Mapping[str, str], errors: IO[bytes]
    ) -> WarmProcess | subprocess.Popen[str]:
        if "PYTHONPATH" in environment:
            assert warm_previous.can_copy(environment)
            return warm_previous.start(command, environment, errors)
        return current(command, environment, errors)

    monkeypatch.setattr(agent_process, "start_process", start)


async def generate_while_leaving(session: AsyncSession, serving: AgentProcess) -> None:
    """An answer, in the midst of which its node leaves to be upgraded."""
    count = 0
    with serving.slowed() as speed_up:
        async for tokens in session.generate(TOKENS):
            count += len(tokens.token_ids)
            if serving.running:
                # As `fleet upgrade` and service managers do.
                serving.signal(signal.SIGTERM)
                speed_up()
                await asyncio.to_thread(serving.wait)
    assert count == TOKENS


@pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing())
@pytest.mark.usefixtures("starts")
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("releases", "has_authority"),
    [
        wide((OLD, OLD, NEW, NEW), False, name="upgrade"),
        pytest.param((OLD, OLD, NEW, NEW), True, id="upgrade of members"),
        wide((NEW, NEW, OLD, OLD), True, name="members go back"),
    ],
)
async def test_a_session_outlives_the_upgrade_of_every_node(
    releases: tuple[str, str, str, str],
    has_authority: bool,
    previous: Path,
    random_checkpoint: Callable[..., Path],
    tmp_path: Path,
) -> None:
    """Two nodes are stopped and started one after the other, each with the other release."""
    name, tls = tmp_path.name, None
    if has_authority:
        keeper = first_keeper(tmp_path / "a", name)
        member(tmp_path / "b", keeper)
        tls = tls_of(keeper)
    model = random_checkpoint(max_position_embeddings=4096)
    with LocalFleet(name, directory=tmp_path) as agents:
        fleet = Fleet(agents, previous, f"verifier={model}", tls)
        a = fleet.start("a", releases[0])
        b = fleet.start("b", releases[1], a)
        await fleet.met(a, b)
        async with fleet.client(a) as client:
            async with await client.create_session(model.name, **KV) as calm:
                await calm.append(PROMPT)
                for _ in range(3):
                    await calm.generate(TOKENS).collect()
                whole = calm.history
            session = await client.create_session(model.name, **RESUMED)
            await session.append(PROMPT)
            await generate_while_leaving(session, a)
            a = fleet.start("a", releases[2], b)
            await fleet.met(a, b)
            await generate_while_leaving(session, b)
            b = fleet.start("b", releases[3], a)
            await fleet.met(a, b)
            await session.generate(TOKENS).collect()
            assert session.history == whole
            assert (await session.info()).history_length == len(whole)
            assert len(session.resumptions) >= 2
            await session.close()


@pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing())
def test_the_release_before_is_what_is_run(previous: Path) -> None:
    asked = "import kakeya, kakeya_fleet.node; print(kakeya.__file__, *kakeya_fleet.node.__path__)"
    done = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=previous,
        env={**os.environ, "PYTHONPATH": python_path(previous)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(each.startswith(str(previous)) for each in done.stdout.split())
