"""Connections that members alone may have: proven at their beginning, ended when one is put out."""

from __future__ import annotations

import socket
import threading

from kakeya_fleet.node.roles.archive.farewells import shut
from kakeya_fleet.node.trust.sealed_stream import (
    ByteStream,
    SealedStream,
    is_member_still,
    sealed_from,
)
from kakeya_fleet.node.trust.tls import member_behind
from kakeya_fleet.node.trust.trust import Trust


class MemberConnections:
    """Those of one server; in a fleet without an authority they are plain. Any thread may call."""

    def __init__(self, trust: Trust | None) -> None:
        """Watches who is put out until `close`."""
        self._trust = trust
        self._lock = threading.Lock()
        self._certificates: dict[socket.socket, bytes] = {}
        if trust is not None:
            trust.on_change.append(self._put_out)

    def stream(self, connection: socket.socket, until: float) -> ByteStream:
        """What a connection's frames come by, sealed until so many monotonic seconds.

        Raises `ssl.SSLError` for a stranger's, once it was told, `TimeoutError` and another
        `OSError`.
        """
        return connection if self._trust is None else sealed_from(connection, self._trust, until)

    def member(self, connection: socket.socket, stream: ByteStream) -> str:
        """Who it is, empty without an authority. Raises `BadCertificate`."""
        if self._trust is None or not isinstance(stream, SealedStream):
            return ""
        # Before it is asked who it is: one who is put out from now on is found here.
        with self._lock:
            self._certificates[connection] = stream.tls.getpeercert(binary_form=True) or b""
        return member_behind(stream.tls, self._trust)

    def left(self, connection: socket.socket) -> None:
        """It has ended."""
        with self._lock:
            self._certificates.pop(connection, None)

    def close(self) -> None:
        """Watches no more."""
        if self._trust is not None:
            self._trust.on_change.remove(self._put_out)

    def _put_out(self) -> None:
        """Ends the connections of those who are members no longer."""
        with self._lock:
            certificates = dict(self._certificates)
        for connection, certificate in certificates.items():
            if self._trust is not None and not is_member_still(certificate, self._trust):
                shut(connection, socket.SHUT_RDWR)
