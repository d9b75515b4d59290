"""Nodes that give a model's files, right or wrong, at a socket."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc
import grpc.aio
from google.protobuf.message import Message

from kakeya.v1 import model_service_pb2 as wire
from kakeya.v1 import model_service_pb2_grpc
from kakeya_fleet.engine.models.model_manifest import LEAST_PIECE_BYTES, Manifest, ModelFile

if TYPE_CHECKING:
    from typing import TypeAlias

    Context: TypeAlias = grpc.aio.ServicerContext[Message, Message]

PIECE_BYTES = LEAST_PIECE_BYTES
CHUNK_BYTES = 1 << 14


def model_of(files: dict[str, bytes], model_id: str = "small") -> Manifest:
    """The manifest of these files."""
    digests = b"".join(
        hashlib.sha256(data[start : start + PIECE_BYTES]).digest()
        for data in files.values()
        for start in range(0, len(data), PIECE_BYTES)
    )
    named = tuple(ModelFile(name, len(data)) for name, data in files.items())
    return Manifest(model_id, named, digests, PIECE_BYTES)


def answer_of(manifest: Manifest) -> list[wire.GetModelFilesResponse]:
    """What a node says of it."""
    named = [wire.ModelFile(name=file.name, byte_count=file.byte_count) for file in manifest.files]
    return [
        wire.GetModelFilesResponse(
            files=wire.ModelFiles(files=named, piece_bytes=manifest.piece_bytes)
        ),
        wire.GetModelFilesResponse(digests=wire.PieceDigests(sha256=manifest.digests)),
    ]


@dataclass
class FilesNode(model_service_pb2_grpc.ModelServiceServicer):
    """Gives what it is told to; `asked` has the digests of the pieces that it was asked for.

    `before` is awaited before each piece, with how many came before it.
    """

    files: dict[str, bytes]
    told: list[wire.GetModelFilesResponse] | None = None
    spoil: Callable[[bytes], bytes] = lambda data: data
    before: Callable[[int, Context], object] | None = None
    asked: list[bytes] = field(default_factory=list)
    endless: bool = False
    tells_after: asyncio.Event | None = None

    def __post_init__(self) -> None:
        self.pieces = {
            hashlib.sha256(data[start : start + PIECE_BYTES]).digest(): data[
                start : start + PIECE_BYTES
            ]
            for data in self.files.values()
            for start in range(0, len(data), PIECE_BYTES)
        }

    async def GetModelFiles(  # noqa: N802
        self, request: wire.GetModelFilesRequest, context: Context
    ) -> AsyncIterator[wire.GetModelFilesResponse]:
        if self.tells_after is not None:
            await self.tells_after.wait()
        for message in self.told if self.told is not None else answer_of(model_of(self.files)):
            yield message

    async def ReadPiece(  # noqa: N802
        self, request: wire.ReadPieceRequest, context: Context
    ) -> AsyncIterator[wire.ReadPieceResponse]:
        self.asked.append(request.sha256)
        if self.before is not None:
            waiting = self.before(len(self.asked) - 1, context)
            if asyncio.iscoroutine(waiting):
                await waiting
        data = self.spoil(self.pieces[request.sha256])
        for start in range(0, len(data), CHUNK_BYTES):
            yield wire.ReadPieceResponse(data=data[start : start + CHUNK_BYTES])
        while self.endless:
            yield wire.ReadPieceResponse(data=bytes(CHUNK_BYTES))

    async def ListModels(  # noqa: N802
        self, request: wire.ListModelsRequest, context: Context
    ) -> wire.ListModelsResponse:
        return wire.ListModelsResponse()

    async def LoadModel(  # noqa: N802
        self, request: wire.LoadModelRequest, context: Context
    ) -> AsyncIterator[wire.LoadModelResponse]:
        if self.endless:
            yield wire.LoadModelResponse()

    async def PullModel(  # noqa: N802
        self, request: wire.PullModelRequest, context: Context
    ) -> AsyncIterator[wire.PullModelResponse]:
        if self.endless:
            yield wire.PullModelResponse()

    async def UnloadModel(  # noqa: N802
        self, request: wire.UnloadModelRequest, context: Context
    ) -> wire.UnloadModelResponse:
        return wire.UnloadModelResponse()

    async def RemoveModel(  # noqa: N802
        self, request: wire.RemoveModelRequest, context: Context
    ) -> wire.RemoveModelResponse:
        return wire.RemoveModelResponse()
