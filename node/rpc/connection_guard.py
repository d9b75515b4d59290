"""Keeps descriptors free for the node itself, however many connections others hold open.

A process that has no descriptor left can neither gossip, load a model nor write its state.
gRPC takes every connection before anything of it is read and has no bound of its own, so
the connections that were taken are looked at: when fewer than the reserve are left, those
of whoever holds the most are ended, the longest silent first.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
import stat
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import structlog

from kakeya_fleet.node.admission.caller import Caller, caller_of
from kakeya_fleet.node.admission.file_limit import reserve_of
from kakeya_fleet.node.admission.reclaiming import to_reclaim
from kakeya_fleet.node.metrics import NodeMetrics

LOOK_SECONDS = 0.1
CALM_SECONDS = 0.5
"""Between looks while others cannot take all that is free meanwhile: a process that wakes ten times
a second to no purpose takes 0.3 % of a core by that."""
CONNECTIONS_A_SECOND = 20_000
"""More than gRPC takes: 9,000 in the quickest 0.1 s on two cores."""
LOOK_SHARE = 0.05
NEVER_SPOKE = 1 << 32
"""Milliseconds of silence of who has sent nothing yet."""
# struct tcp_info of linux/tcp.h: eight bytes, 24 words of 32 bits, three of 64 and then
# tcpi_bytes_received (Linux 4.1).
LAST_SENT, LAST_RECEIVED = 9, 11
TCP_INFO_BYTES = 8 + 4 * 24 + 8 * 4

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection that somebody opened to this process, and how long it has been silent."""

    descriptor: int
    caller: Caller
    silent_ms: int


class ConnectionGuard:
    """Ends connections of others while the process is short of descriptors."""

    def __init__(self, metrics: NodeMetrics) -> None:
        self._metrics = metrics
        self.room = 0
        """How many connections more others could have had open at the last look."""

    async def run(self) -> None:
        """Looks before others can have taken all that is free, until cancelled.

        That is twice to ten times a second, with a twentieth of a core at most. A look that lists
        them takes a ms for each 1,000 descriptors. Waiting for a core is no work of its own: on a
        busy machine it looks as often.
        """
        while True:
            began = time.thread_time()
            self.look()
            took = time.thread_time() - began
            await asyncio.sleep(max(seconds_to_fill(self.room), took / LOOK_SHARE))

    def look(self) -> Sequence[Connection]:
        """Ends what must be ended, and answers what that was."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = limit - reserve_of(limit)
        count = open_count()
        if count is not None and count <= most:
            self.room = most - count
            return ()
        descriptors = _open_descriptors(limit)
        excess = len(descriptors) - most
        self.room = max(0, -excess)
        if excess <= 0:
            return ()
        ended = to_reclaim(list(_connections(descriptors)), excess)
        for each in ended:
            # It may have ended by itself.
            with suppress(OSError), _borrowed(each.descriptor) as connection:
                # Its owner, gRPC or asyncio, sees that it ended, and closes it.
                connection.shutdown(socket.SHUT_RDWR)
        if ended:
            self._metrics.connections_ended.inc(len(ended))
            callers = dict(Counter(each.caller for each in ended).most_common(3))
            _log.warning("connections_ended", count=len(ended), callers=callers, file_limit=limit)
        return ended


def seconds_to_fill(room: int) -> float:
    """In which others open no more than `room` connections; `LOOK_SECONDS` to `CALM_SECONDS`."""
    return min(CALM_SECONDS, max(LOOK_SECONDS, room / CONNECTIONS_A_SECOND))


def open_count() -> int | None:
    """How many descriptors are open; None where the system does not tell it at once.

    Linux does from 6.2 on, as the size of the folder of their names, in a tenth of the time that a
    list takes.
    """
    try:
        return os.stat("/proc/self/fd").st_size or None
    except OSError:
        return None


def _open_descriptors(limit: int) -> Sequence[int]:
    """Those that are open, with the one that it takes to look; all where none is left for that."""
    try:
        return [int(name) for name in os.listdir("/dev/fd")]
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        return range(limit)


def _connections(descriptors: Iterable[int]) -> Iterator[Connection]:
    """Of `descriptors`, the connections that came in at a port of this process."""
    ports, found = set(), []
    for descriptor in descriptors:
        if not _is_socket(descriptor):
            continue
        # It may be closed meanwhile, or not be connected.
        with suppress(OSError), _borrowed(descriptor) as each:
            if each.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            port = each.getsockname()[1]
            if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                ports.add(port)
                continue
            caller = caller_of(each.getpeername()[0])
            found.append((port, Connection(descriptor, caller, _silent_ms(each))))
    return (connection for port, connection in found if port in ports)


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """The socket of another owner, which stays open."""
    borrowed = socket.socket(fileno=descriptor)
    try:
        yield borrowed
    finally:
        borrowed.detach()


def _silent_ms(connection: socket.socket) -> int:
    """Milliseconds since something passed, either way; 0 where the system does not say."""
    if sys.platform != "linux":
        return 0
    told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    words = struct.unpack_from("24I", told, 8)
    (bytes_received,) = struct.unpack_from("Q", told, TCP_INFO_BYTES - 8)
    return min(words[LAST_SENT], words[LAST_RECEIVED]) if bytes_received else NEVER_SPOKE
