"""The verifier's end of a data connection; see `node.roles.archive.data_frames`."""

from __future__ import annotations

import socket
import threading
import time
import weakref
from contextlib import suppress

from google.protobuf.message import DecodeError
from google.rpc import status_pb2

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

CLOSE_ENOUGH = 0.75


class ConnectionLost(Exception):
    """The connection has failed, or the archive ended it; `fault` says which."""

    def __init__(self, fault: RestorerFault, words: str) -> None:
        super().__init__(words)
        self.fault = fault


class DataConnection:
    """One connection. The verifier's thread sends and receives; any thread may `end` it."""

    def __init__(self, host: str, port: int, deadline_seconds: float) -> None:
        """Connects. No call waits longer than the deadline, or twice of it in small pieces.

        Raises `ConnectionLost`.
        """
        self._seconds = deadline_seconds
        self._reading = deadline_seconds
        """What the kernel holds one read to."""
        try:
            self._socket = socket.create_connection((host, port), timeout=deadline_seconds)
        except OSError as error:
            raise self._failed(error) from error
        prepare(self._socket, deadline_seconds)
        self._reader = FrameReader(self._socket)

    def send(self, *parts: bytes | memoryview) -> None:
        """Sends a header and its body's parts.

        Raises `ConnectionLost`, with what the archive said last.
        """
        try:
            send_parts(self._socket, *parts)
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

    def _failed(self, error: OSError, seconds: float | None = None) -> ConnectionLost:
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
        with self._lock:
            connections = list(self._open)
            self._open.clear()
        for connection in connections:
            connection.end()


def _told(frame: Frame) -> ConnectionLost:
    status = status_pb2.Status()
    try:
        status.ParseFromString(frame.body.tobytes())
    except DecodeError:
        return ConnectionLost(RestorerFault.PROTOCOL, "it ended with an error that nobody reads")
    return ConnectionLost(*fault_of(status))
