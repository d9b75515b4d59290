"""Fixtures of the node's tests, all real: sockets on port 0, gRPC servers, files.

serve          start a gRPC server with servicers of the test's choice
identity       a fresh identity
metrics        a node's metrics on a registry of their own
value_of       the value of a sample in those metrics
make_identity  fresh identities
make_card      a signed card of an identity, with fields of the test's choice
scrape         what a /metrics endpoint answers now
eventually     wait until a condition holds that nothing announces
start_agent    agents in this process, of one fleet of their own, without multicast DNS
spawn_agent    the same in processes of their own, to be killed and frozen
"""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import grpc.aio
import pytest
from grpc.aio import StreamStreamCall, UnaryStreamCall

from kakeya_fleet.engine.verifiers import kept_exactness
from kakeya_fleet.fleet.cards.card import Accelerator, Card, SignedCard
from kakeya_fleet.node.app.composition import open_node
from kakeya_fleet.node.app.node import Node
from kakeya_fleet.node.app.settings import NodeSettings
from kakeya_fleet.node.config.config import build
from kakeya_fleet.node.membership.card_wire import sign_card
from kakeya_fleet.node.membership.identity import Identity, load_or_create
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.listening import listen, make_server
from kakeya_fleet.node.trust.membership_files import fleet_name_of
from scripts.support import agent_process
from tests.support.own_cache import EXACTNESS
from tests.support.patience import PATIENCE_SECONDS
from tests.warm.starting import FLEET, WarmProcess

Register = Callable[[grpc.aio.Server], object]
Serve = Callable[..., Awaitable[grpc.aio.Channel]]
Event = Mapping[str, Any]
"""What an agent says, as JSON."""
Message = TypeVar("Message")
ValueOf = Callable[..., float]
MakeIdentity = Callable[[], Identity]
MakeCard = Callable[..., SignedCard]
Scrape = Callable[[str], Awaitable[str]]
Eventually = Callable[[Callable[[], Awaitable[bool]]], Awaitable[None]]


@pytest.fixture(scope="session")
def random_checkpoint(random_checkpoint: Callable[..., Path]) -> Callable[..., Path]:
    """As everywhere, with heads that the compiled decoder computes, as it does people's models."""
    return partial(random_checkpoint, head_dim=32)


@pytest.fixture(scope="session", autouse=True)
def _settled_once() -> Iterator[None]:
    """Nodes in the tests' own process check a model's exactness once, as their copies do."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kept_exactness, "records_folder", lambda: EXACTNESS)
        yield


@pytest.fixture
def metrics() -> NodeMetrics:
    return NodeMetrics()


@pytest.fixture
def value_of(metrics: NodeMetrics) -> ValueOf:
    """value_of("kakeya_x_total", label="value"); 0.0 for a sample that is not there."""

    def value(sample: str, **labels: str) -> float:
        return metrics.registry.get_sample_value(sample, labels) or 0.0

    return value


@pytest.fixture
def make_identity(tmp_path: Path) -> MakeIdentity:
    def make() -> Identity:
        return load_or_create(tmp_path / f"{uuid.uuid4().hex}.key")

    return make


@pytest.fixture
def identity(make_identity: MakeIdentity) -> Identity:
    return make_identity()


@pytest.fixture
def make_card(identity: Identity) -> MakeCard:
    """make_card(identity=..., incarnation=..., ...): signed, unless `fields` break a rule too."""

    def make(owner: Identity | None = None, **fields: Any) -> SignedCard:
        signer = owner or identity
        card = Card(
            node_id=hashlib.sha256(signer.public_key).hexdigest(),
            name="mini-1",
            fleet_name="default",
            boot_id="boot",
            incarnation=1,
            sequence=0,
            public_key=signer.public_key,
            addresses=("127.0.0.1:7100",),
            platform="linux/x86_64",
            accelerator=Accelerator("cpu", "processor"),
            memory_total_bytes=1 << 33,
            memory_free_bytes=1 << 32,
            software_version="0.1.0",
            protocol_min=1,
            protocol_max=1,
            models=(),
            ring_address="",
            announced_at_unix=1.7e9,
            ttl_seconds=86400.0,
        )
        return sign_card(replace(card, **fields), signer)

    return make


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """serve(register, *interceptors): a channel to a node's server with these servicers."""
    servers: list[grpc.aio.Server] = []
    channels: list[grpc.aio.Channel] = []

    async def start(
        register: Register, *interceptors: grpc.aio.ServerInterceptor
    ) -> grpc.aio.Channel:
        server = make_server(*interceptors)
        register(server)
        port = listen(server, "127.0.0.1", 0, 0)
        await server.start()
        servers.append(server)
        channels.append(grpc.aio.insecure_channel(f"127.0.0.1:{port}"))
        return channels[-1]

    yield start
    for channel in channels:
        await channel.close()
    for server in servers:
        await server.stop(None)


@pytest.fixture
def scrape() -> Scrape:
    """scrape(address): the text at http://address/metrics."""

    async def read(address: str) -> str:
        reader, writer = await asyncio.open_connection(*address.rsplit(":", 1))
        writer.write(f"GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
        text = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        return text

    return read


@pytest.fixture
def eventually() -> Eventually:
    """eventually(condition): for states that can only be looked at, as files and /metrics."""

    async def wait(condition: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await condition():  # noqa: ASYNC110 nothing tells of the change
                await asyncio.sleep(0.02)

    return wait


async def next_message(
    call: UnaryStreamCall[Any, Message] | StreamStreamCall[Any, Message],
) -> Message:
    """The next message of a stream that has not ended."""
    message = await call.read()
    assert message is not grpc.aio.EOF, "the stream ended"
    # The stubs have any object for EOF.
    return cast("Message", message)


@dataclass
class Events:
    """What an agent said, and waiting for what it will say."""

    said: list[Event] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    ended: bool = False

    async def add(self, event: Event | None) -> None:
        async with self.changed:
            if event is None:
                self.ended = True
            else:
                self.said.append(event)
            self.changed.notify_all()

    async def wait_for(self, name: str, /, **facts: object) -> Event:
        """The first event of that name with these facts, said or still to come."""

        def found() -> list[Event]:
            wanted = {"event": name, **facts}
            return [event for event in self.said if wanted.items() <= event.items()]

        async with asyncio.timeout(PATIENCE_SECONDS), self.changed:
            await self.changed.wait_for(lambda: found() or self.ended)
        assert found(), f"ended without {name} {facts}: {self.said}"
        return found()[0]


@dataclass
class RunningAgent:
    """A node in this process; `stop` cuts it off, `leave` lets it drain."""

    node: Node
    events: Events
    task: asyncio.Task[None]
    channel: grpc.aio.Channel
    ready: Event

    @property
    def address(self) -> str:
        return str(self.ready["address"])

    @property
    def node_id(self) -> str:
        return str(self.ready["node_id"])

    async def leave(self) -> None:
        self.node.leave(0.1)
        await self.task

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


StartAgent = Callable[..., Awaitable[RunningAgent]]


@pytest.fixture
def fleet_name() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
async def start_agent(tmp_path: Path, fleet_name: str) -> AsyncIterator[StartAgent]:
    """start_agent(name, **configuration): ready when it returns; fails as the agent fails."""
    running: list[RunningAgent] = []

    async def start(
        name: str = "mini-1", settings: NodeSettings | None = None, **flags: object
    ) -> RunningAgent:
        configuration = {
            "name": name,
            "fleet_name": fleet_name,
            "state": str(tmp_path / name),
            # Nobody else's next port, however soon this one's is free.
            "bind": "127.0.0.1:0",
            "http_bind": "127.0.0.1:0",
            "mdns": False,
            "period_seconds": 0.3,
            "drain_seconds": 0.1,
            # A ring that is tried takes two processes.
            "links": "grpc",
            # Which codec a quality has changes by what is measured of it.
            "codec_sampling": False,
        } | flags
        events = Events()
        tellers: set[asyncio.Task[None]] = set()

        def on_event(event: Event) -> None:
            teller = asyncio.ensure_future(events.add(event))
            tellers.add(teller)
            teller.add_done_callback(tellers.discard)

        opened: asyncio.Future[Node] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            configured = build(configuration, {}, fleet_of=fleet_name_of)
            async with open_node(configured, on_event, settings=settings) as node:
                opened.set_result(node)
                await node.serve()

        task = asyncio.ensure_future(run())
        waiting = asyncio.ensure_future(events.wait_for("ready"))
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            waiting.cancel()
            task.result()
        ready = await waiting
        channel = grpc.aio.insecure_channel(str(ready["address"]))
        running.append(RunningAgent(await opened, events, task, channel, ready))
        return running[-1]

    yield start
    for each in running:
        await each.channel.close()
        await each.stop()


@dataclass
class AgentProcess:
    """An agent in a process of its own; `log` is what it logs, `events` what it prints."""

    process: WarmProcess | subprocess.Popen[str]
    events: Events
    log: Events
    reading: list[asyncio.Task[None]]
    ready: Event = field(default_factory=dict)

    @property
    def address(self) -> str:
        return str(self.ready["address"])

    @property
    def node_id(self) -> str:
        return str(self.ready["node_id"])

    async def ended(self) -> int:
        """The exit status, once everything that it said is read."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            status = await asyncio.to_thread(self.process.wait)
            await asyncio.gather(*self.reading)
        assert status is not None
        return status

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


SpawnAgent = Callable[..., Awaitable[AgentProcess]]


def _event(line: bytes) -> Event:
    """A line as an event; one that is no JSON, as gRPC's own, under the name "plain"."""
    try:
        event: Event = json.loads(line)
    except ValueError:
        return {"event": "plain", "text": line.decode()}
    return event


def _start(environment: Mapping[str, str]) -> tuple[WarmProcess | subprocess.Popen[str], IO[str]]:
    """An agent with this environment, a copy of a process that has imported all; its errors."""
    reading, writing = os.pipe()
    with open(writing, "wb") as its_errors:
        process = agent_process.start_process([*FLEET, "join", "--json"], environment, its_errors)
    return process, os.fdopen(reading)


async def _read(stream: IO[str], into: Events) -> None:
    """Adds what the process says on `stream` until it ends."""
    lines = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), stream
    )
    async for line in lines:
        await into.add(_event(line))
    await into.add(None)
    transport.close()


def _text(value: object) -> str:
    """A key's value as its variable has it."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


@pytest.fixture
async def spawn_agent(tmp_path: Path, fleet_name: str) -> AsyncIterator[SpawnAgent]:
    """spawn_agent(name, **configuration): ready when it returns, unless `until_ready=False`."""
    spawned: list[AgentProcess] = []

    async def spawn(
        name: str = "mini-1", *, until_ready: bool = True, **flags: object
    ) -> AgentProcess:
        configuration = {
            "name": name,
            "fleet_name": fleet_name,
            "state": str(tmp_path / name),
            # Nobody else's next port, however soon this one's is free.
            "bind": "127.0.0.1:0",
            "http_bind": "127.0.0.1:0",
            "mdns": False,
            "period_seconds": 0.3,
            "drain_seconds": 0.1,
            # A ring that is tried takes two processes.
            "links": "grpc",
            "log_format": "json",
        } | flags
        variables = {f"KAKEYA_{key.upper()}": _text(value) for key, value in configuration.items()}
        process, errors = _start({**os.environ, **variables})
        assert process.stdout is not None
        events, log = Events(), Events()
        reading = [
            asyncio.ensure_future(_read(process.stdout, events)),
            asyncio.ensure_future(_read(errors, log)),
        ]
        agent = AgentProcess(process, events, log, reading)
        spawned.append(agent)
        if until_ready:
            agent.ready = await events.wait_for("ready")
        return agent

    yield spawn
    for agent in spawned:
        if agent.process.poll() is None:
            agent.signal(signal.SIGKILL)
        await agent.ended()


@pytest.fixture(autouse=True)
def _no_user_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads the user's own configuration file."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-configuration"))
