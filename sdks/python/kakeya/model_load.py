"""A model on its way into a node, as an asynchronous iterator of its progress."""

from __future__ import annotations

from typing import Any

from grpc import aio

from kakeya.connection import Connection
from kakeya.errors import UnexpectedError
from kakeya.generated import wire
from kakeya.generated.values import LoadedModel, LoadProgress
from kakeya.streams import AsyncStream, MessageStream
from kakeya.v1 import model_service_pb2


class AsyncModelLoad(AsyncStream[model_service_pb2.LoadModelResponse, LoadProgress]):
    """How a load stands: `async for progress in client.fleet.load_model("smollm2")`.

    Iterated once, or waited for. Who leaves it leaves the load alone, which goes on; to load
    the model again is to hear of it again. `loaded` holds the end once the iteration came to it.
    """

    def __init__(self, connection: Connection, request: model_service_pb2.LoadModelRequest) -> None:
        super().__init__()
        self._connection = connection
        self._request = request
        self._loaded: LoadedModel | None = None

    @property
    def loaded(self) -> LoadedModel | None:
        """What is served; None until the iteration came to its end."""
        return self._loaded

    async def wait(self) -> LoadedModel:
        """Waits until the model is served. Raises what the iteration raises."""
        async for _ in self:
            pass
        if self._loaded is None:
            raise UnexpectedError("the load was left before its end")
        return self._loaded

    def _open(self) -> MessageStream[Any, model_service_pb2.LoadModelResponse]:
        connection, timeouts = self._connection, self._connection.timeouts

        async def open_call() -> aio.UnaryStreamCall[Any, model_service_pb2.LoadModelResponse]:
            return connection.models.LoadModel(
                self._request, timeout=timeouts.watch, metadata=connection.metadata
            )

        return MessageStream(
            connection,
            open_call,
            first_timeout=timeouts.unary,
            idle_timeout=timeouts.stream_idle,
        )

    def _take(self, message: model_service_pb2.LoadModelResponse) -> LoadProgress | None:
        if message.HasField("progress"):
            return wire.load_progress(message.progress)
        if message.HasField("loaded"):
            self._loaded = wire.loaded_model(message.loaded)
        return None

    def _finish(self) -> None:
        if self._loaded is None:
            raise UnexpectedError("the node ended the load without its model")
