"""What a person sees when a node dies or freezes under a command: a sentence, in time."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from kakeya import Client, connection
from scripts.support.agent_process import AgentProcess, LocalFleet
from tests.support.breadth import wide
from tests.support.in_process import run_here

# A dead transport is known by unanswered pings, one in ten seconds outside of tests.
PINGS = (("grpc.keepalive_time_ms", 1000), ("grpc.http2.ping_timeout_ms", 1000))


def strike(verifier: AgentProcess, number: signal.Signals) -> None:
    """Sends the signal once the node generates."""
    with Client(verifier.address) as client:
        while not client.fleet.node().load.generating_count:
            assert verifier.running
    verifier.signal(number)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", [wide(signal.SIGKILL), signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_lost_verifier_is_a_sentence_in_time(
    fleet: LocalFleet, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        connection,
        "CHANNEL_OPTIONS",
        tuple({**dict(connection.CHANNEL_OPTIONS), **dict(PINGS)}.items()),
    )
    verifier = fleet.start("verifier", serve=("verifier=tiny",))
    words = ["generate", "--node", verifier.address, "--verifier", "tiny", "--no-stop-at-eos"]
    with ThreadPoolExecutor(1) as striking:
        struck = striking.submit(strike, verifier, number)
        done = run_here([*words, "--max-tokens", "1900", "def main():"], os.environ)
        struck.result()
    assert done.code == 3
    assert "Traceback" not in done.err
    assert verifier.address in done.err
