"""Fixtures of HTTP's tests: a real fleet, and clients that other people wrote.

fleet        two agents in processes of their own, for the whole session: `one` serves the
             shipped model and a toy that knows tools, `gate` none
openai_of    the official client of a node's HTTP
ask          a plain request, as a browser or a script would send it
toy          the folder of a random model with a tokenizer of bytes and a template with tools
run_agent    an agent in this process, whose insides a test may reach
serve        HTTP in this process with limits of the test's choice, in front of `one` or `gate`
slow_reading a long prompt of `serve` is read piece by piece, as streams look at it
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import socket
import time
import urllib.request
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import certifi
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from kakeya import AsyncSession, SessionInfo
from kakeya_fleet.fleet.cards.card import ModelOffer, Role
from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.limits import HttpLimits, Limits
from kakeya_fleet.node.app.composition import open_node
from kakeya_fleet.node.app.node import Node
from kakeya_fleet.node.app.settings import NodeSettings
from kakeya_fleet.node.config.config import build
from kakeya_fleet.node.http.infill import MARKS
from kakeya_fleet.node.http.server import HttpServer
from kakeya_fleet.node.http.settings import HttpSettings, ServingNode
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier
from scripts.support.agent_process import AgentProcess, LocalFleet
from tests.node.http.clients import openai
from tests.support.homes import home as home
from tests.support.own_cache import own_cache

WEATHER_CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
END_ID, CALL_ID = 256, 257

Event = Mapping[str, Any]
"""What an agent says, as JSON."""

TEMPLATE = """\
{%- if tools %}Tools: {{ tools | tojson }}
{% endif -%}
{%- for message in messages %}<{{ message.role }}>{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}</{{ message.role }}>
{%- endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}"""


def make_toy(source: Path, folder: Path) -> Path:
    shutil.copytree(source, folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    # One token that is a whole call: a bias makes a random model say it.
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    tokenizer.add_tokens([AddedToken(WEATHER_CALL, special=False, normalized=False)])
    tokenizer.add_special_tokens([AddedToken(mark, special=True) for mark in MARKS[0]])
    assert tokenizer.token_to_id("<|end|>") == END_ID
    assert tokenizer.token_to_id(WEATHER_CALL) == CALL_ID
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": END_ID}))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="session")
def toy(random_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = random_checkpoint(vocab_size=300, max_position_embeddings=2048)
    return make_toy(source, tmp_path_factory.mktemp("models") / "toy")


@dataclass
class HttpFleet:
    one: AgentProcess
    gate: AgentProcess


def http_of(agent: AgentProcess) -> str:
    return str(agent.ready["http_address"])


@pytest.fixture(scope="session")
def fleet(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFleet]:
    home = tmp_path_factory.mktemp("home")
    environment = {
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": own_cache(home / "cache"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "KAKEYA_LINKS": "grpc",
    }
    with LocalFleet(f"http-{uuid.uuid4().hex}") as local:
        serve = ["verifier=tiny", "proposer=ngram", f"verifier={toy}"]
        one = local.start("one", serve=serve, environment=environment)
        peers = [str(one.wait_for("joined", seconds=60)["address"])]
        gate = local.start("gate", peers=peers, environment=environment)
        assert one.ready
        assert gate.ready
        yield HttpFleet(one, gate)


@pytest.fixture(scope="module", autouse=True)
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each client of another's reads the authorities that it trusts: one here, not all there are.

    No test asks anybody whom they vouch for, and reading them takes longer than most tests.
    """
    end = "-----END CERTIFICATE-----\n"
    first = Path(certifi.where()).read_text("utf-8").partition(end)[0]
    file = tmp_path_factory.mktemp("authorities") / "one.pem"
    file.write_text(first + end, "utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture(autouse=True)
def gate_knows_one(request: pytest.FixtureRequest) -> None:
    """Waits until `gate` knows that `one` serves, where a test uses them.

    On a busy machine it may have taken the other for dead for a moment, as it should.
    """
    if "fleet" not in request.fixturenames:
        return
    fleet = request.getfixturevalue("fleet")
    while isinstance(fleet, HttpFleet) and "tiny" not in served_by(http_of(fleet.gate)):
        time.sleep(0.05)


def served_by(address: str) -> set[str]:
    """The models that a node at host:port knows to be served."""
    with urllib.request.urlopen(f"http://{address}/v1/models", timeout=60) as response:
        return {each["id"] for each in json.load(response)["data"]}


OpenAiOf = Callable[[AgentProcess], "openai.OpenAI"]


@pytest.fixture
def openai_of() -> Iterator[OpenAiOf]:
    made: list[openai.OpenAI] = []

    def make(agent: AgentProcess) -> openai.OpenAI:
        client = openai.OpenAI(
            base_url=f"http://{http_of(agent)}/v1",
            api_key="any key will do",
            max_retries=0,
            timeout=60,
        )
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@dataclass(frozen=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


def request(
    address: str,
    path: str,
    body: object = None,
    *,
    method: str | None = None,
    **headers: str,
) -> Answered:
    host, port = address.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    try:
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if raw is not None:
            headers.setdefault("Content_Type", "application/json")
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        connection.request(method or ("GET" if raw is None else "POST"), path, raw, named)
        answer = connection.getresponse()
        return Answered(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


Ask = Callable[..., Answered]


@pytest.fixture
def ask() -> Ask:
    """ask(agent or address, path, body=None, **headers)."""

    def send(
        agent: AgentProcess | str,
        path: str,
        body: object = None,
        *,
        method: str | None = None,
        **headers: str,
    ) -> Answered:
        address = agent if isinstance(agent, str) else http_of(agent)
        return request(address, path, body, method=method, **headers)

    return send


RunAgent = Callable[..., Awaitable[tuple[Node, Event]]]


@pytest.fixture
async def run_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunAgent]:
    """run_agent(**configuration): the agent and its ready event."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-configuration"))
    monkeypatch.setenv("XDG_CACHE_HOME", own_cache(tmp_path / "cache"))
    running: list[asyncio.Task[None]] = []

    async def start(
        *, name: str = "inside", settings: NodeSettings | None = None, **flags: object
    ) -> tuple[Node, Event]:
        configuration = {
            "name": name,
            "fleet_name": f"http-{os.getpid()}-{uuid.uuid4().hex}",
            "state": str(tmp_path / name),
            "bind": "127.0.0.1:0",
            "http_bind": "127.0.0.1:0",
            "mdns": False,
            "links": "grpc",
            "period_seconds": 0.3,
            "drain_seconds": 5.0,
        } | flags
        said: asyncio.Queue[Event] = asyncio.Queue()
        opened: asyncio.Future[Node] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            configured = build(configuration, {})
            async with open_node(configured, said.put_nowait, settings=settings) as node:
                opened.set_result(node)
                await node.serve()

        task = asyncio.ensure_future(run())
        running.append(task)
        first = asyncio.ensure_future(said.get())
        await asyncio.wait({task, first}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return await opened, await first

    yield start
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


class NoRoles:
    """The roles of a node that serves none."""

    verifiers: Mapping[str, ServedVerifier] = {}
    verifier_count = 0
    draining = False
    begun = True

    def awaited(self) -> frozenset[Role]:
        return frozenset()

    def offers(self) -> tuple[ModelOffer, ...]:
        return ()

    def archive_offer(self) -> None:
        return None


ServeHttp = Callable[..., Awaitable[str]]


@pytest.fixture
async def serve(fleet: HttpFleet) -> AsyncIterator[ServeHttp]:
    """serve(way, **limits): HTTP in this process, in front of a node of the fleet; its address."""
    servers: list[HttpServer] = []

    async def start(way: str = "one", send_buffer: int = 0, **limits: Any) -> str:
        metrics = NodeMetrics()
        allowances = Allowances(Limits(http=HttpLimits(**limits)), metrics)
        server = HttpServer(HttpSettings("127.0.0.1", 0), metrics, allowances)
        await server.start()
        if send_buffer:
            (listening,) = server._sockets
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        server.open(ServingNode("here", getattr(fleet, way).address, NoRoles(), tuple))
        servers.append(server)
        return server.address

    yield start
    for server in servers:
        await server.close()


READ_AT_ONCE = 256


@pytest.fixture
def slow_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long prompts that this process appends are read in pieces, each behind a look at the last.

    However fast the machine is: of an answer whose stream looks at none there is no end.
    """
    append, info = AsyncSession.append, AsyncSession.info
    looked = asyncio.Event()

    async def look(session: AsyncSession) -> SessionInfo:
        found = await info(session)
        looked.set()
        return found

    async def append_slowly(
        session: AsyncSession, token_ids: Sequence[int], *, room_tokens: int = 0
    ) -> int:
        ends = [*range(READ_AT_ONCE, len(token_ids), READ_AT_ONCE), len(token_ids)]
        for start, end in pairwise([0, *ends]):
            if start:
                looked.clear()
                await looked.wait()
            room = len(token_ids) - end + room_tokens
            await append(session, token_ids[start:end], room_tokens=room)
        return session.history_length

    monkeypatch.setattr(AsyncSession, "append", append_slowly)
    monkeypatch.setattr(AsyncSession, "info", look)


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 nothing tells of the change
            await asyncio.sleep(0.02)


Eventually = Callable[..., Awaitable[None]]


@pytest.fixture
def eventually() -> Eventually:
    """eventually(condition): for states that can only be looked at."""
    return until


UntilReady = Callable[[Node], Awaitable[None]]


@pytest.fixture
def until_ready() -> UntilReady:
    """until_ready(agent): its models are loaded."""

    async def wait(agent: Node) -> None:
        async def serves() -> bool:
            return agent.is_loaded

        await until(serves, 60)

    return wait
