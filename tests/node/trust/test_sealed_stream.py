"""Sealed streams wait, and do not wait, as the sockets below them."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from kakeya_fleet.node.errors import BadCertificate
from kakeya_fleet.node.roles.archive.data_frames import limit_waits
from kakeya_fleet.node.trust.sealed_stream import (
    ByteStream,
    SealedStream,
    is_member_still,
    sealed_from,
    sealed_to,
)
from kakeya_fleet.node.trust.trust import Trust
from tests.support import trusted_nodes

WAIT_SECONDS = 10.0
Ends = tuple[SealedStream, SealedStream]


@pytest.fixture
def fleet(tmp_path: Path) -> list[Trust]:
    return trusted_nodes.fleet_of(tmp_path, 2)


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        # As data connections are: the kernel keeps the time.
        for each in (near, far):
            limit_waits(each, reading=WAIT_SECONDS, writing=WAIT_SECONDS)
        yield near, far


@pytest.fixture
def ends(sockets: tuple[socket.socket, socket.socket], fleet: list[Trust]) -> Ends:
    """Who connected, and who was connected to."""
    until = time.monotonic() + WAIT_SECONDS
    with ThreadPoolExecutor(1) as beside:
        far = beside.submit(sealed_from, sockets[1], fleet[0], until)
        near = sealed_to(sockets[0], fleet[0].node_id, fleet[1], until)
        return near, far.result()


def received(stream: ByteStream, size: int) -> bytes:
    into, there = memoryview(bytearray(size)), 0
    while there < size:
        try:
            count = stream.recv_into(into[there:])
        except ssl.SSLWantReadError:
            # A record has begun to come.
            continue
        assert count, "it ended"
        there += count
    return bytes(into)


@pytest.mark.parametrize("sizes", [(1,), (48, 3584), (48, 20_000), (48, 1 << 20, 3_000_001)])
def test_what_was_sent_in_parts_arrives_whole_both_ways(ends: Ends, sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    for sender, receiver in (ends, ends[::-1]):
        parts = [memoryview(rng.bytes(size)) for size in sizes]
        sending = threading.Thread(target=sender.sendmsg, args=(parts,))
        sending.start()
        assert received(receiver, sum(sizes)) == b"".join(parts)
        sending.join()


def test_arrays_are_sent_by_their_bytes(ends: Ends) -> None:
    numbers = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert ends[0].sendmsg((b"head", numbers.data)) == 52
    assert received(ends[1], 52) == b"head" + numbers.tobytes()


def test_who_asks_without_waiting_is_told_at_once(ends: Ends) -> None:
    near, far = ends
    into = memoryview(bytearray(64))
    with pytest.raises(BlockingIOError):
        far.recv_into(into, 0, socket.MSG_DONTWAIT)
    near.sendall(b"there")
    assert far.recv_into(into, 0, socket.MSG_DONTWAIT) == 5
    # What is decrypted already needs nothing of the socket.
    near.sendall(b"two parts")
    assert far.recv_into(into[:4], 0, socket.MSG_DONTWAIT) == 4
    assert far.recv_into(into[4:], 0, socket.MSG_DONTWAIT) == 5
    assert bytes(into[:9]) == b"two parts"


def test_the_end_of_the_socket_is_the_end(
    ends: Ends, sockets: tuple[socket.socket, socket.socket]
) -> None:
    sockets[0].shutdown(socket.SHUT_RDWR)
    assert ends[1].recv_into(memoryview(bytearray(64))) == 0


def test_only_the_node_that_is_meant_will_do(
    sockets: tuple[socket.socket, socket.socket], fleet: list[Trust]
) -> None:
    until = time.monotonic() + WAIT_SECONDS
    with ThreadPoolExecutor(1) as beside:
        far = beside.submit(sealed_from, sockets[1], fleet[0], until)
        with pytest.raises(BadCertificate, match="none was named"):
            sealed_to(sockets[0], "", fleet[1], until)
        far.result()


def test_a_connection_outlives_its_certificate_and_not_its_member(tmp_path: Path) -> None:
    now = [time.time()]
    keeper, member = trusted_nodes.fleet_of(tmp_path, 2, lambda: now[0])
    certificate = member.member.certificate
    assert is_member_still(certificate, keeper)
    now[0] += 8 * 86_400
    assert is_member_still(certificate, keeper)
    now[0] -= 8 * 86_400
    trusted_nodes.put_out(keeper, member.node_id)
    assert not is_member_still(certificate, keeper)
