"""What a session took is free once it is closed, without the collector of cycles.

Its history and caches would wait for it, and a collection of many stalls the node's event loop.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from kakeya.v1 import placement_pb2, runtime_pb2
from tests.support import calls
from tests.support.neighbourhood import Neighbourhood, Node

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [index * 7 % 96 for index in range(60)]
SESSIONS = 4
KINDS = ("alone", "drafted", "forked", "restored", "archived", "packed", "left", "embedded")
HELD_BY_A_SESSION = {
    *("Session", "SessionRecord", "OpenSession", "SessionCache", "SessionMemory", "History"),
    *("SlabCache", "SegmentStore", "Handover", "Pairing", "SessionActivity", "SessionRestorer"),
    *("_Generation", "DecodeTurn", "VerifyTurn", "Drafting", "Roster", "LocalDraftSource"),
    *("SharedEvictedStore", "RemoteEvictedStore", "Sharing", "NextRange", "ArchiveConversation"),
    *("DataConnection", "FrameReader", "StoreAudits", "ArchiveWay", "PositionTagger"),
    *("ReadTurn", "MeanPool"),
    *("Archive", "ArchiveUse", "ServedConnection", "KeptTags", "BlockMasks", "GroupStore"),
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def node(neighbourhood: Neighbourhood, checkpoint: Path) -> AsyncIterator[Node]:
    serving = (f"verifier={checkpoint}", "proposer=ngram", "archive=64MiB")
    yield await neighbourhood.start("one", *serving)


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    # What is there already is not counted each time: it is most of what there is.
    gc.freeze()
    gc.disable()
    yield
    gc.enable()


def held() -> Counter[str]:
    names = (type(each).__name__ for each in gc.get_objects())
    return Counter(name for name in names if name in HELD_BY_A_SESSION)


def waiting() -> list[str]:
    """For each task that is not done, where it waits: outermost first."""
    found: list[str] = []
    for task in asyncio.all_tasks():
        places: list[str] = []
        each: object = task.get_coro()
        while each is not None:
            frame = getattr(each, "cr_frame", None) or getattr(each, "ag_frame", None)
            if frame is None:
                places.append(type(each).__name__)
            else:
                places.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
            each = getattr(each, "cr_await", None) or getattr(each, "ag_await", None)
        found.append(" > ".join(places))
    return found


async def lived(client: calls.Caller, kind: str) -> None:
    if kind == "embedded":
        await client.stub.Embed(runtime_pb2.EmbedRequest(model_id="random", token_ids=PROMPT))
        return
    if kind in ("archived", "restored", "packed"):
        restored = kind != "packed"
        opening = runtime_pb2.CreateSessionRequest(
            model_id="random",
            kv_strategy=(
                placement_pb2.KV_STRATEGY_RESTORED if restored else placement_pb2.KV_STRATEGY_FULL
            ),
            sink_tokens=4,
            window_tokens=16,
            restorer=placement_pb2.Restorer(
                kind=(
                    placement_pb2.RESTORER_KIND_ARCHIVE
                    if kind == "archived"
                    else placement_pb2.RESTORER_KIND_IDENTITY
                ),
                quality=(
                    placement_pb2.KV_QUALITY_LOSSLESS if restored else placement_pb2.KV_QUALITY_HIGH
                ),
            ),
            speculation=runtime_pb2.Speculation(mode=calls.OFF),
        )
        session = (await client.stub.CreateSession(opening)).session_id
    elif kind == "drafted":
        session = await client.open(mode=calls.FIXED, proposer="ngram")
    else:
        session = await client.open()
    await client.append(session, PROMPT)
    if kind == "left":
        asked = runtime_pb2.GenerateRequest(session_id=session, max_tokens=4000)
        stream = client.stub.Generate(asked)
        await stream.read()
        stream.cancel()
    else:
        await client.generate(session, 12)
    if kind == "forked":
        fork = await client.stub.ForkSession(runtime_pb2.ForkSessionRequest(session_id=session))
        await client.close(fork.session_id)
    await client.close(session)


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("kind", KINDS)
async def test_closed_sessions_leave_nothing(node: Node, kind: str) -> None:
    client = calls.Caller(node.channel)
    await lived(client, kind)
    before = held()
    for _ in range(SESSIONS):
        await lived(client, kind)
    # The last ones end in turns of the loop that follow.
    left: Counter[str] = Counter()

    def nothing_is_left() -> bool:
        left.clear()
        left.update(held() - before)
        return all(count < SESSIONS // 2 for count in left.values())

    try:
        await calls.until(nothing_is_left)
    except TimeoutError:
        pytest.fail(f"closed sessions left {dict(left)}; tasks wait at {waiting()}")


async def test_what_the_names_stand_for_is_there_while_a_session_lives(node: Node) -> None:
    client = calls.Caller(node.channel)
    session = await client.open()
    await client.append(session, PROMPT)
    assert {"Session", "OpenSession", "SessionRecord", "History", "Pairing"} <= set(held())
    assert await client.close(session) == len(PROMPT)
    with pytest.raises(grpc.aio.AioRpcError):
        await client.info(session)
