"""Two agents of one fleet, and `fleet` as people type it.

fleet    a home of its own; runs commands in this process, or in one of their own
screen   starts `fleet`, or a program, on a terminal
agents   a verifier and a proposer, shared by all tests
ask      runs a command on one of the two
threaded_node   a scripted one, which computes nothing
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from scripts.support.agent_process import LocalFleet
from scripts.support.pty_screen import Process, Started
from tests.support.commands import NODE, Agents, Ask, Screen, Terminal
from tests.support.in_process import Finished
from tests.support.threaded_node import threaded_node
from tests.warm.starting import WarmProcess, WarmStarts

__all__ = ["threaded_node"]


@pytest.fixture
def fleet(tmp_path: Path, warm_starts: WarmStarts) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, warm_starts)
    yield terminal
    terminal.end_all()


@pytest.fixture
def screen(fleet: Terminal) -> Iterator[Screen]:
    """Starts `fleet` on a terminal of its own: `screen("top", columns=80, lines=24)`."""
    started: list[Process] = []

    def start(
        *words: str,
        columns: int = 100,
        lines: int = 30,
        program: Callable[[int], Started] | None = None,
        **environment: str,
    ) -> Process:
        def fleet_here(slave: int) -> WarmProcess:
            return fleet.on_terminal(words, slave, **environment)

        started.append(Process(program or fleet_here, columns=columns, lines=lines))
        return started[-1]

    yield start
    for process in started:
        process.close()


@pytest.fixture(scope="session")
def toy(random_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small random model with a tokenizer of bytes."""
    folder = tmp_path_factory.mktemp("models") / "toy"
    shutil.copytree(random_checkpoint(vocab_size=300, max_position_embeddings=2048), folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def agents(tmp_path_factory: pytest.TempPathFactory, toy: Path) -> Iterator[Agents]:
    """mini-1 serves `toy`, mini-2 prompt lookup."""
    with LocalFleet("cli-tests", directory=tmp_path_factory.mktemp("agents")) as local:
        verifier = local.start("mini-1", serve=[f"verifier={toy}"], environment=NODE)
        proposer = local.start(
            "mini-2", serve=["proposer=ngram"], peers=[verifier.address], environment=NODE
        )
        verifier.wait_for("peer_joined")
        proposer.wait_for("peer_joined")
        yield verifier, proposer


@pytest.fixture
def ask(fleet: Terminal, agents: Agents) -> Ask:
    """Runs a command on the verifier's node, in this process; on the other with node=1."""

    def run(name: str, *words: str, node: int = 0, stdin: str = "") -> Finished:
        return fleet.run(name, "--node", agents[node].address, *words, stdin=stdin)

    return run


@pytest.fixture
def silent_node() -> Iterator[socket.socket]:
    """An address that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        yield server


@pytest.fixture
def free_address() -> Iterator[str]:
    """Where nobody answers: the port is held, lest another test's agent get it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"
