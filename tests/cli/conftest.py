import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from scripts.support.agent_process import LocalFleet
from tests.support.in_process import Finished
from tests.support.pty_screen import Process

FLEET = [sys.executable, "-m", "kakeya_fleet.node.cli"]


class Terminal:
    """Runs `fleet` as people do: a process of its own, with an environment of its own."""

    def __init__(self, home) -> None:
        self.environment = {
            key: value for key, value in os.environ.items() if not key.startswith("KAKEYA_")
        }
        self.environment |= {
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_CACHE_HOME": str(home / "cache"),
            "HF_HUB_OFFLINE": "1",
            # Several agents on two busy cores: more threads only wait for each other.
            "OMP_NUM_THREADS": "1",
            # Nor does any agent try a ring, which takes two processes.
            "KAKEYA_LINKS": "grpc",
            "COLUMNS": "100",
        }

    def run(self, *words, stdin="", timeout=60, **environment):
        done = subprocess.run(
            [*FLEET, *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=self.environment | environment,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    def start(self, *words, **environment):
        return subprocess.Popen(
            [*FLEET, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment | environment,
        )


@pytest.fixture
def fleet(tmp_path):
    return Terminal(tmp_path)


@pytest.fixture
def screen(fleet):
    """Starts `fleet` on a terminal of its own: `screen("top", columns=80, lines=24)`."""
    started = []

    def start(*words, columns=100, lines=30, command=(*FLEET,), **environment):
        own = {"TERM": "xterm-256color", "PYTHONUTF8": "1"} | environment
        left_out = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
        kept = {key: value for key, value in fleet.environment.items() if key not in left_out}
        process = Process([*command, *words], kept | own, columns=columns, lines=lines)
        started.append(process)
        return process

    yield start
    for process in started:
        process.close()


@pytest.fixture(scope="session")
def toy(random_checkpoint, tmp_path_factory):
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
def agents(tmp_path_factory, toy):
    with LocalFleet("cli-tests", directory=tmp_path_factory.mktemp("agents")) as local:
        # No ring is tried, which would take two processes of each.
        own = {"OMP_NUM_THREADS": "1", "KAKEYA_LINKS": "grpc"}
        verifier = local.start("mini-1", serve=[f"verifier={toy}"], environment=own)
        proposer = local.start(
            "mini-2", serve=["proposer=ngram"], peers=[verifier.address], environment=own
        )
        verifier.wait_for("peer_joined")
        proposer.wait_for("peer_joined")
        yield verifier, proposer


@pytest.fixture
def interrupt():
    """Sends Ctrl-C to a process; its exit code, both outputs, and the seconds it took."""

    def send(process):
        started = time.monotonic()
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=20)
        finally:
            process.kill()
        return Finished(process.returncode, out, err), time.monotonic() - started

    return send


@pytest.fixture
def silent_node():
    """An address that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        yield server


@pytest.fixture
def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"127.0.0.1:{port}"


@pytest.fixture
def dead_process_id():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid
