"""A node that has its tokens already: for measuring what a client makes of a stream.

Prints {"address": HOST:PORT}, and ends with its standard input. A session's model id is
the size of its blocks. All messages of a generation are serialized before the first is
sent, so that the node does no work of its own while it streams.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator

import grpc
from grpc import aio

from kakeya.v1 import model_pb2, runtime_pb2

SERVICE = "kakeya.v1.RuntimeService"
VOCABULARY_SIZE = 150_000


class StreamingNode:
    """Serves sessions whose tokens are a function of the position."""

    def __init__(self) -> None:
        self._blocks: dict[str, int] = {}
        self._lengths: dict[str, int] = {}
        self._numbers = itertools.count()

    async def create(self, request: bytes, _context: aio.ServicerContext[bytes, bytes]) -> bytes:
        """Opens a session."""
        asked = runtime_pb2.CreateSessionRequest.FromString(request)
        session_id = f"s{next(self._numbers)}"
        self._blocks[session_id] = int(asked.model_id)
        self._lengths[session_id] = 0
        return runtime_pb2.CreateSessionResponse(
            session_id=session_id,
            model=model_pb2.ModelOffer(model_id=asked.model_id),
            vocabulary_size=VOCABULARY_SIZE,
        ).SerializeToString()

    async def append(self, request: bytes, _context: aio.ServicerContext[bytes, bytes]) -> bytes:
        """Counts tokens that are appended."""
        asked = runtime_pb2.AppendTokensRequest.FromString(request)
        self._lengths[asked.session_id] += len(asked.token_ids)
        length = self._lengths[asked.session_id]
        return runtime_pb2.AppendTokensResponse(history_length=length).SerializeToString()

    async def close(self, request: bytes, _context: aio.ServicerContext[bytes, bytes]) -> bytes:
        """Forgets a session."""
        asked = runtime_pb2.CloseSessionRequest.FromString(request)
        self._blocks.pop(asked.session_id)
        length = self._lengths.pop(asked.session_id)
        return runtime_pb2.CloseSessionResponse(history_length=length).SerializeToString()

    async def generate(
        self, request: bytes, _context: aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[bytes]:
        """Streams messages that are ready."""
        asked = runtime_pb2.GenerateRequest.FromString(request)
        for message in self._messages(asked.session_id, asked.max_tokens):
            yield message

    def _messages(self, session_id: str, count: int) -> list[bytes]:
        size, start = self._blocks[session_id], self._lengths[session_id]
        end = start + count
        messages = []
        for first in range(start, end, size):
            ids = [position * 7919 % VOCABULARY_SIZE for position in range(first, first + size)]
            tokens = runtime_pb2.CommittedTokens(
                token_ids=ids[: end - first], first_index=first, drafted_count=size - 1
            )
            messages.append(runtime_pb2.GenerateResponse(tokens=tokens).SerializeToString())
        self._lengths[session_id] = end
        done = runtime_pb2.GenerateDone(
            stop_reason=runtime_pb2.STOP_REASON_MAX_TOKENS,
            generated_token_count=count,
            history_length=end,
        )
        messages.append(runtime_pb2.GenerateResponse(done=done).SerializeToString())
        return messages


async def main() -> None:
    """Serves until standard input ends."""
    node = StreamingNode()
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "CreateSession": grpc.unary_unary_rpc_method_handler(node.create),
        "AppendTokens": grpc.unary_unary_rpc_method_handler(node.append),
        "CloseSession": grpc.unary_unary_rpc_method_handler(node.close),
        "Generate": grpc.unary_stream_rpc_method_handler(node.generate),
    }
    server = aio.server()
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(json.dumps({"address": f"127.0.0.1:{port}"}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main())
