"""What callers say of a megabyte is not kept, in whichever field of whichever call they say it."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from typing import Any

import grpc.aio
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kakeya import AsyncClient
from kakeya.v1 import archive_pb2_grpc, runtime_pb2_grpc, tensor_pb2_grpc
from scripts.attack.methods import LEAVE, Method, all_methods
from scripts.attack.seeds import Seeds, seeds_for
from scripts.attack.subject import MODEL, PROPOSERS
from tests.node.conftest import StartAgent

TEXT_BYTES = 1 << 20
CALLS = 4
"""Of each field: one that keeps what it is told keeps four times as much."""
NOISE_BYTES = 3 * TEXT_BYTES
CALL_SECONDS = 20.0
STREAM_SECONDS = 0.3
COLLECTED_SECONDS = 10.0
MESSAGES = 8
"""Of a stream, which are of several kinds."""
NESTED = 3
"""Messages in messages, at most."""
BEARS_DATA = {"data"}
"""Fields whose bytes are what a caller has room for: chunks of tensors."""

SEED = 20_261_127


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of glibc, mallinfo(3)."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def bytes_in_use() -> int:
    """Of the C library's heap, in blocks that nobody has freed."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        pytest.skip("only glibc tells how much of its heap is in use")
    library.mallinfo2.restype = _Mallinfo
    told = library.mallinfo2()
    return int(told.uordblks) + int(told.hblkhd)


def texts_of(kind: type[Message], depth: int = NESTED) -> Iterator[tuple[str, ...]]:
    """Where a message of this kind has a text, by the names of its fields."""
    for field in kind.DESCRIPTOR.fields:
        inner = field.message_type
        if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            if field.name not in BEARS_DATA:
                yield (field.name,)
        elif inner is not None and depth and not inner.GetOptions().map_entry:
            for rest in texts_of(_made_of(inner), depth - 1):
                yield (field.name, *rest)


def _made_of(kind: Any) -> type[Message]:
    # Its stubs know one of the two implementations of descriptors.
    return GetMessageClass(kind)


def with_text(message: Message, where: tuple[str, ...]) -> Message:
    """`message` with a long text there."""
    changed = type(message)()
    changed.CopyFrom(message)
    inner: Any = changed
    *outer, last = where
    for name in outer:
        inner = getattr(inner, name)
        if hasattr(inner, "add"):
            inner = inner[0] if len(inner) else inner.add()
    field = inner.DESCRIPTOR.fields_by_name[last]
    text = b"x" * TEXT_BYTES if field.type == FieldDescriptor.TYPE_BYTES else "x" * TEXT_BYTES
    if field.is_repeated:
        getattr(inner, last).append(text)
    else:
        setattr(inner, last, text)
    return changed


async def call(channel: grpc.aio.Channel, method: Method, messages: list[Message]) -> None:
    """Ends the call at its first answer, or by whatever the node says."""
    kinds = {True: "stream", False: "unary"}
    multi: Any = getattr(channel, f"{kinds[method.sends_many]}_{kinds[method.answers_many]}")(
        method.path, request_serializer=lambda message: message.SerializeToString()
    )
    seconds = STREAM_SECONDS if method.sends_many or method.answers_many else CALL_SECONDS

    async def sending() -> AsyncIterator[Message]:
        for message in messages:
            yield message

    running = multi(sending() if method.sends_many else messages[0], timeout=seconds)
    with suppress(grpc.aio.AioRpcError):
        if method.answers_many:
            async for _ in running:
                break
        else:
            await running
    running.cancel()


async def seeds_of(
    channel: grpc.aio.Channel, archives: grpc.aio.Channel, rng: random.Random
) -> Seeds:
    """With a session, a link and an archive of the caller's own."""
    seeds = await seeds_for(channel, rng)
    runtime, links, kept = (
        runtime_pb2_grpc.RuntimeServiceStub(channel),
        tensor_pb2_grpc.TensorServiceStub(channel),
        archive_pb2_grpc.ArchiveServiceStub(archives),
    )
    seeds.session_id = (await runtime.CreateSession(seeds.plain_session())).session_id
    seeds.link_id = (await links.OpenLink(seeds.link())).link_id
    seeds.archive_id = (await kept.OpenArchive(seeds.archive())).archive_id
    return seeds


def requests_of(method: Method, seeds: Seeds) -> Mapping[str, list[Message]]:
    """What is said with a long text in each field of each message that begins a call."""
    messages = list(seeds.of(method.name))[:MESSAGES]
    return {
        f"{method.path} {'.'.join(where)}": [*messages[:index], with_text(messages[index], where)]
        for index in range(len(messages) if method.sends_many else 1)
        for where in texts_of(type(messages[index]))
    }


async def grown_to(before: int) -> int:
    """Bytes in use beyond `before`, once what calls that have ended leave behind is collected."""
    ends = time.monotonic() + COLLECTED_SECONDS
    while (grown := bytes_in_use() - before) > NOISE_BYTES and time.monotonic() < ends:
        await asyncio.sleep(0.05)
        gc.collect()
    return grown


async def test_nothing_of_a_long_text_stays(start_agent: StartAgent) -> None:
    serving = [f"verifier={MODEL}", *(f"proposer={name}" for name in PROPOSERS), "archive=64MiB"]
    agent = await start_agent(serve=serving)
    async with AsyncClient(agent.address) as client:
        card = (await client.fleet.node()).card
    assert card.archive is not None
    at_archives = f"{agent.address.rpartition(':')[0]}:{card.archive.port}"
    kept: dict[str, int] = {}
    said: set[str] = set()
    async with (
        grpc.aio.insecure_channel(agent.address) as channel,
        grpc.aio.insecure_channel(at_archives) as archives,
    ):
        channels = {"kakeya.v1.ArchiveService": archives}
        seeds = await seeds_of(channel, archives, random.Random(SEED))
        for method in all_methods():
            if method.name == LEAVE:
                continue
            of_method = channels.get(method.service, channel)
            for name, messages in requests_of(method, seeds).items():
                await call(of_method, method, messages)
                before = bytes_in_use()
                for _ in range(CALLS):
                    await call(of_method, method, messages)
                if (grown := await grown_to(before)) > NOISE_BYTES:
                    kept[name] = grown
                said.add(name)
    assert "/kakeya.v1.RuntimeService/CloseSession session_id" in said
    assert not kept, f"seed {SEED}"
