"""The data connections of a node's archives: one thread for each, which waits, computes, answers.

A gRPC stream hands every message through three threads at either end, and parses
it: about 1 ms a layer of both, several times the attention itself.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from dataclasses import dataclass

import structlog
from google.rpc import status_pb2

from kakeya_fleet.engine.contracts.evicted_store import EvictedQueries, PartialAttention
from kakeya_fleet.engine.errors import RestorerRefused
from kakeya_fleet.node.admission.caller import Caller, caller_of
from kakeya_fleet.node.admission.reclaiming import to_reclaim
from kakeya_fleet.node.errors import PortInUse
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archive_use import ArchiveUse
from kakeya_fleet.node.roles.archive.archives import Archives
from kakeya_fleet.node.roles.archive.data_frames import (
    BYTE_COUNTS,
    MOST_ID_BYTES,
    Closed,
    Frame,
    FrameReader,
    Kind,
    header,
    limit_waits,
    prepare,
    send_parts,
)
from kakeya_fleet.node.roles.archive.tensor_bytes import deposit_of, partial_of, queries_of
from kakeya_fleet.node.rpc.error_status import (
    DOMAIN_ERRORS,
    INTERNAL_REASON,
    error_status,
    internal_status,
)
from kakeya_fleet.node.rpc.refusals import ArchiveFull, MalformedMessage

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

    def __init__(self, archives: Archives, metrics: NodeMetrics, host: str) -> None:
        """Binds a free port of `host` and serves. Raises `PortInUse`."""
        self._archives = archives
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
                _shut(connection, socket.SHUT_RDWR)
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
                _shut(each.connection, socket.SHUT_RDWR)

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
            connection.close()

    def _answering(self, connection: socket.socket) -> None:
        """Answers until the connection ends; a domain error is told, anything else is INTERNAL."""
        try:
            self._session(connection)
        except DOMAIN_ERRORS as error:
            self._metrics.rpc_errors.labels(reason=error.reason).inc()
            _tell(connection, error_status(error), self._settings.farewell_seconds)
        except (Closed, OSError):
            # The session, or its node, has gone; what it kept has been released.
            return
        except Exception as error:  # noqa: BLE001 - the last resort of a thread
            self._metrics.rpc_errors.labels(reason=INTERNAL_REASON).inc()
            _log.error("archive_failed", exc_info=error)
            _tell(connection, internal_status(), self._settings.farewell_seconds)

    def _session(self, connection: socket.socket) -> None:
        reader = FrameReader(connection)
        use = self._attached(connection, reader)
        try:
            send_parts(connection, header(Kind.ATTACHED, position=use.length))
            while True:
                frame = _received(reader, use)
                if frame.kind == Kind.QUERIES:
                    _attend(connection, reader, use, frame)
                else:
                    _handle(connection, use, frame)
        finally:
            use.end()

    def _attached(self, connection: socket.socket, reader: FrameReader) -> ArchiveUse:
        try:
            prepare(connection, self._settings.greeting_seconds)
            frame = reader.receive(MOST_ID_BYTES, within=self._settings.greeting_seconds)
        finally:
            self._greeted(connection)
        if frame.kind != Kind.ATTACH:
            raise MalformedMessage("the first frame of a data connection is ATTACH")
        archive_id = frame.body.tobytes().decode("ascii", "replace")
        archive = self._archives.attach(archive_id)
        archive.on_expiry.append(lambda: _shut(connection, socket.SHUT_RD))
        limit_waits(connection, reading=0.0, writing=self._settings.answer_seconds)
        return ArchiveUse(self._archives, archive, self._metrics)


def _received(reader: FrameReader, use: ArchiveUse) -> Frame:
    """The session's next frame, which renews the lease."""
    try:
        frame = reader.receive()
    except Closed:
        # An archive that has expired ends the reading of its connection.
        use.renew()
        raise
    use.renew()
    return frame


def _attend(connection: socket.socket, reader: FrameReader, use: ArchiveUse, frame: Frame) -> None:
    """Answers queries, once what is to be carried to them has come."""
    asked = queries_of(
        use.shape, frame.layer, frame.position, frame.count, frame.number, frame.body
    )
    use.begin(asked)
    carry = _carried(_received(reader, use), asked) if use.is_carried_to else None
    found = use.finish(carry)
    told = header(
        Kind.PARTIAL,
        sum(part.nbytes for part in found.parts),
        layer=frame.layer,
        count=frame.count,
        number=found.seconds,
        position=found.stored_bytes,
    )
    send_parts(connection, told, *(part.data for part in found.parts))
    use.tell(found.seconds)


def _carried(frame: Frame, asked: EvictedQueries) -> PartialAttention | None:
    """What a CARRY brings. Raises `MalformedMessage` for another frame, `RestorerRefused`."""
    heads, count, head_dim = asked.queries.shape
    if (frame.kind, frame.layer, frame.position) != (Kind.CARRY, asked.layer, asked.first):
        raise MalformedMessage("behind queries comes what is carried to them")
    if not len(frame.body):
        return None
    try:
        return partial_of(frame.body, (heads, count, head_dim))
    except ValueError as error:
        raise RestorerRefused(f"a carry has another size than its queries: {error}") from error


def _handle(connection: socket.socket, use: ArchiveUse, frame: Frame) -> None:
    """One request. Raises domain errors, and `OSError` when the answer cannot be sent."""
    match frame.kind:
        case Kind.DEPOSIT:
            use.deposit(frame.position, deposit_of(use.shape, frame.count, frame.body))
        case Kind.FORK:
            _fork(connection, use, frame.position)
        case Kind.RESERVE:
            _reserve(connection, use, frame.position)
        case Kind.COMPLETE:
            use.complete(frame.position)
        case _:
            raise MalformedMessage(f"an archive takes no frame of kind {frame.kind}")


def _fork(connection: socket.socket, use: ArchiveUse, length: int) -> None:
    try:
        forked = use.fork(length)
    except ArchiveFull as full:
        _refuse(connection, Kind.NOT_FORKED, full)
    else:
        body = forked.archive_id.encode("ascii")
        told = header(Kind.FORKED, len(body), position=forked.store.length)
        send_parts(connection, told, body)


def _reserve(connection: socket.socket, use: ArchiveUse, end: int) -> None:
    try:
        use.reserve(end)
    except ArchiveFull as full:
        _refuse(connection, Kind.NOT_RESERVED, full)
    else:
        send_parts(connection, header(Kind.RESERVED, position=end))


def _refuse(connection: socket.socket, kind: Kind, full: ArchiveFull) -> None:
    figures = (int(full.metadata.get(key, "0")) for key in ("needed_bytes", "free_bytes"))
    body = BYTE_COUNTS.pack(*figures)
    send_parts(connection, header(kind, len(body)), body)


def _tell(connection: socket.socket, status: status_pb2.Status, seconds: float) -> None:
    """Sends an error, then reads what was under way until the other end has closed."""
    deadline = time.monotonic() + seconds
    try:
        limit_waits(connection, reading=seconds, writing=seconds)
        body = status.SerializeToString()
        send_parts(connection, header(Kind.ERROR, len(body)), body)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16) and time.monotonic() < deadline:
            pass
    except OSError:
        # It is gone, or does not listen.
        return


def _shut(connection: socket.socket, how: int) -> None:
    try:
        connection.shutdown(how)
    except OSError:
        # It has ended already.
        return


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
