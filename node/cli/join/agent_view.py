"""What a running agent says, for people: one line an event, a block when it is ready."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kakeya_fleet.node.cli.join.advice_text import advice_lines
from kakeya_fleet.node.cli.terminal.output import say, shows_pictures, terminal, write_json
from kakeya_fleet.node.cli.terminal.quantities import seconds_text
from kakeya_fleet.node.cli.terminal.tables import memory_bar
from kakeya_fleet.node.cli.terminal.transfer_text import progress_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from kakeya_fleet.node.watch.transfers import TransferStatus

Event = Mapping[str, object]


# Events with which an agent has nothing more to load.
_BARS_END = ("ready", "draining", "left")
_BAR_WIDTH = 30
_LEAST_BAR = 6

# What people have to mend.
_WARNINGS = ("seed_fault", "same_name")

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

    def take(self, event: Event) -> None:
        """Something happened."""
        ...

    def close(self) -> None:
        """The agent ended."""
        ...


def view_for(*, as_json: bool, transfers: Callable[[], Sequence[TransferStatus]]) -> View:
    """JSON lines, a terminal's colours, or plain lines; `transfers` tells how loading stands."""
    if as_json:
        return JsonView()
    console = terminal(sys.stdout)
    if console is None or not shows_pictures(sys.stdout):
        return PlainView()
    return TerminalView(console, transfers)


class JsonView:
    """One JSON object a line, the first one `ready`."""

    def loading(self, roles: Sequence[str]) -> None:
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

    def take(self, event: Event) -> None:
        """Prints the event."""
        for line in event_lines(event, self._roles):
            say(line)

    def close(self) -> None:
        """Prints nothing."""


class TerminalView:
    """Coloured lines, and below them a bar for each download and load, until all is served."""

    def __init__(self, console: Console, transfers: Callable[[], Sequence[TransferStatus]]) -> None:
        from rich.live import Live

        self._console = console
        self._transfers = transfers
        self._roles: tuple[str, ...] = ()
        self._started = time.monotonic()
        self._live = Live(
            console=console, get_renderable=self._draw, refresh_per_second=8, transient=True
        )

    def loading(self, roles: Sequence[str]) -> None:
        """Shows bars until all is served."""
        self._roles = tuple(roles)
        self._started = time.monotonic()
        if roles:
            self._live.start()
            # A second Ctrl-C ends the process at once; it must not take the cursor along.
            self._console.show_cursor()

    def take(self, event: Event) -> None:
        """Prints the event, above the bars while there are any."""
        if event["event"] in _BARS_END:
            self.close()
        name = str(event["event"])
        style = "yellow" if name in _WARNINGS else _PEER_WORDS.get(name, ("", ""))[1]
        for line in event_lines(event, self._roles):
            self._console.print(line, style=style or None, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Takes the bars away."""
        self._live.stop()

    def _draw(self) -> RenderableType:
        from rich.text import Text

        lines = transfer_lines(self._transfers(), self._console.width)
        if not lines:
            waited = seconds_text(time.monotonic() - self._started)
            lines = [f"loading {', '.join(self._roles)}: {waited}"]
        return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")


def transfer_lines(transfers: Sequence[TransferStatus], width: int) -> list[str]:
    """A bar for each transfer that runs: what comes, how far it is, its rate, what is left."""
    lines = []
    for transfer in transfers:
        if transfer.state.value != "running":
            continue
        verb = "downloading" if transfer.kind.value == "download" else "loading"
        head = f"{verb} {transfer.model_id} "
        facts = progress_text(transfer)
        room = min(_BAR_WIDTH, width - len(head) - len(facts) - 1)
        bar = memory_bar(transfer.done_bytes, transfer.total_bytes, width=max(_LEAST_BAR, room))
        lines.append(f"{head}{bar} {facts}".rstrip())
    return lines


def event_lines(event: Event, roles: Sequence[str]) -> list[str]:
    """An event in words; `roles` are what the agent was told to serve."""
    name = str(event["event"])
    if name == "ready":
        return ready_lines(event, roles)
    if name == "advice":
        return advice_lines(event)
    return [f"{_clock()}  {_words(name, event)}"]


def _words(name: str, event: Event) -> str:
    if name in _PEER_WORDS:
        return f"{_node(event)} {_PEER_WORDS[name][0]}"
    match name:
        case "joined":
            return f"{_node(event)} joined the fleet {event.get('fleet_name', '')}"
        case "draining":
            return f"leaving: running answers get {_seconds(event)}"
        case "left":
            return "left the fleet"
        case "seed_fault":
            return f"{event['message']} {event['mend']}".rstrip()
        case "seed_joined":
            return f"the peer {event['address']} is joined now"
        case "same_name":
            return (
                f"another node is called {event['name']} too, at {event['address']}: who asks for "
                f"that name is refused; join again with --name {event['free_name']}"
            )
    facts = ", ".join(f"{key} {value}" for key, value in event.items() if key != "event")
    return f"{name.replace('_', ' ')}{': ' if facts else ''}{facts}"


def ready_lines(event: Event, roles: Sequence[str]) -> list[str]:
    """The block that tells where the node answers."""
    facts = {
        "address": event["address"],
        "serves": ", ".join(roles) or "nothing",
        "fleet": event.get("fleet_name"),
        "state": event.get("state"),
        "HTTP": f"http://{event['http_address']}/v1, /health, /metrics"
        if event.get("http_address")
        else "",
        "by key": _by_key(event),
        "mDNS": event.get("mdns"),
        "taken": _taken(event),
    }
    lines = [f"{event.get('name', '')} is ready"]
    return [*lines, *(f"  {title:<8}  {fact}" for title, fact in facts.items() if fact)]


def _taken(event: Event) -> str:
    """At which ports the node would be, were they free."""
    ports = event.get("taken_ports")
    if not isinstance(ports, Sequence) or not ports:
        return ""
    others = "another program has it" if len(ports) == 1 else "other programs have them"
    return f"{', '.join(map(str, ports))}: {others}"


def _by_key(event: Event) -> str:
    """Where applications of other machines call, in a fleet with an authority."""
    grpc, https = event.get("applications_address"), event.get("https_address")
    told = (f"gRPC {grpc}" if grpc else "", f"https://{https}/v1" if https else "")
    return ", ".join(filter(None, told))


def _node(event: Event) -> str:
    name = str(event.get("name") or str(event.get("node_id", ""))[:12])
    return f"{name} ({event['address']})" if event.get("address") else name


def _seconds(event: Event) -> str:
    value = event.get("drain_seconds")
    return seconds_text(float(value)) if isinstance(value, int | float) else "no time"


def _clock() -> str:
    return time.strftime("%H:%M:%S")
