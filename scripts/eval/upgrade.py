"""What a client sees while `fleet upgrade` restarts the nodes that it talks with.

    python -m scripts.eval.upgrade

Two services under a systemd of its own (root, Linux) serve `tiny`, from an environment with
wheels of this tree. One session with `resume` asks for answer after answer while the upgrade goes
on, in which each node drains and starts anew. Prints JSON: the answers, the errors, the longest
time without an answer. Exit status 1 when a call failed or a node is of the old version.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kakeya import Client, KakeyaError
from scripts.support.local_wheels import build, derive, environment_with
from scripts.support.user_manager import user_manager, what_is_missing

NEWER = "90.0.0"
ANSWER_TOKENS = 30
# Sessions of the shipped model end at 2,048 positions.
ANSWERS_A_SESSION = 40
PAUSE_SECONDS = 0.2
LAST_SECONDS = 2.0
SERVE = ("--serve", "verifier=tiny", "--no-mdns")


@dataclass
class Talk:
    """A client in a thread of its own: when each answer was there, and what failed."""

    address: str
    answered: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Asks until it is over, or a call fails."""
        try:
            with Client(self.address) as client:
                prompt = client.text("tiny").encode("def parse_header(line):")
                while not self.is_over.is_set():
                    self._one_session(client, prompt)
        except KakeyaError as error:
            self.errors.append(f"{error.reason}: {error}")

    def _one_session(self, client: Client, prompt: list[int]) -> None:
        with client.create_session("tiny", tokens=prompt, resume=True) as session:
            for _ in range(ANSWERS_A_SESSION):
                if self.is_over.is_set():
                    return
                for _ in session.generate(max_tokens=ANSWER_TOKENS):
                    pass
                self.answered.append(time.monotonic())
                self.is_over.wait(PAUSE_SECONDS)


def measure(folder: Path) -> dict[str, object]:
    """Runs all of it in the folder."""
    wheels = folder / "wheels"
    wheels.mkdir()
    version = build(wheels)
    derive(wheels, version, NEWER, left_out="")
    python = environment_with(folder / "venv", wheels, version)
    kept = {key: text for key, text in os.environ.items() if not key.startswith(("KAKEYA_", "XDG"))}
    pip = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_CONFIG_FILE": os.devnull}
    own = kept | pip | {"HOME": str(folder), "KAKEYA_LINKS": "grpc", "KAKEYA_DRAIN_SECONDS": "2"}
    with user_manager(own) as managed:
        first = _fleet(python, managed, "service", "install", "--name", "mini-1", *SERVE)
        peer = ("--peer", str(first["address"]))
        _fleet(python, managed, "service", "install", "--name", "mini-2", *SERVE, *peer)
        talk = Talk(str(first["address"]))
        thread = threading.Thread(target=talk.run)
        thread.start()
        while not talk.answered and thread.is_alive():
            time.sleep(PAUSE_SECONDS)
        began = time.monotonic()
        told = _fleet(python, managed, "upgrade", "--to", NEWER, "--wheels", str(wheels))
        ended = time.monotonic()
        talk.is_over.wait(LAST_SECONDS)
        talk.is_over.set()
        thread.join()
        nodes = _fleet(python, managed, "status")["nodes"]
    gaps = [after - before for before, after in zip(talk.answered, talk.answered[1:], strict=False)]
    return {
        "upgraded": told,
        "upgrade_seconds": ended - began,
        "answers": len(talk.answered),
        "answers_during_the_upgrade": sum(began < each < ended for each in talk.answered),
        "errors": talk.errors,
        "longest_gap_seconds": max(gaps, default=0.0),
        "versions": [node["card"]["software_version"] for node in nodes],
    }


def _fleet(python: Path, environment: Mapping[str, str], *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [str(python), "-P", "-m", "kakeya_fleet.node.cli", *words, "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"fleet {' '.join(words)} failed: {done.stdout}")
    return dict(json.loads(done.stdout))


def main() -> int:
    """Prints the report."""
    if missing := what_is_missing():
        print(f"not here: {missing}")
        return 1
    with tempfile.TemporaryDirectory(prefix="kakeya-upgrade-") as folder:
        report = measure(Path(folder))
    print(json.dumps(report, indent=2))
    return 0 if not report["errors"] and report["versions"] == [NEWER, NEWER] else 1


if __name__ == "__main__":
    sys.exit(main())
