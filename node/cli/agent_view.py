"""What a running agent says, for people: one line an event, a block when it is ready."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from node.cli.output import say, terminal, write_json
from node.cli.quantities import seconds_text, share_of_bytes_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

Event = Mapping[str, object]

_PEER_WORDS = {
    "peer_joined": ("joined", "green"),
    "peer_suspect": ("does not answer: suspect", "yellow"),
    "peer_dead": ("is dead", "red"),
    "peer_left": ("left", "dim"),
}


class View(Protocol):
    """What shows a running agent."""

    def loading(self, roles: Sequence[str]) -> None:
        """The agent loads what it serves."""
        ...

    def progress(self, done_bytes: int, total_bytes: int) -> None:
        """A download went on. Called from any thread."""
        ...

    def take(self, event: Event) -> None:
        """Something happened."""
        ...

    def close(self) -> None:
        """The agent ended."""
        ...


def view_for(*, as_json: bool) -> View:
    """JSON lines, a terminal's colours, or plain lines."""
    if as_json:
        return JsonView()
    console = terminal(sys.stdout)
    return PlainView() if console is None else TerminalView(console)


class JsonView:
    """One JSON object a line, the first one `ready`."""

    def loading(self, roles: Sequence[str]) -> None:
        """Prints nothing."""

    def progress(self, done_bytes: int, total_bytes: int) -> None:
        """Prints nothing."""

    def take(self, event: Event) -> None:
        """Prints the event."""
        write_json(event)

    def close(self) -> None:
        """Prints nothing."""


class PlainView:
    """Lines without colours, and without a bar."""

    def __init__(self) -> None:
        self._roles: tuple[str, ...] = ()

    def loading(self, roles: Sequence[str]) -> None:
        """Prints what is loading."""
        self._roles = tuple(roles)
        if roles:
            say(f"loading {', '.join(roles)}")

    def progress(self, done_bytes: int, total_bytes: int) -> None:
        """Prints nothing: a bar needs a terminal."""

    def take(self, event: Event) -> None:
        """Prints the event."""
        for line in event_lines(event, self._roles):
            say(line)

    def close(self) -> None:
        """Prints nothing."""


class TerminalView:
    """Coloured lines, and a bar while something loads or downloads."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = console
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._bar: TaskID | None = None
        self._roles: tuple[str, ...] = ()

    def loading(self, roles: Sequence[str]) -> None:
        """Shows a bar until the first event."""
        self._roles = tuple(roles)
        if roles:
            self._bar = self._bars.add_task(f"loading {', '.join(roles)}", total=None)
            self._bars.start()
            # A second Ctrl-C ends the process at once; it must not take the cursor along.
            self._console.show_cursor()

    def progress(self, done_bytes: int, total_bytes: int) -> None:
        """Moves the bar."""
        if self._bar is not None:
            self._bars.update(
                self._bar,
                description=f"downloading {share_of_bytes_text(done_bytes, total_bytes)}",
                completed=done_bytes,
                total=total_bytes or None,
            )

    def take(self, event: Event) -> None:
        """Prints the event where the bar was."""
        self.close()
        style = _PEER_WORDS.get(str(event["event"]), ("", ""))[1]
        for line in event_lines(event, self._roles):
            self._console.print(line, style=style or None, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Takes the bar away."""
        self._bars.stop()


def event_lines(event: Event, roles: Sequence[str]) -> list[str]:
    """An event in words; `roles` are what the agent was told to serve."""
    name = str(event["event"])
    if name == "ready":
        return ready_lines(event, roles)
    if name in _PEER_WORDS:
        return [f"{_clock()}  {_node(event)} {_PEER_WORDS[name][0]}"]
    if name == "draining":
        return [f"{_clock()}  leaving: running answers get {_seconds(event)}"]
    if name == "left":
        return [f"{_clock()}  left the fleet"]
    facts = ", ".join(f"{key} {value}" for key, value in event.items() if key != "event")
    return [f"{_clock()}  {name.replace('_', ' ')}{': ' if facts else ''}{facts}"]


def ready_lines(event: Event, roles: Sequence[str]) -> list[str]:
    """The block that tells where the node answers and what to type next."""
    address = str(event["address"])
    name = str(event.get("name", ""))
    facts = {
        "address": address,
        "serves": ", ".join(roles) or "nothing",
        "fleet": event.get("fleet_name"),
        "state": event.get("state"),
        "metrics": f"http://{event['metrics_address']}/metrics"
        if event.get("metrics_address")
        else "",
        "mDNS": event.get("mdns"),
    }
    lines = [f"{name} is ready"]
    lines += [f"  {title:<8}  {fact}" for title, fact in facts.items() if fact]
    return [*lines, *_next_lines(name, roles, address)]


def _next_lines(name: str, roles: Sequence[str], address: str) -> list[str]:
    where = "in another terminal" if _is_loopback(address) else "on the other machine"
    verifiers = [role for role in roles if role.startswith("verifier=")]
    other = "proposer=ngram" if verifiers or not roles else "verifier=tiny"
    lines = [
        "",
        f"next, {where}:",
        f"  fleet join --name {_other_name(name)} --serve {other} --peer {address}",
    ]
    if verifiers:
        model = shlex.quote(verifiers[0].removeprefix("verifier="))
        prompt = "def parse_header(line):"
        lines.append(f'  fleet generate --verifier {model} "{prompt}" --node {address}')
    return [*lines, "", "Ctrl-C drains and leaves."]


def _other_name(name: str) -> str:
    """`mini-2` after `mini-1`: the next number, or a 2."""
    stem = name.rstrip("0123456789")
    number = name[len(stem) :]
    return f"{stem}{int(number) + 1}" if number else f"{name}-2"


def _is_loopback(address: str) -> bool:
    return address.startswith(("127.", "localhost:", "[::1]:"))


def _node(event: Event) -> str:
    name = str(event.get("name") or str(event.get("node_id", ""))[:12])
    return f"{name} ({event['address']})" if event.get("address") else name


def _seconds(event: Event) -> str:
    value = event.get("drain_seconds")
    return seconds_text(float(value)) if isinstance(value, int | float) else "no time"


def _clock() -> str:
    return time.strftime("%H:%M:%S")
