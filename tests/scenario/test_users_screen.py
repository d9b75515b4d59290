"""What a person sees when a node dies or freezes under a command: a sentence, in time."""

import signal
import subprocess
import sys

import pytest

from scripts.support.agent_process import LocalFleet

# The client's own deadline for a silent stream is 30 s; a dead transport is known earlier.
STATED_DEADLINE_SECONDS = 30
GRACE_SECONDS = 15


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_lost_verifier_is_a_sentence_in_time(fleet: LocalFleet, number: signal.Signals) -> None:
    verifier = fleet.start("verifier", serve=("verifier=tiny",))
    words = ["generate", "--node", verifier.address, "--verifier", "tiny", "--no-stop-at-eos"]
    command = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "kakeya_fleet.node.cli",
            *words,
            "--max-tokens",
            "1900",
            "def main():",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert command.stdout is not None
    assert command.stdout.read(1)
    verifier.signal(number)
    _, errors = command.communicate(timeout=STATED_DEADLINE_SECONDS + GRACE_SECONDS)
    said = errors.decode()
    assert command.returncode == 3
    assert "Traceback" not in said
    assert said.strip()
    assert verifier.address in said
