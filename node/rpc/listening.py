"""Binding the gRPC server, with an error that names the port."""

from __future__ import annotations

from contextlib import suppress

import grpc
import grpc.aio

from kakeya_fleet.node.admission.limits import CallLimits
from kakeya_fleet.node.config.config import join_address
from kakeya_fleet.node.config.ports import GRPC_PORT, ports_to_try
from kakeya_fleet.node.errors import PortInUse
from kakeya_fleet.node.rpc.free_port import port_in_use, require_free
from kakeya_fleet.node.rpc.grpc_settings import server_options
from kakeya_fleet.node.trust.tls import server_credentials
from kakeya_fleet.node.trust.trust import Trust


def make_server(
    *interceptors: grpc.aio.ServerInterceptor, limits: CallLimits | None = None
) -> grpc.aio.Server:
    """The node's server, not bound yet."""
    return grpc.aio.server(
        interceptors=interceptors,
        options=server_options(),
        maximum_concurrent_rpcs=(limits or CallLimits()).in_flight,
    )


def listen(
    server: grpc.aio.Server,
    host: str,
    port: int | None,
    last_port: int,
    credentials: grpc.ServerCredentials | None = None,
) -> int:
    """Binds the server and returns its port; raises `PortInUse`.

    In plain text without `credentials`, which say who can call there.

    `port` is a number, 0 or None: see `ports_to_try`. Others can connect from now on; they are
    answered when the server starts.
    """
    *preferred, last_resort = ports_to_try(port, last_port, GRPC_PORT)
    for each in preferred:
        with suppress(PortInUse):
            return _listen(server, host, each, credentials)
    return _listen(server, host, last_resort, credentials)


def _listen(
    server: grpc.aio.Server, host: str, port: int, credentials: grpc.ServerCredentials | None
) -> int:
    require_free(host, port)
    try:
        return _bind(server, join_address(host, port), credentials)
    except RuntimeError as error:
        raise port_in_use(host, port, "gRPC could not bind it") from error


def bind(server: grpc.Server | grpc.aio.Server, address: str, trust: Trust | None) -> int:
    """Binds either kind of server to host:port, and returns its port; raises `RuntimeError`."""
    return _bind(server, address, server_credentials(trust) if trust is not None else None)


def _bind(
    server: grpc.Server | grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None
) -> int:
    if credentials is None:
        return server.add_insecure_port(address)
    return server.add_secure_port(address, credentials)
