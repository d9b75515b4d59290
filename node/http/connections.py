"""Connections that hold the server for nothing are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.admission.caller import NOBODY, caller_of
from kakeya_fleet.node.admission.reclaiming import to_reclaim


class ConnectionRefused(Exception):
    """There is no place for one more connection; it is closed, since nothing was read of it."""

    def __init__(self, message: str, **_metadata: str) -> None:
        super().__init__(message)


class OpenConnections:
    """Makes the protocols of a server's connections, and knows those that are open.

    `make` gives the protocol that speaks HTTP.
    """

    def __init__(self, make: Callable[[], asyncio.Protocol], allowances: Allowances) -> None:
        self._make = make
        self.limits = allowances.limits.http
        self._places = allowances.share("http.connections", ConnectionRefused)
        self._open: dict[asyncio.BaseTransport, LimitedConnection] = {}

    def __call__(self) -> asyncio.Protocol:
        """A protocol for one connection."""
        return LimitedConnection(self._make(), self)

    def opened(self, transport: asyncio.BaseTransport, connection: LimitedConnection) -> bool:
        """Enters a connection; False when there are too many."""
        if self._places.would_refuse(connection.caller):
            self._reclaim()
        try:
            self._places.take(connection.caller)
        except ConnectionRefused:
            return False
        self._open[transport] = connection
        return True

    def _reclaim(self) -> None:
        """Closes the one that holds a place for nothing, of whoever holds the most."""
        silent = [each for each in self._open.items() if each[1].is_silent]
        transports = {connection: transport for transport, connection in silent}
        for connection in to_reclaim(list(transports), 1):
            del self._open[transports[connection]]
            self._places.take_back(connection.caller)
            connection.end()

    def closed(self, transport: asyncio.BaseTransport) -> None:
        """Forgets a connection."""
        connection = self._open.pop(transport, None)
        if connection is not None:
            self._places.give_back(connection.caller)

    def began(self, transport: asyncio.BaseTransport | None) -> None:
        """The headers of a request are there."""
        connection = self._open.get(transport) if transport is not None else None
        if connection is not None:
            connection.busy()

    def ended(self, transport: asyncio.BaseTransport | None) -> None:
        """A request was answered."""
        connection = self._open.get(transport) if transport is not None else None
        if connection is not None:
            connection.idle()


class LimitedConnection(asyncio.Protocol):
    """Passes everything on to a protocol, and closes what says nothing whole for too long.

    Headers must be complete `header_seconds` after their first byte, or after the
    connection came; between requests it may rest for `idle_seconds`.
    """

    def __init__(self, inner: asyncio.Protocol, connections: OpenConnections) -> None:
        self.caller = NOBODY
        self._inner = inner
        self._connections = connections
        self._limits = connections.limits
        self._transport: asyncio.BaseTransport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._silent_since = 0.0
        self._is_resting = False
        self._passes_on = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection came."""
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.caller = caller_of(peer[0]) if peer else NOBODY
        if not self._connections.opened(transport, self):
            self._passes_on = False
            self._abort()
            return
        self._wait(self._limits.header_seconds)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        if self._is_resting:
            self._is_resting = False
            self._wait(self._limits.header_seconds)
        if self._passes_on:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The client says nothing more."""
        return self._inner.eof_received() if self._passes_on else None

    def pause_writing(self) -> None:
        """The client takes no more now."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The client takes more."""
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._stop()
        if self._transport is not None:
            self._connections.closed(self._transport)
        if self._passes_on:
            self._inner.connection_lost(exc)

    @property
    def is_silent(self) -> bool:
        """Whether no request of it is being answered."""
        return self._deadline is not None

    @property
    def silent_ms(self) -> float:
        """Milliseconds since it came, spoke again or was answered."""
        return 1000.0 * (asyncio.get_running_loop().time() - self._silent_since)

    def end(self) -> None:
        """Closes it: its place is another's."""
        self._abort()

    def busy(self) -> None:
        """A request is being answered."""
        self._is_resting = False
        self._stop()

    def idle(self) -> None:
        """A request was answered; another may come."""
        self._is_resting = True
        self._wait(self._limits.idle_seconds)

    def _wait(self, seconds: float) -> None:
        self._stop()
        loop = asyncio.get_running_loop()
        self._silent_since = loop.time()
        self._deadline = loop.call_later(seconds, self._abort)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _abort(self) -> None:
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.abort()
