"""Why a seed peer cannot be joined: what the call said, and what answers at its address."""

from __future__ import annotations

import asyncio
import socket
from enum import StrEnum

from kakeya import DeadlineExceeded, KakeyaError, NodeUnreachable, Unimplemented
from kakeya_fleet.fleet.errors import FleetMismatch, ProtocolSkew
from kakeya_fleet.fleet.membership.seed_faults import NOT_A_NODE, UNREACHABLE, Fault
from kakeya_fleet.node.config.config import split_address
from kakeya_fleet.node.errors import BadCertificate

LOOK_SECONDS = 1.0
"""For a connection, and again for the first bytes on it."""

# What a client says first, and the frame that an HTTP/2 server answers (RFC 9113, 3.4 and 6.5).
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_FRAME_HEADER_BYTES = 9
_SETTINGS = 4

_START_IT = "Start the node there, or give --peer the address that its `fleet join` printed."
_OTHER_PORT = "Give --peer the address that the node's `fleet join` printed, not that of its HTTP."


class Presence(StrEnum):
    """What is at an address."""

    NOTHING = "nothing listens there"
    NO_NAME = "its name does not resolve"
    NO_ROAD = "nothing answers there"
    SILENT = "it takes connections and says nothing, as a node that is starting does"
    GRPC = "it does not answer in time"
    ANOTHER = "what answers there does not speak gRPC, so it is no node"


async def diagnose(address: str, error: KakeyaError | BadCertificate, fleet_name: str) -> Fault:
    """What is wrong at host:port, where a call of the fleet `fleet_name` ended in `error`."""
    if isinstance(error, NodeUnreachable | DeadlineExceeded):
        presence = await look(address)
        is_another = presence is Presence.ANOTHER
        return _fault(
            address,
            NOT_A_NODE if is_another else UNREACHABLE,
            presence.value,
            _OTHER_PORT if is_another else _START_IT,
        )
    if isinstance(error, BadCertificate):
        return _fault(address, error.reason, error.cause, error.mend)
    if isinstance(error, Unimplemented):
        return _fault(address, NOT_A_NODE, "the server there is no node", _OTHER_PORT)
    if error.reason == FleetMismatch.reason:
        theirs = error.metadata.get("fleet_name", "")
        cause = f"its node belongs to the fleet {theirs!r}, this one to {fleet_name!r}"
        return _fault(
            address, error.reason, cause, f"Join with --fleet {theirs}, or without that --peer."
        )
    if error.reason == ProtocolSkew.reason:
        return _fault(address, error.reason, str(error), "Update the older of the two nodes.")
    return _fault(address, error.reason, str(error), error.mend)


async def look(address: str) -> Presence:
    """What is at host:port now, by the first bytes that it says to an HTTP/2 client."""
    host, port = split_address("peers", address)
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await asyncio.get_running_loop().getaddrinfo(host, port)
    except (socket.gaierror, TimeoutError):
        # A server of names that answers nobody in time knows this name as little.
        return Presence.NO_NAME
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
    except ConnectionRefusedError:
        return Presence.NOTHING
    except OSError:
        # TimeoutError is one.
        return Presence.NO_ROAD
    try:
        return await _first_words(reader, writer)
    finally:
        writer.close()


async def _first_words(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Presence:
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            writer.write(_PREFACE)
            header = await reader.readexactly(_FRAME_HEADER_BYTES)
    except TimeoutError:
        return Presence.SILENT
    except (asyncio.IncompleteReadError, ConnectionError):
        return Presence.ANOTHER
    return Presence.GRPC if header[3] == _SETTINGS else Presence.ANOTHER


def _fault(address: str, reason: str, cause: str, mend: str) -> Fault:
    words = cause.strip().rstrip(".")
    return Fault(reason, f"The peer {address} cannot be joined: {words}.", mend)
