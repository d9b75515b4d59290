"""One channel to one node: settings, deadlines, retries and errors of its calls."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, NoReturn, TypeVar

import grpc
from grpc import aio

from kakeya.credentials import Credentials, Pems
from kakeya.errors import ClientClosed, DeadlineExceeded, KakeyaError, NodeUnreachable, UsageError
from kakeya.retries import MAX_ATTEMPTS, RetryBudget, pause_seconds
from kakeya.rpc_status import kakeya_error, unreachable
from kakeya.timeouts import Timeouts
from kakeya.v1 import (
    capability_pb2_grpc,
    model_service_pb2_grpc,
    placement_pb2_grpc,
    runtime_pb2_grpc,
)

if TYPE_CHECKING:
    from kakeya.v1.capability_pb2_grpc import CapabilityServiceAsyncStub
    from kakeya.v1.model_service_pb2_grpc import ModelServiceAsyncStub
    from kakeya.v1.placement_pb2_grpc import PlacementServiceAsyncStub
    from kakeya.v1.runtime_pb2_grpc import RuntimeServiceAsyncStub

PROBE_SECONDS = 1.0
"""In which a host of the same network takes a connection."""
_MIB = 1024 * 1024

# keepalive_timeout_ms does nothing in grpcio 1.85; ping_timeout_ms finds a
# frozen node after at most keepalive_time_ms + ping_timeout_ms. A snapshot of
# 10,000 nodes takes about 6 MB.
CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", 1 * _MIB),
    ("grpc.max_receive_message_length", 16 * _MIB),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Clients of one process must not share a connection's backoff.
    ("grpc.use_local_subchannel_pool", 1),
    # A proxy of the environment knows no way to the desk next door.
    ("grpc.enable_http_proxy", 0),
)

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class Connection:
    """The way to one node. Belongs to the event loop of its first call."""

    def __init__(
        self,
        address: str,
        timeouts: Timeouts,
        budget: RetryBudget,
        credentials: Credentials | None = None,
    ) -> None:
        host, separator, port = address.rpartition(":")
        if not (host and separator and port.isdecimal()):
            raise UsageError(f"an address is HOST:PORT, such as 127.0.0.1:7600, not {address!r}")
        self.address = address
        self.timeouts = timeouts
        self._credentials = credentials or Credentials()
        self.metadata = self._credentials.metadata(address)
        """What each call carries."""
        self._budget = budget
        self._channel: aio.Channel | None = None
        # What the channel was opened with: gRPC reads it once.
        self._pems: Pems | None = None
        self._retired: list[aio.Channel] = []
        self._closed = False
        self._was_ready = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def metadata_of(self, traceparent: str) -> tuple[tuple[str, str], ...]:
        """What a call of that trace carries; as all calls do, when it is empty."""
        return (*self.metadata, ("traceparent", traceparent)) if traceparent else self.metadata

    @property
    def runtime(self) -> RuntimeServiceAsyncStub:
        """Calls of RuntimeService."""
        return runtime_pb2_grpc.RuntimeServiceStub(self._open_channel())

    @property
    def capability(self) -> CapabilityServiceAsyncStub:
        """Calls of CapabilityService."""
        return capability_pb2_grpc.CapabilityServiceStub(self._open_channel())

    @property
    def placement(self) -> PlacementServiceAsyncStub:
        """Calls of PlacementService."""
        return placement_pb2_grpc.PlacementServiceStub(self._open_channel())

    @property
    def models(self) -> ModelServiceAsyncStub:
        """Calls of ModelService."""
        return model_service_pb2_grpc.ModelServiceStub(self._open_channel())

    def _open_channel(self) -> aio.Channel:
        if self._closed:
            raise ClientClosed("the client is closed")
        self._retire()
        if self._channel is None:
            self._pems = self._credentials.pems()
            self._channel = (
                aio.secure_channel(
                    self.address,
                    self._pems.channel_credentials(),
                    options=(*CHANNEL_OPTIONS, *self._credentials.channel_options()),
                )
                if self._pems is not None
                else aio.insecure_channel(self.address, options=CHANNEL_OPTIONS)
            )
        return self._channel

    def _retire(self) -> None:
        """Lets go of a channel that is not connected, where its certificates were renewed."""
        channel = self._channel
        if channel is None or self._pems is None:
            return
        if channel.get_state() is grpc.ChannelConnectivity.READY:
            return
        if self._credentials.pems() != self._pems:
            # Calls that began with it end with it.
            self._retired.append(channel)
            self._channel = None

    async def connect(self) -> None:
        """Waits until the channel is connected, at most `timeouts.connect` seconds.

        Raises NodeUnreachable at once when the connection is refused, and
        ClientClosed. A channel that is connected costs nothing.
        """
        channel = self._open_channel()
        state = channel.get_state(try_to_connect=True)
        # The channel pauses between its attempts: what the last one found may be over.
        is_old = True
        try:
            async with asyncio.timeout(self.timeouts.connect):
                while state is not grpc.ChannelConnectivity.READY:
                    if self._closed:
                        raise ClientClosed("the client is closed")
                    has_failed = state is grpc.ChannelConnectivity.TRANSIENT_FAILURE
                    if has_failed and not (is_old and await self._takes_connections()):
                        raise self._unreachable("connection refused")
                    is_old = False
                    await channel.wait_for_state_change(state)
                    state = channel.get_state(try_to_connect=True)
        except TimeoutError:
            detail = f"no connection within {self.timeouts.connect:g} s"
            raise self._unreachable(detail) from None
        self._was_ready = True

    async def _takes_connections(self) -> bool:
        """Whether somebody listens at the address now."""
        host, _, port = self.address.rpartition(":")
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except (OSError, TimeoutError):
            return False
        writer.close()
        return True

    async def unary(
        self,
        method: aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
        request: RequestT,
        timeout: float,
        *,
        idempotent: bool = False,
        traceparent: str = "",
    ) -> ResponseT:
        """Calls `method` with a deadline of `timeout` seconds, retries included.

        An idempotent call is sent again when the network failed, under the
        budget, and never to an address where no node was seen yet. Raises
        KakeyaError; its `attempts` tells how often the call was sent.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        self._budget.earn()
        for attempt in range(MAX_ATTEMPTS):
            try:
                return await self._attempt(method, request, deadline - clock(), traceparent)
            except KakeyaError as error:
                error.attempts = attempt + 1
                pause = pause_seconds(attempt, random.random())
                if not (
                    idempotent
                    and isinstance(error, NodeUnreachable)
                    and self._was_ready
                    and error.attempts < MAX_ATTEMPTS
                    and clock() + pause < deadline
                    and self._budget.spend()
                ):
                    raise
            await asyncio.sleep(pause)
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(
        self,
        method: aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
        request: RequestT,
        timeout: float,
        traceparent: str,
    ) -> ResponseT:
        clock = asyncio.get_running_loop().time
        start = clock()
        await self.connect()
        remaining = timeout - (clock() - start)
        if remaining <= 0:
            raise DeadlineExceeded(f"{self.address} did not answer in time")
        try:
            metadata = self.metadata_of(traceparent)
            return await method(request, timeout=remaining, metadata=metadata)
        except (aio.AioRpcError, aio.UsageError, asyncio.CancelledError) as error:
            self.fail(error)

    def fail(self, error: aio.AioRpcError | aio.UsageError | asyncio.CancelledError) -> NoReturn:
        """Raises what the failure of a call stands for.

        Closing a channel cancels its calls, which looks like a cancelled task;
        only the caller's own cancellation stays a CancelledError.
        """
        if isinstance(error, aio.AioRpcError):
            failure = kakeya_error(error, self.address)
            if isinstance(failure, NodeUnreachable):
                failure = self._unreachable(failure.metadata["detail"])
            raise failure from None
        task = asyncio.current_task()
        if self._closed and not (task is not None and task.cancelling()):
            raise ClientClosed("the client was closed during the call") from None
        raise error

    def _unreachable(self, detail: str) -> NodeUnreachable:
        doubt = self._pems.doubt() if self._pems is not None else None
        return unreachable(self.address, detail, doubt)

    async def close(self) -> None:
        """Cancels the calls and closes the channel; a second close does nothing."""
        self._closed = True
        channels = [*self._retired, *filter(None, [self._channel])]
        self._channel = None
        self._retired.clear()
        for channel in channels:
            await channel.close()
