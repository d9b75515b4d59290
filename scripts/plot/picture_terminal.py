"""Pictures of what people do first at a terminal, each of real processes.

    python -m scripts.plot.picture_terminal docs/pictures

Two machines become a fleet by a code, and a third person has none yet; all are network namespaces
of this machine, which takes root. Their homes are below a /home of this process's own. Every
command runs on a pseudo-terminal with what people type, and the pictures are what the terminals
showed; of a node, up to when it was ready. Their environment names the machines, and leaves out
rings between them, which would be tried for seconds.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from scripts.faults.machines import Machine, Machines, what_is_missing
from scripts.faults.mounts import own_mounts, why_no_homes, with_homes
from scripts.plot.terminal_picture import FaintScreen, Transcript
from scripts.support.pty_screen import Process, starting

FLEET = [sys.executable, "-m", "kakeya_fleet.node.cli"]
NETWORK, FIRST = "192.168.1.", 21
TITLE, COLUMNS = "fleet", 100
LINES = 60
"""Of a terminal whose program ends; one that fills its terminal gets `SCREEN_LINES`."""
SCREEN_LINES = 20
PATIENCE_SECONDS = 120.0
"""A model is loaded for the first time, on a machine that may have other work."""
PROBLEM = 1
"""The exit code of `fleet doctor` where something is wrong."""
QUESTION = "Why is the sky blue?"
REPEATED = "red green blue " * 8
"""A prompt whose answer is drafted by looking it up."""
TINY, OWN_MODEL = Path(__file__).parents[2] / "engine" / "shipped" / "tiny", "python-notes"


@dataclass(frozen=True, slots=True)
class Desk:
    """A machine of the scene, and who sits at it."""

    machine: Machine
    name: str
    home: Path

    def typed(self, line: Transcript, words: str, lines: int = LINES) -> Process:
        """Begins `fleet WORDS` at a terminal of this machine."""
        line.typed(f"{self.name}$", f"fleet {words}")
        return self.begun(words, lines)

    def begun(self, words: str, lines: int = LINES) -> Process:
        """The same where nobody looks."""
        command = self.machine.behind([*FLEET, *shlex.split(words)])
        start = starting(command, self._environment)
        return Process(start, columns=COLUMNS, lines=lines, screen=FaintScreen)

    def done(self, line: Transcript, words: str, fine: Container[int | None] = (0,)) -> str:
        """What `fleet WORDS` showed to its end, which has to be one of the exit codes `fine`."""
        with closing(self.typed(line, words)) as process:
            code = process.end(seconds=PATIENCE_SECONDS)
            if code not in fine:
                raise AssertionError(f"fleet {words} ended with {code}:\n{process.text}")
            line.shown(process.screen)
            return process.text

    def takes_compiled(self) -> None:
        """Gives its home the decoders that this user's nodes have compiled, seconds each."""
        compiled = user_cache_path("kakeya") / "compiled"
        link = self.home / ".cache" / "kakeya" / compiled.name
        if compiled.exists():
            link.parent.mkdir(parents=True)
            link.symlink_to(compiled)

    @property
    def _environment(self) -> Mapping[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return kept | {
            "HOME": str(self.home),
            "KAKEYA_NAME": self.name,
            "TERM": "xterm-256color",
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "HF_HUB_OFFLINE": "1",
            "KAKEYA_LINKS": "grpc",
            "OMP_NUM_THREADS": "1",
        }


@dataclass(frozen=True, slots=True)
class Scene:
    """The first machine and its keeper, the second one, which was invited; somebody else's."""

    first: Desk
    second: Desk
    alone: Desk
    model: str


@contextmanager
def members(scene: Scene, line: Transcript) -> Iterator[None]:
    """Two machines become a fleet, which lasts as long as the context."""
    first, second = scene.first, scene.second
    with ExitStack() as ended:
        first.done(line, f"init home --name {first.name}")
        node = first.typed(line, f"join --name {first.name} --serve verifier={scene.model}")
        ended.callback(end_node, node)
        ready(node)
        line.shown(node.screen)
        invited = first.done(line, "invite")
        code = re.search(r"\d{3}-\d{3}-\d{3}", invited)
        if code is None:
            raise AssertionError(f"no code was told:\n{invited}")
        words = f"join {code[0]} --name {second.name} --serve proposer=ngram"
        guest = second.typed(line, words)
        ended.callback(end_node, guest)
        ready(guest)
        line.shown(guest.screen)
        node.wait_for(re.escape(second.name), seconds=PATIENCE_SECONDS)
        first.done(line, "members")
        yield


def plan(scene: Scene, line: Transcript) -> None:
    """Who would draft for whom."""
    scene.first.done(line, f"plan --verifier {scene.model} --context 1024")


def doctor(scene: Scene, line: Transcript) -> None:
    """What is wrong here and in the fleet."""
    scene.first.done(line, "doctor", fine=(0, PROBLEM))


def top(scene: Scene, line: Transcript) -> None:
    """The fleet while a session generates."""
    # It names its drafter: left to itself, a model this small is faster alone.
    words = f"generate --verifier {scene.model} --speculation ngram@{scene.second.name}"
    words += f" --max-tokens 8000 --no-stop-at-eos '{REPEATED}'"
    with closing(scene.first.typed(line, "top", SCREEN_LINES)) as watch:
        watch.wait_for("^q quit", seconds=PATIENCE_SECONDS)
        with closing(scene.first.begun(words)):
            # A node that has told its rate, and blocks of which something was kept.
            watch.wait_for(rf"{scene.first.name} +alive +[1-9]", seconds=PATIENCE_SECONDS)
            watch.wait_for("■", seconds=PATIENCE_SECONDS)
            watch.wait_for_whole(seconds=PATIENCE_SECONDS)
            line.shown(watch.screen)


def pull(scene: Scene, line: Transcript) -> None:
    """A model that one machine alone has is served there, and its files come to another one."""
    first, second = scene.first, scene.second
    folder = first.home / "models" / OWN_MODEL
    shutil.copytree(TINY, folder)
    first.done(line, f"load {folder}")
    first.done(line, f"pull {OWN_MODEL} --to {second.name}")
    first.done(line, "models --fleet")
    first.done(line, f"load {OWN_MODEL} --on {second.name}")


def run(scene: Scene, line: Transcript) -> None:
    """A model by its name, where no node runs yet, up to its answer."""
    with closing(scene.alone.typed(line, f"run {scene.model}")) as chat:
        chat.wait_for(r"\[Y/n\]", seconds=PATIENCE_SECONDS)
        chat.press("enter")
        chat.wait_for(r"^›$", seconds=PATIENCE_SECONDS)
        chat.type(f"{QUESTION}\r")
        chat.wait_for(rf"^› {re.escape(QUESTION)}\n(.*\n)+›$", seconds=PATIENCE_SECONDS)
        line.shown(chat.screen)
        chat.press("ctrl-d")
        chat.end(seconds=PATIENCE_SECONDS)


FLOWS: Mapping[str, Callable[[Scene, Transcript], None]] = {
    "plan": plan,
    "doctor": doctor,
    "top": top,
    "pull": pull,
    "run": run,
}
"""By the name of their picture."""


def ready(node: Process) -> None:
    """Waits until a node serves, and has said so."""
    node.wait_for(r"^Ctrl-C drains and leaves\.", seconds=PATIENCE_SECONDS)


def end_node(node: Process) -> None:
    """Has it leave, as Ctrl-C does."""
    with closing(node):
        node.interrupt()
        node.end(seconds=PATIENCE_SECONDS)


def main() -> None:
    """Makes the scene and draws the pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="smollm2", help="what the first machine serves")
    names = ("members", *FLOWS)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    options = parser.parse_args()
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if lacking := what_is_missing() or why_no_homes():
        raise SystemExit(lacking)
    own_mounts()
    homes = with_homes(("ada", "ben", "eve"))
    with Machines(len(homes), network=NETWORK, first=FIRST) as machines:
        desks = [
            Desk(machine, name, home)
            for machine, name, home in zip(
                machines.all, ("mini-1", "mini-2", "laptop"), homes, strict=True
            )
        ]
        for desk in desks:
            desk.takes_compiled()
        first, second, alone = desks
        scene = Scene(first, second, alone, options.model)
        line = Transcript(COLUMNS)
        with members(scene, line):
            if "members" in options.only:
                line.save(folder / "members.svg", TITLE)
            for name in options.only:
                if name in FLOWS:
                    line = Transcript(COLUMNS)
                    FLOWS[name](scene, line)
                    line.save(folder / f"{name}.svg", TITLE)


if __name__ == "__main__":
    main()
