"""Seed peers that cannot be joined: what is wrong is found out, told and taken back."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc.aio
import pytest

from kakeya import AsyncClient, DeadlineExceeded, NodeUnreachable
from kakeya_fleet.node.membership.fleet_changes import MOST_NAMESAKES
from kakeya_fleet.node.membership.seed_diagnosis import Presence, diagnose, look
from kakeya_fleet.node.membership.seed_watch import SeedWatch
from kakeya_fleet.node.watch.event_log import EventKind, EventLog
from scripts.attack.attacks import exchanged_cards
from tests.node.conftest import Event, Eventually, Serve, StartAgent

Listening = Callable[[bytes], Awaitable[str]]


@pytest.fixture
async def listening() -> AsyncIterator[Listening]:
    """listening(answer): host:port of a server that says `answer` to the first bytes."""
    servers: list[asyncio.Server] = []

    async def start(answer: bytes) -> str:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(answer)
            if answer:
                writer.close()
            else:
                await reader.read()

        servers.append(await asyncio.start_server(handle, "127.0.0.1", 0))
        host, port = servers[-1].sockets[0].getsockname()
        return f"{host}:{port}"

    yield start
    for server in servers:
        server.close()


async def test_what_is_at_an_address_is_told_by_its_first_bytes(
    listening: Listening, serve: Serve, free_port: int
) -> None:
    assert await look(f"127.0.0.1:{free_port}") is Presence.NOTHING
    assert await look("no-such-host.invalid:7600") is Presence.NO_NAME
    assert await look(await listening(b"HTTP/1.1 400 Bad Request\r\n\r\n")) is Presence.ANOTHER
    assert await look(await listening(b"?")) is Presence.ANOTHER
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    # Bound, as a node that is starting is.
    assert await look(f"127.0.0.1:{port}") is Presence.SILENT
    await server.start()
    assert await look(f"127.0.0.1:{port}") is Presence.GRPC
    await server.stop(None)


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


async def test_silence_and_another_program_are_told_apart(
    listening: Listening, free_port: int
) -> None:
    nobody, another = f"127.0.0.1:{free_port}", await listening(b"HTTP/1.1 400 Bad Request\r\n")
    silent = await diagnose(nobody, NodeUnreachable("x"), "home")
    assert silent.reason == "UNREACHABLE"
    assert silent.message == f"The peer {nobody} cannot be joined: nothing listens there."
    assert "--peer" in silent.mend
    assert (await diagnose(another, DeadlineExceeded("x"), "home")).reason == "NOT_A_NODE"


class Told:
    """A seed watch, and what it told."""

    def __init__(self, address: str) -> None:
        self.events, self.now = EventLog(), 0.0
        self.said: list[Event] = []
        self.watch = SeedWatch([address], "home", self.said.append, self.events, lambda: self.now)


async def test_the_silence_of_a_member_is_told_as_its_death_alone(free_port: int) -> None:
    told = Told(address := f"127.0.0.1:{free_port}")
    for told.now in (0.0, 10.0):
        await told.watch.failed(address, NodeUnreachable("x"), is_known=True)
    assert (told.said, told.watch.to_wire(), told.events.latest) == ([], [], ())
    for told.now in (20.0, 30.0):
        await told.watch.failed(address, NodeUnreachable("x"), is_known=False)
    assert [event["event"] for event in told.said] == ["seed_fault"]


async def test_a_terminal_is_told_every_minute_and_the_events_once(free_port: int) -> None:
    told = Told(address := f"127.0.0.1:{free_port}")
    for told.now in range(0, 200, 10):
        await told.watch.failed(address, NodeUnreachable("x"), is_known=False)
    assert [event["since_seconds"] for event in told.said] == [10, 70, 130, 190]
    told.watch.answered(address)
    told.watch.answered(address)
    assert told.said[-1] == {"event": "seed_joined", "address": address}
    kinds = [event.kind for event in told.events.latest]
    assert kinds == [EventKind.SEED_FAULT, EventKind.SEED_JOINED]


async def test_a_node_tells_of_a_port_of_http_and_of_another_fleet(
    start_agent: StartAgent, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    other = await start_agent("other", fleet_name="other")
    http = other.ready["http_address"]
    agent = await start_agent("a", peers=[other.address, http])
    mismatch = await agent.events.wait_for("seed_fault", reason="FLEET_MISMATCH")
    assert mismatch["address"] == other.address
    assert "'other'" in mismatch["message"]
    assert "--fleet other" in mismatch["mend"]
    assert (await agent.events.wait_for("seed_fault", reason="NOT_A_NODE"))["address"] == http
    reasons = {other.address: "FLEET_MISMATCH", http: "NOT_A_NODE"}
    async with AsyncClient(agent.address) as client:

        async def told() -> bool:
            """A call that a busy machine answers late is another fault, until the next one."""
            faults = (await client.fleet.node()).seed_faults
            assert all(fault.attempt_count > 0 for fault in faults)
            return {fault.address: fault.reason for fault in faults} == reasons

        await eventually(told)
    # The node whose HTTP is called is not at fault, and fills its terminal with nothing.
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_peer_that_comes_to_the_fleet_is_told_once_and_is_no_fault_any_more(
    start_agent: StartAgent,
) -> None:
    wrong = await start_agent("b", fleet_name="other")
    agent = await start_agent("a", peers=[wrong.address])
    await agent.events.wait_for("seed_fault", reason="FLEET_MISMATCH")
    await wrong.stop()
    right = await start_agent("b")
    assert right.address == wrong.address
    await agent.events.wait_for("seed_joined", address=right.address)
    async with AsyncClient(agent.address) as client:
        assert (await client.fleet.node()).seed_faults == ()


async def test_two_nodes_of_one_name_hear_of_each_other(
    start_agent: StartAgent, tmp_path: Path
) -> None:
    one = await start_agent("mini-1")
    two = await start_agent("mini-1", state=str(tmp_path / "copy"), peers=[one.address])
    for agent, other in ((one, two), (two, one)):
        told = await agent.events.wait_for("same_name", node_id=other.node_id)
        assert told["address"] == other.address
        assert told["free_name"] == "mini-2"
        assert [event["event"] for event in agent.events.said].count("same_name") == 1


async def test_of_a_crowd_of_one_name_a_few_are_told_of(start_agent: StartAgent) -> None:
    """Each is a look at all names: twenty in a message, of ten thousand, stopped a node."""
    agent = await start_agent("mini-1")
    told = await exchanged_cards(agent.channel, messages=2, cards=10, padded=False)
    assert told.most() == {"OK": 2}
    async with AsyncClient(agent.address) as client:
        assert len(await client.fleet.nodes()) > MOST_NAMESAKES + 1
    said = [event["event"] for event in agent.events.said]
    assert said.count("same_name") == MOST_NAMESAKES
