"""A TCP connection between two members by TLS 1.3, for threads that read and write frames.

TLS runs in memory (`ssl.SSLObject`) over the plain socket, whose own time limits, readiness and
flags go on as they are: `ssl.SSLSocket` takes the end of SO_RCVTIMEO for "again" and waits for
ever, knows no MSG_DONTWAIT, and reads a record with two system calls where one here reads as many
as have come.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from kakeya_fleet.node.errors import BadCertificate, TrustCorrupt
from kakeya_fleet.node.trust.tls import client_context, member_behind, server_context
from kakeya_fleet.node.trust.trust import Trust

RECORD_BYTES = 1 << 14
"""Most plain text of one record (RFC 8446, section 5.1)."""
READ_BYTES = 1 << 16
"""Read from the socket at once, as far as it is there."""
WRITE_BYTES = 1 << 16
"""Encrypted before it is sent, so that the other end can begin."""


class ByteStream(Protocol):
    """What frames are read from and written to: a connected socket, or a `SealedStream`."""

    def recv_into(self, buffer: memoryview, nbytes: int = 0, flags: int = 0, /) -> int:
        """As `socket.recv_into`; 0 once the other end has closed. Raises `OSError`.

        `ssl.SSLWantReadError` says that something came, and no plain text of it yet.
        """
        ...

    def sendmsg(self, buffers: Sequence[bytes | memoryview], /) -> int:
        """As `socket.sendmsg`: how many bytes were sent. Raises `OSError`."""
        ...

    def sendall(self, data: bytes | memoryview, /) -> None:
        """As `socket.sendall`. Raises `OSError`."""
        ...


class SealedStream:
    """One end of it, over a connected socket, which stays its owner's to shut and to close.

    One thread at a time; any may shut the socket, which ends this as it ends the socket's calls.
    """

    def __init__(
        self, connection: socket.socket, context: ssl.SSLContext, *, server_side: bool
    ) -> None:
        self._socket = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self._read = memoryview(bytearray(READ_BYTES))

    def handshake(self, until: float) -> None:
        """Proves both ends to each other, until so many monotonic seconds.

        One more wait of the socket's own is possible. Raises `ssl.SSLError`, once the other end
        was told, `TimeoutError` and another `OSError`.
        """
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
            except ssl.SSLError:
                # The alert, which says why.
                self._flush()
                raise
            else:
                self._flush()
                return
            if time.monotonic() >= until:
                raise TimeoutError("the handshake did not end in time")
            try:
                if not self._fill(0):
                    raise ConnectionResetError("it was closed during the handshake")
            except BlockingIOError as error:
                raise TimeoutError("nothing came in time") from error

    def recv_into(self, buffer: memoryview, nbytes: int = 0, flags: int = 0, /) -> int:
        """See `ByteStream`; at most the plain text of one record."""
        size = nbytes or len(buffer)
        # Else there is nothing to decrypt, and to be told so takes as long as to decrypt.
        if self.tls.pending() or self._incoming.pending:
            try:
                return self._decrypted(buffer, size)
            except ssl.SSLWantReadError:
                pass
        if not self._fill(flags):
            return 0
        return self._decrypted(buffer, size)

    def sendmsg(self, buffers: Sequence[bytes | memoryview], /) -> int:
        """See `ByteStream`; all of them."""
        sizes = [memoryview(each).nbytes for each in buffers]
        whole = sum(sizes)
        # A small frame is one record, not one for each of its parts.
        parts = [b"".join(buffers)] if whole <= RECORD_BYTES else buffers
        for part in parts:
            self._encrypted(memoryview(part).cast("B"))
        self._flush()
        return whole

    def sendall(self, data: bytes | memoryview, /) -> None:
        """See `ByteStream`."""
        self.sendmsg((data,))

    def _decrypted(self, buffer: memoryview, size: int) -> int:
        try:
            count = self.tls.read(size, buffer)
        except ssl.SSLZeroReturnError:
            return 0
        finally:
            # What TLS itself answers, such as new keys of the other end.
            self._flush()
        return int(count)

    def _encrypted(self, data: memoryview) -> None:
        for first in range(0, len(data), WRITE_BYTES):
            self.tls.write(data[first : first + WRITE_BYTES])
            if self._outgoing.pending >= WRITE_BYTES:
                self._flush()

    def _fill(self, flags: int) -> int:
        count = self._socket.recv_into(self._read, 0, flags)
        self._incoming.write(self._read[:count])
        return count

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.sendall(self._outgoing.read())


def sealed_from(connection: socket.socket, trust: Trust, until: float) -> SealedStream:
    """The stream of a connection that came; who it is `member_behind` says.

    Raises as `SealedStream.handshake`; `ssl.SSLError` for one that is no member's, and
    `TrustCorrupt` when this node cannot show who it is.
    """
    context = _readable(server_context, trust)
    # Nobody resumes a session: tickets would be bytes ahead of each first answer.
    context.num_tickets = 0
    stream = SealedStream(connection, context, server_side=True)
    stream.handshake(until)
    return stream


def sealed_to(connection: socket.socket, node_id: str, trust: Trust, until: float) -> SealedStream:
    """The stream of a connection to a node, which has proven that it is that one.

    Raises as `sealed_from`, and `BadCertificate` for another member, before anything was said
    to it.
    """
    stream = SealedStream(connection, _readable(client_context, trust), server_side=False)
    stream.handshake(until)
    found = member_behind(stream.tls, trust)
    if found != node_id:
        raise BadCertificate(
            f"node {found[:12]} answers in place of node {node_id[:12] or '(none was named)'}",
            "see who has this address now: `fleet status`",
            fault="another",
        )
    return stream


def _readable(made: Callable[[Trust], ssl.SSLContext], trust: Trust) -> ssl.SSLContext:
    """A context of the files of now. Raises `TrustCorrupt`."""
    try:
        return made(trust)
    except OSError as error:
        path = trust.files.member_file
        raise TrustCorrupt(
            f"this node cannot show that it is a member: {path} cannot be read ({error})",
            "put a backup back, or join again with a code of `fleet invite`",
            path=str(path),
        ) from error


def is_member_still(certificate: bytes, trust: Trust) -> bool:
    """Whether whoever opened a connection with a certificate, DER, may go on with it.

    That it ended by time meanwhile is no matter: its node has renewed it for new connections.
    """
    try:
        trust.member_of(certificate)
    except BadCertificate as error:
        return error.metadata.get("fault") == "expired"
    return True
