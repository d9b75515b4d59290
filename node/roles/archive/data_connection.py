"""The verifier's end of a data connection; see `node.roles.archive.data_frames`."""

from __future__ import annotations

import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from kakeya_fleet.node.errors import BadCertificate, TrustCorrupt
from kakeya_fleet.node.roles.archive.data_frames import (
    Closed,
    Frame,
    FrameReader,
    Kind,
    limit_waits,
    prepare,
    send_parts,
)
from kakeya_fleet.node.roles.archive.restorer_fault import RestorerFault, fault_of
from kakeya_fleet.node.rpc.refusals import CorruptFrame, MalformedMessage
from kakeya_fleet.node.trust.sealed_stream import ByteStream, is_member_still, sealed_to
from kakeya_fleet.node.trust.trust import Trust

CLOSE_ENOUGH = 0.75
_OF_CERTIFICATES = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")
"""In the names of TLS's alerts that are about who this node is."""


@dataclass(frozen=True, slots=True)
class MeantNode:
    """The node that must answer, in a fleet with an authority."""

    node_id: str
    trust: Trust


class ConnectionLost(Exception):
    """The connection has failed, or the archive ended it; `fault` says which."""

    def __init__(self, fault: RestorerFault, words: str) -> None:
        super().__init__(words)
        self.fault = fault


class DataConnection:
    """One connection. The verifier's thread sends and receives; any thread may `end` it."""

    def __init__(
        self, host: str, port: int, deadline_seconds: float, meant: MeantNode | None = None
    ) -> None:
        """Connects: by TLS to the node that is `meant`, in plain text when there is none.

        No call waits longer than the deadline, or twice of it in small pieces. Raises
        `ConnectionLost`.
        """
        self._meant = meant
        self._certificate = b""
        self._seconds = deadline_seconds
        self._reading = deadline_seconds
        """What the kernel holds one read to."""
        try:
            self._socket = socket.create_connection((host, port), timeout=deadline_seconds)
        except OSError as error:
            raise self._failed(error) from error
        prepare(self._socket, deadline_seconds)
        self._stream: ByteStream = self._socket
        if meant is not None:
            self._seal(meant)
        self._reader = FrameReader(self._stream)

    @property
    def is_to_member(self) -> bool:
        """Whether it goes to a member still, or the fleet has no authority. Any thread may ask."""
        return self._meant is None or is_member_still(self._certificate, self._meant.trust)

    def send(self, *parts: bytes | memoryview) -> None:
        """Sends a header and its body's parts.

        Raises `ConnectionLost`, with what the archive said last.
        """
        try:
            send_parts(self._stream, *parts)
        except OSError as error:
            raise self._last_words() or self._failed(error) from error

    def receive(self, within: float | None = None) -> Frame:
        """The next frame, `within` seconds in place of the deadline if given.

        Raises `ConnectionLost`, also for an ERROR.
        """
        seconds = self._seconds if within is None else min(within, self._seconds)
        try:
            self._limit_reads(seconds)
            frame = self._reader.receive(within=seconds)
        except Closed:
            words = "it closed the connection"
            raise ConnectionLost(RestorerFault.UNREACHABLE, words) from None
        except OSError as error:
            raise self._failed(error, seconds) from error
        except MalformedMessage as error:
            raise ConnectionLost(RestorerFault.PROTOCOL, str(error)) from error
        except CorruptFrame as error:
            raise ConnectionLost(RestorerFault.CORRUPT, str(error)) from error
        if frame.kind == Kind.ERROR:
            raise _told(frame)
        return frame

    def end(self) -> None:
        """Ends the connection; whoever waits for it is told at once."""
        # The other end may have been first.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _seal(self, meant: MeantNode) -> None:
        """Raises `ConnectionLost`, with the connection closed and nothing said."""
        try:
            sealed = sealed_to(
                self._socket, meant.node_id, meant.trust, time.monotonic() + self._seconds
            )
        except (OSError, BadCertificate, TrustCorrupt) as error:
            self._socket.close()
            raise self._failed(error) from error
        self._stream = sealed
        self._certificate = sealed.tls.getpeercert(binary_form=True) or b""

    def _last_words(self) -> ConnectionLost | None:
        """The ERROR that may lie unread when nothing can be sent any more."""
        deadline = time.monotonic() + self._seconds
        try:
            while time.monotonic() < deadline:
                frame = self._reader.receive(within=self._seconds)
                if frame.kind == Kind.ERROR:
                    return _told(frame)
        except (Closed, OSError, MalformedMessage, CorruptFrame):
            return None
        # It goes on sending, whatever it is.
        return None

    def _limit_reads(self, seconds: float) -> None:
        """Changes the kernel's limit, a system call, only when it is far from `seconds`."""
        if not CLOSE_ENOUGH * self._reading <= seconds <= self._reading:
            limit_waits(self._socket, reading=seconds, writing=self._seconds)
            self._reading = seconds

    def _failed(
        self, error: OSError | BadCertificate | TrustCorrupt, seconds: float | None = None
    ) -> ConnectionLost:
        if isinstance(error, BadCertificate | TrustCorrupt):
            return ConnectionLost(RestorerFault.UNTRUSTED, str(error))
        if isinstance(error, ssl.SSLError):
            return _broken(error)
        if isinstance(error, (TimeoutError, BlockingIOError)):
            words = f"it did not answer within {seconds or self._seconds:.2g} s"
            return ConnectionLost(RestorerFault.DEADLINE, words)
        return ConnectionLost(RestorerFault.UNREACHABLE, f"it cannot be reached: {error}")


class OpenConnections:
    """The connections of one node, to end them together. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[DataConnection] = weakref.WeakSet()

    def add(self, connection: DataConnection) -> None:
        """Notes one."""
        with self._lock:
            self._open.add(connection)

    def end(self) -> None:
        """Ends those that are still used."""
        self._end(lambda _connection: True)

    def end_strangers(self) -> None:
        """Ends those to nodes that are members no longer."""
        self._end(lambda connection: not connection.is_to_member)

    def _end(self, is_over: Callable[[DataConnection], bool]) -> None:
        with self._lock:
            ended = [each for each in self._open if is_over(each)]
            self._open.difference_update(ended)
        for connection in ended:
            connection.end()


def _broken(error: ssl.SSLError) -> ConnectionLost:
    """What TLS says: of who either end is, or of bytes that were changed on their way."""
    words = (error.reason or str(error)).replace("_", " ").lower()
    if any(name in (error.reason or "") for name in _OF_CERTIFICATES):
        return ConnectionLost(
            RestorerFault.UNTRUSTED,
            f"one end does not take the other for a member ({words}): see the certificates and"
            " clocks of both nodes",
        )
    return ConnectionLost(RestorerFault.CORRUPT, f"what came is not what a member sends ({words})")


def _told(frame: Frame) -> ConnectionLost:
    status = status_pb2.Status()
    try:
        status.ParseFromString(frame.body.tobytes())
    except DecodeError:
        return ConnectionLost(RestorerFault.PROTOCOL, "it ended with an error that nobody reads")
    return ConnectionLost(*fault_of(status))
