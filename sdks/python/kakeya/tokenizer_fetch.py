"""A model's tokenizer from the node that serves it."""

from __future__ import annotations

import asyncio
from typing import TypeAlias

from grpc import aio

from kakeya.connection import Connection
from kakeya.errors import TokenizerMismatch
from kakeya.streams import MessageStream
from kakeya.text import TextCodec
from kakeya.tokenizer_cache import AnnouncedFile, AnnouncedTokenizer, cache_folder
from kakeya.tokenizer_folder import read_files
from kakeya.v1 import runtime_pb2

_Call: TypeAlias = aio.UnaryStreamCall[
    runtime_pb2.GetTokenizerRequest, runtime_pb2.GetTokenizerResponse
]
_Stream: TypeAlias = MessageStream[
    runtime_pb2.GetTokenizerRequest, runtime_pb2.GetTokenizerResponse
]


async def fetch_codec(connection: Connection, model: str, known: dict[str, TextCodec]) -> TextCodec:
    """The codec of `model` as the node of `connection` serves it.

    Files come from the cache where it has them; codecs are kept in `known` by their
    content. Raises what the call raises, TokenizerMismatch, TokenizerNotFound,
    TextExtraMissing.
    """
    stream = _open(connection, model)
    try:
        first = await stream.read()
        if first is None or not first.HasField("header"):
            raise TokenizerMismatch("the node sent no header: update the node")
        header = first.header
        announced = AnnouncedTokenizer.checked(
            header.tokenizer_digest,
            [AnnouncedFile(file.name, file.byte_count, file.sha256) for file in header.files],
        )
        if announced.key not in known:
            cache = cache_folder()
            files = await asyncio.to_thread(announced.read, cache)
            if files is None:
                files = announced.split(await _read_all(stream, announced.byte_count))
                await asyncio.to_thread(announced.write, cache, files)
            known[announced.key] = await asyncio.to_thread(
                lambda: TextCodec(read_files(files, f"{model} at {connection.address}"))
            )
        return known[announced.key]
    finally:
        stream.leave()


def _open(connection: Connection, model: str) -> _Stream:
    async def open_call() -> _Call:
        request = runtime_pb2.GetTokenizerRequest(model_id=model)
        return connection.runtime.GetTokenizer(
            request, timeout=connection.timeouts.generation, metadata=connection.metadata
        )

    return MessageStream(
        connection,
        open_call,
        first_timeout=connection.timeouts.unary,
        idle_timeout=connection.timeouts.stream_idle,
    )


async def _read_all(stream: _Stream, byte_count: int) -> bytes:
    content = bytearray()
    # A node that sends without end is left as soon as it sent too much.
    while len(content) <= byte_count and (message := await stream.read()) is not None:
        content += message.chunk
    return bytes(content)
