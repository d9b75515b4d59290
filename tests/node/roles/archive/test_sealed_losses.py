"""Sealed archives and their sessions when somebody stalls, intrudes, or is put out meanwhile."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kakeya_fleet.engine.errors import RestorerLost
from kakeya_fleet.node.roles.archive.archive_channels import ArchiveChannels
from kakeya_fleet.node.roles.archive.archive_ways import ArchiveRefused
from kakeya_fleet.node.roles.archive.data_connection import (
    ConnectionLost,
    DataConnection,
    MeantNode,
)
from kakeya_fleet.node.roles.archive.data_frames import Frame, Kind, parts_of
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault
from kakeya_fleet.node.rpc.channels import Channels
from kakeya_fleet.node.trust.sealed_stream import sealed_from, sealed_to
from kakeya_fleet.node.trust.trust import Trust
from tests.support import evicted_stores, sealed_archives, trusted_nodes
from tests.support.sealed_archives import HOST, WAIT_SECONDS, Archives, attach, until

FOR_EVER = 60.0
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""Its beginning: the rest never comes."""


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Closes sockets in the end."""
    with ExitStack() as stack:
        yield stack


def connected(opened: ExitStack, port: int) -> socket.socket:
    return opened.enter_context(socket.create_connection((HOST, port), timeout=WAIT_SECONDS))


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def attaches(archives: sealed_archives.Served, opened: ExitStack, own: Trust) -> None:
    """A member opens an archive and uses it."""
    assert archives.trust is not None
    port, archive_id = archives.opened_by(own)
    deadline = time.monotonic() + WAIT_SECONDS
    stream = sealed_to(connected(opened, port), archives.trust.node_id, own, deadline)
    attach(stream, archive_id)


def test_one_who_stalls_in_the_handshake_holds_up_nobody(
    archives: Archives, fleet: list[Trust], opened: ExitStack
) -> None:
    served = archives.start(fleet[0], greetings=4, greeting_seconds=FOR_EVER)
    port, _ = served.opened_by(fleet[1])
    stalled = [connected(opened, port) for _ in range(4)]
    for connection in stalled:
        connection.sendall(CLIENT_HELLO)
    attaches(served, opened, fleet[1])
    # It had the place of the one that was silent for longest, and of nobody else.
    assert is_closed(stalled[0])
    stalled[1].settimeout(0.0)
    with pytest.raises(BlockingIOError):
        stalled[1].recv(1)
    for connection in stalled:
        connection.close()


def test_who_stalls_in_the_handshake_is_closed_at_the_deadline(
    archives: Archives, fleet: list[Trust], opened: ExitStack
) -> None:
    served = archives.start(fleet[0], greetings=1, greeting_seconds=0.2)
    port, _ = served.opened_by(fleet[1])
    silent = connected(opened, port)
    assert is_closed(silent)
    half = connected(opened, port)
    half.sendall(CLIENT_HELLO)
    assert is_closed(half)
    # A handshake alone is no greeting either.
    proven = connected(opened, port)
    sealed_to(proven, fleet[0].node_id, fleet[1], time.monotonic() + WAIT_SECONDS)
    assert is_closed(proven)


@pytest.fixture
def impostor(fleet: list[Trust]) -> Iterator[tuple[int, list[bytes]]]:
    """Another member at the address: its port, and what it was told by whoever came."""
    told: list[bytes] = []
    with socket.create_server((HOST, 0)) as listener:

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                stream = sealed_from(connection, fleet[2], time.monotonic() + WAIT_SECONDS)
                into = memoryview(bytearray(1024))
                told.append(bytes(into[: stream.recv_into(into)]))

        thread = threading.Thread(target=run)
        thread.start()
        yield listener.getsockname()[1], told
        thread.join()


def test_another_member_in_the_middle_is_told_nothing(
    fleet: list[Trust], impostor: tuple[int, list[bytes]]
) -> None:
    port, told = impostor
    with pytest.raises(ConnectionLost, match="in place of node") as lost:
        DataConnection(HOST, port, WAIT_SECONDS, MeantNode(fleet[0].node_id, fleet[1]))
    assert lost.value.fault is RestorerFault.UNTRUSTED
    until(lambda: told == [b""])


@pytest.mark.asyncio
async def test_an_archive_of_another_node_than_was_meant_is_not_opened(
    archives: Archives, fleet: list[Trust]
) -> None:
    served, ways = archives.start(fleet[2]), sealed_archives.ways_of(fleet[1])
    for node_id in (fleet[0].node_id, trusted_nodes.id_of("nobody")):
        with pytest.raises(ArchiveRefused):
            await ways.open(served.address, served.opening, None, node_id)
    assert not len(served.archives)
    # The one who is there is opened by its own name.
    await ways.open(served.address, served.opening, None, fleet[2].node_id)
    await ways.close()


@pytest.mark.asyncio
async def test_a_member_who_is_put_out_loses_its_archive_at_once(
    archives: Archives, fleet: list[Trust]
) -> None:
    keeper, owner, other = fleet
    served = archives.start(keeper)
    stores = []
    for own in (owner, other):
        ways = sealed_archives.ways_of(own)
        found = await ways.open(served.address, served.opening, None, keeper.node_id)
        stores.append(found.store)
    assert len(served.archives) == 2
    trusted_nodes.put_out(keeper, other.node_id)
    until(lambda: len(served.archives) == 1)
    sealed_archives.answer_of(stores[0], served.shape)
    with pytest.raises(RestorerLost):
        sealed_archives.answer_of(stores[1], served.shape)
    stores[0].release()


@pytest.mark.asyncio
async def test_a_session_leaves_an_archive_whose_node_is_put_out(
    archives: Archives, fleet: list[Trust]
) -> None:
    keeper, owner, other = fleet
    served, ways = archives.start(other), sealed_archives.ways_of(owner)
    found = await ways.open(served.address, served.opening, None, other.node_id)
    sealed_archives.answer_of(found.store, served.shape)
    # The archive's own node has not heard of it.
    trusted_nodes.put_out(keeper, other.node_id, owner)
    with pytest.raises(RestorerLost):
        found.store.begin(evicted_stores.random_queries(served.shape, 2, 605, 5, seed=1))
        found.store.finish()
    with pytest.raises(ArchiveRefused, match="put out"):
        await ways.open(served.address, served.opening, None, other.node_id)
    until(lambda: not len(served.archives))
    await ways.close()


def test_an_archive_that_is_silent_is_lost_within_the_deadline(
    archives: Archives, fleet: list[Trust]
) -> None:
    served = archives.start(fleet[0], greeting_seconds=FOR_EVER)
    port, _ = served.opened_by(fleet[1])
    connection = DataConnection(HOST, port, 0.2, MeantNode(fleet[0].node_id, fleet[1]))
    with pytest.raises(ConnectionLost) as lost:
        connection.receive()
    assert lost.value.fault is RestorerFault.DEADLINE
    connection.end()


def _one_bit(data: bytes) -> Iterator[bytes]:
    yield data[:-1] + bytes([data[-1] ^ 1])


def _drops(data: bytes) -> Iterator[bytes]:
    for index in range(len(data)):
        time.sleep(0.02)
        yield data[index : index + 1]


@pytest.mark.parametrize(
    ("back", "fault"),
    [(_one_bit, RestorerFault.CORRUPT), (_drops, RestorerFault.DEADLINE)],
    ids=["a bit is changed", "bytes come one by one"],
)
def test_what_a_wire_does_to_a_record_ends_the_connection(
    archives: Archives,
    fleet: list[Trust],
    back: Callable[[bytes], Iterator[bytes]],
    fault: RestorerFault,
) -> None:
    served = archives.start(fleet[0])
    port, archive_id = served.opened_by(fleet[1])
    relay = sealed_archives.Relay(port)
    # Shorter than the answer takes, one byte after the other.
    connection = DataConnection(HOST, relay.port, 0.5, MeantNode(fleet[0].node_id, fleet[1]))
    relay.back = back
    connection.send(*parts_of(Frame(Kind.ATTACH, serial=1), archive_id.encode()))
    with pytest.raises(ConnectionLost) as lost:
        connection.receive()
    assert lost.value.fault is fault
    connection.end()
    relay.close()


def test_channels_have_the_certificates_of_now(archives: Archives, fleet: list[Trust]) -> None:
    served = archives.start(fleet[0])
    channels = ArchiveChannels(Channels(fleet[1]), fleet[1])
    first = channels.to(served.address, fleet[0].node_id)
    assert channels.to(served.address, fleet[0].node_id) is first
    trusted_nodes.renew(fleet[1], fleet[0])
    assert channels.to(served.address, fleet[0].node_id) is not first
    channels.close()
    # Both ends go on with new ones.
    trusted_nodes.renew(fleet[0], fleet[0])
    with ExitStack() as opened:
        attaches(served, opened, fleet[1])


@pytest.mark.asyncio
async def test_a_node_whose_certificate_has_ended_says_so_itself(
    archives: Archives, tmp_path: Path
) -> None:
    now = [time.time()]
    keeper, owner = trusted_nodes.fleet_of(tmp_path / "late", 2, lambda: now[0])
    served, ways = archives.start(keeper), sealed_archives.ways_of(owner)
    now[0] += 8 * 86_400
    with pytest.raises(ArchiveRefused, match="of this node itself the certificate ended"):
        await ways.open(served.address, served.opening, None, keeper.node_id)
    await ways.close()


def test_an_archive_whose_key_is_gone_says_so_in_its_log(
    archives: Archives, fleet: list[Trust], opened: ExitStack
) -> None:
    served = archives.start(fleet[0])
    port, _ = served.opened_by(fleet[1])
    fleet[0].files.member_file.unlink()
    with capture_logs() as said:
        assert is_closed(connected(opened, port))
    told = [each["event"] for each in said if each["event"].startswith("archive_")]
    assert told[0] == "archive_cannot_be_proven"
    assert served.refused("TRUST_CORRUPT") == 1
    # The other end fares as well when it is its own.
    fleet[1].files.member_file.unlink()
    with pytest.raises(ConnectionLost, match="cannot show") as lost:
        DataConnection(HOST, port, WAIT_SECONDS, MeantNode(fleet[0].node_id, fleet[1]))
    assert lost.value.fault is RestorerFault.UNTRUSTED
