"""A model on its way to a node's disk, as an asynchronous iterator of its progress."""

from __future__ import annotations

from typing import Any

from grpc import aio

from kakeya.connection import Connection
from kakeya.errors import UnexpectedError
from kakeya.generated import wire
from kakeya.generated.values import PulledModel, PullProgress
from kakeya.streams import AsyncStream, MessageStream
from kakeya.v1 import model_service_pb2


class AsyncModelPull(AsyncStream[model_service_pb2.PullModelResponse, PullProgress]):
    """How a pull stands: `async for progress in client.fleet.pull_model("smollm2")`.

    Iterated once, or waited for. Who leaves it leaves the pull alone, which goes on; to pull the
    model again is to hear of it again. `pulled` holds the end once the iteration came to it.
    """

    def __init__(self, connection: Connection, request: model_service_pb2.PullModelRequest) -> None:
        super().__init__()
        self._connection = connection
        self._request = request
        self._pulled: PulledModel | None = None

    @property
    def pulled(self) -> PulledModel | None:
        """What is on the disk; None until the iteration came to its end."""
        return self._pulled

    async def wait(self) -> PulledModel:
        """Waits until the model is on the disk. Raises what the iteration raises."""
        async for _ in self:
            pass
        if self._pulled is None:
            raise UnexpectedError("the pull was left before its end")
        return self._pulled

    def _open(self) -> MessageStream[Any, model_service_pb2.PullModelResponse]:
        connection, timeouts = self._connection, self._connection.timeouts

        async def open_call() -> aio.UnaryStreamCall[Any, model_service_pb2.PullModelResponse]:
            return connection.models.PullModel(
                self._request, timeout=timeouts.watch, metadata=connection.metadata
            )

        return MessageStream(
            connection,
            open_call,
            first_timeout=timeouts.unary,
            idle_timeout=timeouts.stream_idle,
        )

    def _take(self, message: model_service_pb2.PullModelResponse) -> PullProgress | None:
        if message.HasField("progress"):
            return wire.pull_progress(message.progress)
        if message.HasField("pulled"):
            self._pulled = wire.pulled_model(message.pulled)
        return None

    def _finish(self) -> None:
        if self._pulled is None:
            raise UnexpectedError("the node ended the pull without its model")
