"""Limits of a node's HTTP."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a client may take, and for how long."""

    body_bytes: int = 8 * MIB
    """Longest body of a request, decompressed."""
    body_seconds: float = 30.0
    """From a request's headers to the end of its body."""
    header_seconds: float = 10.0
    """From a connection, or a byte of its next request, to the end of the headers."""
    idle_seconds: float = 75.0
    """A connection without a request is kept so long."""
    connections: int = 512
    """Open connections; more are closed at once."""
    concurrent_requests: int = 64
    """Requests of /v1 that are answered at once."""
    keep_alive_seconds: float = 10.0
    """A stream that says nothing for so long has a comment."""
    write_seconds: float = 30.0
    """A client that takes nothing for so long is cut off, and its session closed."""
    close_seconds: float = 2.0
    """What running requests get when the node leaves, after generations were drained."""
