"""The sizes of packets on the ways to peers, as far as a program without privileges sees them."""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
from dataclasses import replace
from functools import partial

import psutil

from kakeya import DeadlineExceeded, KakeyaError, NodeStatus, NodeUnreachable, Timeouts
from kakeya.connection import Connection
from kakeya.v1 import capability_pb2
from kakeya_fleet.fleet.diagnosis import path_mtu
from kakeya_fleet.fleet.diagnosis.finding import Finding, counted, not_run, ok
from kakeya_fleet.node.cli.asking.access import Callers
from kakeya_fleet.node.cli.doctor.in_threads import in_thread
from kakeya_fleet.node.cli.doctor.site import ANSWER_SECONDS, Site
from kakeya_fleet.node.config.config import split_address

# Options of Linux that Python has no names for: see ip(7) and ipv6(7).
_IP_MTU, _IPV6_MTU = 14, 24
# Several packets of 1,500 bytes after HPACK's compression, and below gRPC's 8 KiB of metadata.
_PADDING_BYTES = 3000


async def check(site: Site) -> list[Finding]:
    """Connects to each peer once for the kernel's sizes, and sends it something large."""
    if site.node is None:
        return [not_run(path_mtu.CHECK, site.absence)]
    if not site.peers:
        return [ok(path_mtu.CHECK, f"{site.node.card.name} knows no other node")]
    found = await asyncio.gather(*map(partial(_path, Callers(site.address)), site.peers))
    paths = [each for each in found if each is not None]
    lines = path_mtu.path_mtu(paths)
    if len(paths) < len(found):
        mute = counted(len(found) - len(paths), "peer")
        lines.append(not_run(path_mtu.CHECK, f"Calls to {mute} were not answered: see to peers."))
    return lines


async def _path(callers: Callers, peer: NodeStatus) -> path_mtu.Path | None:
    """The way to the peer; None when it does not answer small calls either."""
    connection = _connection(callers, peer)
    try:
        await _small_call(connection)
        sizes = await in_thread(partial(_sizes, peer))
        fault = await _large_fault(connection)
    except (KakeyaError, OSError):
        return None
    finally:
        await connection.close()
    if fault and not await _still_answers(callers, peer):
        return None
    return replace(sizes, large_fault=fault)


async def _still_answers(callers: Callers, peer: NodeStatus) -> bool:
    """Whether a small call passes now: a busy peer is no narrow way.

    Over another connection, since what is lost holds up all that follows on its own.
    """
    connection = _connection(callers, peer)
    try:
        await _small_call(connection)
    except KakeyaError:
        return False
    finally:
        await connection.close()
    return True


def _connection(callers: Callers, peer: NodeStatus) -> Connection:
    timeouts = Timeouts(connect=ANSWER_SECONDS, unary=ANSWER_SECONDS)
    return callers.connection(peer.address, timeouts)


async def _small_call(connection: Connection) -> None:
    await connection.unary(
        connection.capability.GetNode, capability_pb2.GetNodeRequest(), ANSWER_SECONDS
    )


async def _large_fault(connection: Connection) -> str:
    """Why a call that is larger than a packet, in both directions, failed; empty when it did not.

    ListLimits answers with some KiB of sentences; the question is padded by metadata.
    """
    padding = ("x-kakeya-padding", secrets.token_hex(_PADDING_BYTES))
    connection.metadata = (*connection.metadata, padding)
    try:
        await connection.unary(
            connection.capability.ListLimits, capability_pb2.ListLimitsRequest(), ANSWER_SECONDS
        )
    except (DeadlineExceeded, NodeUnreachable):
        return f"one of {2 * _PADDING_BYTES} bytes was not answered in {ANSWER_SECONDS:g} s"
    except KakeyaError:
        # Refused, so it came there and its answer came back.
        return ""
    return ""


def _sizes(peer: NodeStatus) -> path_mtu.Path:
    """What the kernel says of a fresh connection. Raises OSError."""
    with socket.create_connection(split_address("address", peer.address), ANSWER_SECONDS) as probe:
        source = str(probe.getsockname()[0]).partition("%")[0]
        segment = probe.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        mtu = 0
        if sys.platform == "linux":
            is_six = probe.family == socket.AF_INET6
            mtu = (
                probe.getsockopt(socket.IPPROTO_IPV6, _IPV6_MTU)
                if is_six
                else probe.getsockopt(socket.IPPROTO_IP, _IP_MTU)
            )
    name, interface_mtu = _interface_of(source)
    return path_mtu.Path(peer.name, name, interface_mtu, mtu, segment)


def _interface_of(address: str) -> tuple[str, int]:
    """The interface that has the address, and its MTU; an empty name and 0 for none."""
    statistics = psutil.net_if_stats()
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address.partition("%")[0] == address for entry in entries):
            return name, statistics[name].mtu if name in statistics else 0
    return "", 0
