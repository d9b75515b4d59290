"""The verifier's end of a feature link: what is new travels, once each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import grpc.aio

from engine.errors import DraftFailed, DraftFaultKind
from engine.features import ContextVectors
from kakeya.v1 import tensor_pb2 as wire
from kakeya.v1 import tensor_pb2_grpc
from node.links.encoder_fetch import ProposerAddress, opening_request
from node.links.feature_inbox import FEATURES
from node.links.tensor_chunks import chunks_of
from node.links.wire_tensor import BFLOAT16, from_floats

ReadFeatures = Callable[[int], tuple[int, ContextVectors]]
"""Vectors from a position on, and the position of the first; as `SessionFeatures.since`."""

# Messages that wait to be written: a proposer's node that takes none must not make
# the list grow. The whole window of a wide encoder is three of them.
MOST_UNWRITTEN = 64

_REFUSALS = frozenset(
    {
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""What a node that is there answers when it opens no link."""

_Call = grpc.aio.StreamStreamCall[wire.StreamTensorsRequest, wire.StreamTensorsResponse]


class FeatureStream:
    """One open link with its stream. The first fault breaks it for good."""

    def __init__(self, call: _Call, link_id: str, dtype: wire.TensorDtype.ValueType) -> None:
        self.link_id = link_id
        self._call = call
        self._dtype = dtype
        self._sent_end = 0
        self._tensor_id = 0
        self._requests: asyncio.Queue[wire.StreamTensorsRequest] = asyncio.Queue()
        opening = wire.StreamOpening(link_id=link_id)
        self._requests.put_nowait(wire.StreamTensorsRequest(opening=opening))
        self._broken = False
        self._tasks = (
            asyncio.create_task(self._write(), name="feature-link-write"),
            asyncio.create_task(self._read(), name="feature-link-read"),
        )

    @property
    def broken(self) -> bool:
        """Whether it carries nothing any more."""
        return self._broken

    @property
    def sent_end(self) -> int:
        """The position behind the last vector that was sent."""
        return self._sent_end

    def rewind(self, end: int) -> None:
        """What lies behind position `end` counts as not sent."""
        self._sent_end = min(self._sent_end, end)

    def send(self, first: int, vectors: ContextVectors) -> None:
        """Sends vectors [n, width] of positions `first` onwards, n >= 1."""
        tensor = from_floats(FEATURES, vectors, self._dtype, first)
        self._tensor_id += 1
        self._sent_end = first + len(vectors)
        for chunk in chunks_of(tensor, self.link_id, self._tensor_id):
            self._requests.put_nowait(wire.StreamTensorsRequest(chunk=chunk))
        if self._requests.qsize() > MOST_UNWRITTEN:
            self._break()

    async def close(self) -> None:
        """Ends the stream, and the link with it."""
        self._break()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _write(self) -> None:
        try:
            while True:
                await self._call.write(await self._requests.get())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            self._break()

    async def _read(self) -> None:
        """Nothing is sent back but the end."""
        try:
            while isinstance(await self._call.read(), wire.StreamTensorsResponse):
                pass
        except grpc.aio.AioRpcError:
            return
        finally:
            self._break()

    def _break(self) -> None:
        if not self._broken:
            self._broken = True
            self._call.cancel()


class FeatureSender:
    """Keeps one session's proposer supplied with context vectors; reopens what broke.

    Belongs to the event loop's thread. A proposer that has lost vectors gets them
    again, as far back as `read` has them.
    """

    def __init__(
        self,
        address: ProposerAddress,
        read: ReadFeatures,
        *,
        open_timeout: float,
        dtype: wire.TensorDtype.ValueType = BFLOAT16,
    ) -> None:
        self._stub = tensor_pb2_grpc.TensorServiceStub(address.channel)
        self._address = address
        self._read = read
        self._open_timeout = open_timeout
        self._dtype = dtype
        self._opening = asyncio.Lock()
        self._stream: FeatureStream | None = None
        self._retired: set[asyncio.Task[None]] = set()

    async def link_id(self) -> str:
        """The id of the open link, opened when there is none.

        Raises `DraftFailed` (FEATURES) when the proposer's node refuses one,
        (UNREACHABLE) when it does not answer.
        """
        stream = self._stream
        if stream is not None and not stream.broken:
            return stream.link_id
        async with self._opening:
            if self._stream is not None and not self._stream.broken:
                return self._stream.link_id
            self.rest()
            self._stream = await self._opened()
            return self._stream.link_id

    def push(self, end: int) -> None:
        """Sends what is new below position `end`.

        Raises `DraftFailed` (FEATURES) when this side itself has no vectors up to there.
        """
        stream = self._stream
        if stream is None or stream.broken or stream.sent_end >= end:
            return
        first, vectors = self._read(stream.sent_end)
        if first + len(vectors) < end:
            raise DraftFailed(
                DraftFaultKind.FEATURES,
                f"the session has context vectors up to {first + len(vectors)}, not {end}",
            )
        stream.send(first, vectors[: end - first])

    def rewind(self, end: int) -> None:
        """The proposer knows vectors up to position `end` only."""
        if self._stream is not None:
            self._stream.rewind(end)

    def rest(self) -> None:
        """Ends the link, and with it what the proposer's node keeps; `link_id` opens another."""
        stream, self._stream = self._stream, None
        if stream is not None:
            task = asyncio.create_task(stream.close(), name="feature-link-close")
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)

    async def close(self) -> None:
        """Ends the link."""
        self.rest()
        if self._retired:
            await asyncio.wait(self._retired)

    async def _opened(self) -> FeatureStream:
        try:
            opened = await self._stub.OpenLink(
                opening_request(self._address), timeout=self._open_timeout
            )
            return FeatureStream(self._stub.StreamTensors(), opened.link_id, self._dtype)
        except grpc.aio.UsageError as error:
            raise DraftFailed(
                DraftFaultKind.UNREACHABLE, "the channel to the proposer was closed"
            ) from error
        except grpc.aio.AioRpcError as error:
            raise DraftFailed(
                DraftFaultKind.FEATURES
                if error.code() in _REFUSALS
                else DraftFaultKind.UNREACHABLE,
                f"no feature link opens: {error.code().name}: {error.details()}",
            ) from error
