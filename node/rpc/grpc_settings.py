"""gRPC options, limits and deadlines of the node, as measured with grpcio 1.85.

`keepalive_timeout_ms` has no effect in that version: a frozen server held a
call for a minute; `http2.ping_timeout_ms` bounds it. Retries in the service
config work and hedging is ignored, so nothing here relies on either.
"""

from __future__ import annotations

MIB = 1 << 20
CONTROL_MESSAGE_BYTES = MIB
"""Largest message of the control plane; the sender keeps exchanges below it."""
DATA_MESSAGE_BYTES = 4 * MIB
"""Largest message that the server takes; gRPC refuses more with RESOURCE_EXHAUSTED."""
KEEPALIVE_SECONDS = 10
PING_TIMEOUT_SECONDS = 2

PROBE_TIMEOUT_SECONDS = 10.0
"""Longest indirect probe that a peer may ask for."""

Options = tuple[tuple[str, int], ...]


def client_options() -> Options:
    """Options of a channel to another node."""
    return (
        ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
        ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_SECONDS * 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_send_message_length", DATA_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", DATA_MESSAGE_BYTES),
        # A restarted peer answers again within a period or two, not after two minutes.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.enable_http_proxy", 0),
    )


def server_options() -> Options:
    """Options of the node's server."""
    return (
        # A connection that never says that it is HTTP/2; gRPC's own is 120 s.
        ("grpc.server_handshake_timeout_ms", 10_000),
        # Two servers would silently share a port.
        ("grpc.so_reuseport", 0),
        ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
        ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_SECONDS * 1000),
        # Without both, a server takes the keepalive of an idle channel for abuse and hangs
        # up. gRPC's own name of the first is without the "recv" of its documentation.
        ("grpc.http2.min_ping_interval_without_data_ms", 5000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_send_message_length", DATA_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", DATA_MESSAGE_BYTES),
    )


STOP_SECONDS = 1.0
"""What calls that still run get when the server stops; streams were ended before."""
