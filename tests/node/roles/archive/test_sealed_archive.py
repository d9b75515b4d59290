"""Archives of a fleet with an authority: by TLS, for members, each for its opener alone."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Sized
from functools import partial
from pathlib import Path

import grpc
import pytest

from kakeya.v1 import archive_pb2
from kakeya.v1.archive_pb2_grpc import ArchiveServiceStub
from kakeya_fleet.node.roles.archive.data_connection import (
    ConnectionLost,
    DataConnection,
    MeantNode,
)
from kakeya_fleet.node.roles.archive.data_frames import Closed, Frame, Kind, parts_of
from kakeya_fleet.node.rpc.channels import Channels
from kakeya_fleet.node.rpc.refusals import MalformedMessage
from kakeya_fleet.node.trust.sealed_stream import SealedStream, sealed_to
from kakeya_fleet.node.trust.tls import client_context
from kakeya_fleet.node.trust.trust import Trust
from tests.support import evicted_stores, sealed_archives, trusted_nodes
from tests.support.sealed_archives import HOST, WAIT_SECONDS, Archives, attach, until

DAY = 86_400.0


@pytest.mark.asyncio
async def test_an_archive_answers_by_tls_as_in_plain_text(
    archives: Archives, fleet: list[Trust]
) -> None:
    found = []
    for here, there in ((None, None), (fleet[0], fleet[1])):
        served, ways = archives.start(here), sealed_archives.ways_of(there)
        node_id = here.node_id if here is not None else ""
        opened = await ways.open(served.address, served.opening, None, node_id)
        found.append(sealed_archives.answer_of(opened.store, served.shape))
        forked = opened.store.fork(100)
        assert forked.length == 100
        await ways.close()
        until(partial(_is_empty, served.archives))
    assert found[0] == found[1]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_neither_the_archives_id_nor_what_is_kept_crosses_the_wire_in_clear(
    archives: Archives, fleet: list[Trust], *, is_sealed: bool
) -> None:
    here, there = (fleet[0], fleet[1]) if is_sealed else (None, None)
    served = archives.start(here)
    port, archive_id = served.opened_by(there)
    relay = sealed_archives.Relay(port)
    meant = MeantNode(fleet[0].node_id, fleet[1]) if is_sealed else None
    connection = DataConnection(HOST, relay.port, WAIT_SECONDS, meant)
    kept = evicted_stores.random_evicted(served.shape, 40, seed=0).groups[0].tobytes()[:256]
    connection.send(*parts_of(Frame(Kind.ATTACH, serial=1), archive_id.encode()))
    assert connection.receive().kind == Kind.ATTACHED
    connection.send(*parts_of(Frame(Kind.DEPOSIT, serial=2), kept))
    with pytest.raises(ConnectionLost):
        # No deposit is that short; it came all the same.
        connection.receive()
    connection.end()
    relay.close()
    assert len(relay.seen) > 300
    for secret in (archive_id.encode(), kept):
        assert (secret in relay.seen) is not is_sealed


def _is_empty(archives: Sized) -> bool:
    return not len(archives)


def _plain(connection: socket.socket, _own: Trust, archive_id: str) -> Frame:
    return attach(connection, archive_id)


def _nobody(connection: socket.socket, own: Trust, archive_id: str) -> Frame:
    """TLS without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=_authorities(own))
    return _as_client(connection, context, archive_id)


def _as_member(connection: socket.socket, own: Trust, archive_id: str) -> Frame:
    return _as_client(connection, client_context(own), archive_id)


def _unverifying(connection: socket.socket, own: Trust, archive_id: str) -> Frame:
    """It takes whatever answers, to get as far as it can."""
    context = client_context(own)
    context.verify_mode = ssl.CERT_NONE
    return _as_client(connection, context, archive_id)


def _as_client(connection: socket.socket, context: ssl.SSLContext, archive_id: str) -> Frame:
    stream = SealedStream(connection, context, server_side=False)
    stream.handshake(time.monotonic() + WAIT_SECONDS)
    return attach(stream, archive_id)


def _authorities(own: Trust) -> str:
    return "".join(ssl.DER_cert_to_PEM_cert(each) for each in own.ledger.authorities)


Intruder = Callable[[socket.socket, Trust, str], Frame]


def _answer(
    intruder: Intruder, connection: socket.socket, own: Trust, archive_id: str
) -> Frame | None:
    """What it is told; None when TLS ends it."""
    try:
        return intruder(connection, own, archive_id)
    except (ssl.SSLError, ConnectionError, Closed, MalformedMessage):
        return None


@pytest.mark.parametrize(
    ("who", "intruder", "reason"),
    [
        ("a stranger in plain text", _plain, "BAD_CERTIFICATE"),
        ("a stranger without a certificate", _nobody, "BAD_CERTIFICATE"),
        ("a member of another fleet", _unverifying, "BAD_CERTIFICATE"),
        ("a member whose certificate has ended", _unverifying, "BAD_CERTIFICATE"),
        ("a member who was put out", _as_member, "BAD_CERTIFICATE"),
        ("a member who did not open it", _as_member, "ARCHIVE_NOT_FOUND"),
    ],
)
def test_an_archives_id_alone_opens_nothing(
    archives: Archives,
    fleet: list[Trust],
    tmp_path: Path,
    who: str,
    intruder: Intruder,
    reason: str,
) -> None:
    keeper, owner, other = fleet
    if "another fleet" in who:
        (other,) = trusted_nodes.fleet_of(tmp_path / "others", 1)
    if "has ended" in who:
        now = [time.time() - 9 * DAY]
        keeper, owner, other = trusted_nodes.fleet_of(tmp_path / "old", 3, lambda: now[0])
        now[0] += 9 * DAY
        for member in (keeper, owner):
            trusted_nodes.renew(member, keeper)
    served = archives.start(keeper)
    port, archive_id = served.opened_by(owner)
    if "put out" in who:
        trusted_nodes.put_out(keeper, other.node_id)
    with socket.create_connection((HOST, port), timeout=WAIT_SECONDS) as connection:
        answer = _answer(intruder, connection, other, archive_id)
    assert answer is None or answer.kind == Kind.ERROR
    until(lambda: served.refused(reason) == 1)
    # The archive lives, and waits for the one who opened it.
    with socket.create_connection((HOST, port), timeout=WAIT_SECONDS) as connection:
        deadline = time.monotonic() + WAIT_SECONDS
        stream = sealed_to(connection, keeper.node_id, owner, deadline)
        assert attach(stream, archive_id).kind == Kind.ATTACHED


def test_a_clock_that_is_ahead_refuses_by_name(archives: Archives, tmp_path: Path) -> None:
    now = [time.time()]
    keeper, owner = trusted_nodes.fleet_of(tmp_path / "fleet", 2, lambda: now[0])
    served = archives.start(keeper)
    port, archive_id = served.opened_by(owner)
    now[0] += 8 * DAY
    with socket.create_connection((HOST, port), timeout=WAIT_SECONDS) as connection:
        answer = _as_client(connection, client_context(owner), archive_id)
    assert answer.kind == Kind.ERROR
    assert b"ended at" in answer.body.tobytes()


def test_only_members_open_archives_and_only_openers_close_them(
    archives: Archives, fleet: list[Trust], tmp_path: Path
) -> None:
    keeper, owner, other = fleet
    served = archives.start(keeper)
    _, archive_id = served.opened_by(owner)
    (stranger,) = trusted_nodes.fleet_of(tmp_path / "others", 1)
    for trust in (None, stranger):
        with pytest.raises(grpc.RpcError):
            served.opened_by(trust)
    with Channels(other).open_blocking(served.address, keeper.node_id) as channel:
        request = archive_pb2.CloseArchiveRequest(archive_id=archive_id)
        with pytest.raises(grpc.RpcError) as refused:
            ArchiveServiceStub(channel).CloseArchive(request, timeout=WAIT_SECONDS)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    trusted_nodes.put_out(keeper, other.node_id)
    with pytest.raises(grpc.RpcError):
        served.opened_by(other)
    assert served.refused("BAD_CERTIFICATE") == 1
    assert len(served.archives) == 1
