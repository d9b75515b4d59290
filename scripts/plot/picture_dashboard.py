"""Pictures of the dashboard over three real agents at work.

    make dashboard && python -m scripts.plot.picture_dashboard docs/pictures

A verifier with two sessions that generate by turns, its drafter with an archive on
another node, and a third node with prompt lookup; all on this machine. One session names its
drafter: left to itself, a verifier this small is faster alone. The pictures of a chat and of
models are of synthetic nodes, whose answer is written: the shipped model was never taught to
converse.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kakeya import Client, KakeyaError, Speculation
from scripts.support.agent_process import LocalFleet

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "dashboard" / "bench" / "picture.mjs"
DIST = ROOT / "dashboard" / "dist"
TINY = ROOT / "engine" / "shipped" / "tiny"
PHONE = ("--width", "390", "--height", "844")
QUESTION = "Why is a draft from another machine faster, and the text still the same?"
PROMPTS = {
    "notes": "def parse_header(line):\n",
    "review": "class Reader:\n    def read(self, size):\n",
}
"""What two applications have appended, by their label."""


def main() -> None:
    """Starts the fleet, lets it work, takes the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=100.0, help="of work before the pictures")
    parser.add_argument("--themes", nargs="+", default=["dark"], choices=("dark", "light"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    with LocalFleet("desk") as fleet:
        studio = fleet.start("studio-1", serve=["verifier=tiny"])
        for name, roles in (
            ("mini-2", ["proposer=tiny-dflash", "archive=256MiB"]),
            ("linux-3", ["proposer=ngram"]),
        ):
            fleet.start(name, serve=roles, peers=[studio.address]).wait_for("ready")
        held, over = threading.Event(), threading.Event()
        sessions: dict[str, str] = {}
        for label in PROMPTS:
            threading.Thread(
                target=work, args=(studio.address, label, held, over, sessions), daemon=True
            ).start()
        over.wait(options.seconds)
        held.set()
        try:
            picture(options, studio.address, studio.node_id, sessions)
        finally:
            over.set()
    picture_synthetic(options)


def picture_synthetic(options: argparse.Namespace) -> None:
    """Photographs models and an answer of synthetic nodes, the answer also for a telephone."""
    words = ["node", str(DIST / "synthetic" / "main.mjs"), "--nodes", "6"]
    with begun([*words, "--model-folder", str(TINY)]) as fleet:
        node = str(first_line(fleet)["address"])
        script = str(DIST / "server" / "main.mjs")
        with begun(["node", script, "--end-with-input", "--node", node]) as board:
            url = str(first_line(board)["url"])
            for theme in options.themes:
                suffix = "" if theme == "dark" else "-light"
                for view, more in (
                    (f"models{suffix}=models", ()),
                    (f"chat{suffix}=chat", ("--ask", QUESTION)),
                    (f"chat-phone{suffix}=chat", ("--ask", QUESTION, *PHONE)),
                ):
                    command = ["node", PICTURE, url, options.folder, view, "--theme", theme, *more]
                    subprocess.run(command, check=True)


@contextmanager
def begun(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A program that ends with its input."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        yield program
        if program.stdin is not None:
            program.stdin.close()
        # Nobody reads what it says from here on.
        program.terminate()


def first_line(program: subprocess.Popen[str]) -> dict[str, object]:
    """What it says once it is ready."""
    assert program.stdout is not None
    told: dict[str, object] = json.loads(program.stdout.readline())
    return told


def work(
    address: str, label: str, held: threading.Event, over: threading.Event, sessions: dict[str, str]
) -> None:
    """One application: turns of 120 tokens in a session whose window is 128."""
    with Client(address) as client:
        text = client.text("tiny")
        restored = label == "review"
        while not over.is_set():
            with client.create_session(
                "tiny",
                client_label=label,
                window_tokens=128,
                kv_strategy="restored" if restored else "sink_window",
                speculation="auto" if restored else Speculation("tiny-dflash"),
            ) as session:
                sessions[label] = session.session_id
                for _turn in range(13):
                    session.append(text.encode(PROMPTS[label]))
                    try:
                        session.generate(max_tokens=120).collect()
                    except KakeyaError as error:
                        print(f"{label}: {error}", file=sys.stderr)
                        return
                    if over.wait(0.4):
                        return
                # A session that is being photographed stays.
                if held.is_set() and label == "notes":
                    over.wait()


def picture(
    options: argparse.Namespace, address: str, node_id: str, sessions: dict[str, str]
) -> None:
    """Starts `fleet dashboard` and photographs its pages."""
    fleet = Path(sys.executable).parent / "fleet"
    board = subprocess.Popen(
        [fleet, "dashboard", "--json", "--no-open", "--node", address],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = json.loads(board.stdout.readline())["url"] if board.stdout else ""
        for theme in options.themes:
            suffix = "" if theme == "dark" else "-light"
            views = {
                f"fleet{suffix}": "",
                f"session{suffix}": f"session/{node_id}/{sessions['notes']}",
                f"plan{suffix}": "plan",
            }
            words = [f"{name}={view}" for name, view in views.items()]
            subprocess.run(
                ["node", PICTURE, url, options.folder, *words, "--theme", theme], check=True
            )
    finally:
        board.terminate()
        board.wait()


if __name__ == "__main__":
    main()
