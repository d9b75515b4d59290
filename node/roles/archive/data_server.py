"""The data connections of a node's archives: one thread for each, which waits, computes, answers.

A gRPC stream hands every message through three threads at either end, and parses
it: about 1 ms a layer of both, several times the attention itself.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
import time
from dataclasses import dataclass

import structlog

from kakeya_fleet.node.admission.caller import Caller, caller_of
from kakeya_fleet.node.admission.reclaiming import to_reclaim
from kakeya_fleet.node.errors import BadCertificate, PortInUse, TrustCorrupt
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archive_use import ArchiveUse
from kakeya_fleet.node.roles.archive.archives import Archives
from kakeya_fleet.node.roles.archive.data_frames import (
    MOST_ID_BYTES,
    Closed,
    FrameReader,
    Kind,
    limit_waits,
    prepare,
)
from kakeya_fleet.node.roles.archive.farewells import hear_out, shut, tell
from kakeya_fleet.node.roles.archive.member_connections import MemberConnections
from kakeya_fleet.node.roles.archive.served_connection import ServedConnection
from kakeya_fleet.node.rpc.error_status import (
    DOMAIN_ERRORS,
    INTERNAL_REASON,
    error_status,
    internal_status,
)
from kakeya_fleet.node.rpc.refusals import ArchiveFull, CorruptFrame, MalformedMessage
from kakeya_fleet.node.trust.sealed_stream import ByteStream
from kakeya_fleet.node.trust.trust import Trust

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A connection that has not attached; `since` is in monotonic seconds."""

    connection: socket.socket
    caller: Caller
    since: float

    @property
    def silent_ms(self) -> float:
        """Milliseconds since it came."""
        return 1000.0 * (time.monotonic() - self.since)


class DataServer:
    """Serves the data connections at `port`, in threads of its own."""

    def __init__(
        self, archives: Archives, metrics: NodeMetrics, host: str, trust: Trust | None = None
    ) -> None:
        """Binds a free port of `host` and serves: with `trust`, members alone, by TLS.

        Raises `PortInUse`.
        """
        self._archives = archives
        self._members = MemberConnections(trust)
        self._settings = archives.settings
        self._metrics = metrics
        self._listener = _listener(host, self._settings.greetings)
        self.port: int = self._listener.getsockname()[1]
        self._greetings = archives.greetings
        self._waiting: dict[socket.socket, _Waiting] = {}
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._accept, name="archive-accept", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends every connection, and waits for the threads; the archives were cut off before."""
        self._members.close()
        self._wake.close()
        self._thread.join()
        self._listener.close()
        self._woken.close()
        deadline = time.monotonic() + 2 * self._settings.farewell_seconds
        with self._lock:
            connections = dict(self._connections)
        for connection, thread in connections.items():
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                shut(connection, socket.SHUT_RDWR)
                thread.join()

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while all(key.fileobj is self._listener for key, _ in selector.select()):
                try:
                    connection, address = self._listener.accept()
                except OSError as error:
                    # It left again, or no file descriptor is free: then it stays readable.
                    _log.warning("archive_connection_failed", error=str(error))
                    time.sleep(self._settings.accept_again_seconds)
                    continue
                self._admit(connection, caller_of(address[0]))

    def _admit(self, connection: socket.socket, caller: Caller) -> None:
        if self._greetings.would_refuse(caller):
            self._reclaim()
        try:
            self._greetings.take(caller)
        except ArchiveFull:
            connection.close()
            return
        thread = threading.Thread(
            target=self._serve, args=(connection,), name="archive", daemon=True
        )
        with self._lock:
            self._connections[connection] = thread
            self._waiting[connection] = _Waiting(connection, caller, time.monotonic())
        thread.start()

    def _reclaim(self) -> None:
        """Ends the connection that says nothing for longest, of whoever has the most such."""
        with self._lock:
            ended = to_reclaim(list(self._waiting.values()), 1)
            for each in ended:
                del self._waiting[each.connection]
                self._greetings.take_back(each.caller)
                # Its thread reads the end, and closes it.
                shut(each.connection, socket.SHUT_RDWR)

    def _greeted(self, connection: socket.socket) -> None:
        """It attached, or will not: its place is another's, if that was not taken back."""
        with self._lock:
            waiting = self._waiting.pop(connection, None)
        if waiting is not None:
            self._greetings.give_back(waiting.caller)

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._answering(connection)
        finally:
            with self._lock:
                del self._connections[connection]
            self._members.left(connection)
            connection.close()

    def _answering(self, connection: socket.socket) -> None:
        """Answers until the connection ends, one that is proven where that is wanted."""
        until = time.monotonic() + self._settings.greeting_seconds
        try:
            prepare(connection, self._settings.greeting_seconds)
            stream = self._members.stream(connection, until)
        except ssl.SSLError:
            # A stranger's; TLS has told it why.
            self._count(BadCertificate.reason)
            hear_out(connection, self._settings.farewell_seconds)
        except TrustCorrupt as error:
            self._count(error.reason)
            _log.error("archive_cannot_be_proven", detail=str(error))
        except OSError:
            # It has gone, or took too long.
            return
        else:
            self._told(connection, stream, until)
        finally:
            self._greeted(connection)

    def _told(self, connection: socket.socket, stream: ByteStream, until: float) -> None:
        """Answers; a domain error is told, anything else is INTERNAL."""
        seconds = self._settings.farewell_seconds
        try:
            self._session(connection, stream, until)
        except DOMAIN_ERRORS as error:
            self._count(error.reason)
            tell(connection, stream, error_status(error), seconds)
        except (Closed, OSError):
            # The session, or its node, has gone; what it kept has been released.
            return
        except Exception as error:  # noqa: BLE001 - the last resort of a thread
            self._count(INTERNAL_REASON)
            _log.error("archive_failed", exc_info=error)
            tell(connection, stream, internal_status(), seconds)

    def _count(self, reason: str) -> None:
        self._metrics.rpc_errors.labels(reason=reason).inc()

    def _session(self, connection: socket.socket, stream: ByteStream, until: float) -> None:
        reader = FrameReader(stream)
        use = self._attached(connection, stream, reader, until)
        try:
            served = ServedConnection(stream, reader, use)
            served.greet()
            while True:
                served.answer_next()
        finally:
            use.end()

    def _attached(
        self, connection: socket.socket, stream: ByteStream, reader: FrameReader, until: float
    ) -> ArchiveUse:
        try:
            member = self._members.member(connection, stream)
            frame = reader.receive(MOST_ID_BYTES, within=until - time.monotonic())
        finally:
            self._greeted(connection)
        if frame.kind != Kind.ATTACH:
            raise MalformedMessage("the first frame of a data connection is ATTACH")
        if frame.serial != 1:
            raise CorruptFrame(f"the first frame of a data connection is not its {frame.serial}.")
        archive_id = frame.body.tobytes().decode("ascii", "replace")
        archive = self._archives.attach(archive_id, member)
        archive.on_expiry.append(lambda: shut(connection, socket.SHUT_RD))
        limit_waits(connection, reading=0.0, writing=self._settings.answer_seconds)
        return ArchiveUse(self._archives, archive, self._metrics)


def _listener(host: str, most_waiting: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address, family=family, backlog=most_waiting)
    except OSError as error:
        raise PortInUse(
            f"no port of {host} can be bound for the archive",
            "name another address with --bind",
            address=host,
        ) from error
