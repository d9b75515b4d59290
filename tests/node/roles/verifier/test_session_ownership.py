"""A session is its caller's own: to everybody else it does not exist."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from kakeya.v1 import runtime_pb2
from tests.support import calls
from tests.support.neighbourhood import Neighbourhood, Node
from tests.support.patience import PATIENCE_SECONDS
from tests.support.posing import Posing

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [index * 7 % 96 for index in range(15)]
NEVER = "0" * 32


class As:
    """Calls on a node as somebody; as a program of its own machine without a name."""

    def __init__(self, node: Node, name: str = "") -> None:
        self.stub = calls.Caller(node.channel).stub
        self._metadata = (("caller", name),) if name else ()

    def call(self, method: str, request: Any) -> Any:
        return getattr(self.stub, method)(
            request, metadata=self._metadata, timeout=PATIENCE_SECONDS
        )

    async def open(self, **fields: Any) -> str:
        request = runtime_pb2.CreateSessionRequest(
            model_id="random", sink_tokens=4, window_tokens=32, **fields
        )
        return str((await self.call("CreateSession", request)).session_id)

    async def listed(self) -> set[str]:
        answer = await self.call("ListSessions", runtime_pb2.ListSessionsRequest())
        return {each.session_id for each in answer.sessions}

    async def status(self, method: str, request: Any) -> tuple[object, ...]:
        """All that a call which must fail tells, byte for byte."""
        call = self.call(method, request)
        try:
            if hasattr(call, "__aiter__"):
                await anext(aiter(call))
            else:
                await call
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details(), tuple(error.trailing_metadata() or ())
        raise AssertionError(f"{method} succeeded")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def node(neighbourhood: Neighbourhood, checkpoint: Path) -> Node:
    return await neighbourhood.start("owned", f"verifier={checkpoint}", interceptors=[Posing()])


OPERATIONS: dict[str, Callable[[str], Any]] = {
    "AppendTokens": lambda of: runtime_pb2.AppendTokensRequest(session_id=of, token_ids=[1]),
    "Generate": lambda of: runtime_pb2.GenerateRequest(session_id=of, max_tokens=1),
    "GetSessionInfo": lambda of: runtime_pb2.GetSessionInfoRequest(session_id=of),
    "CloseSession": lambda of: runtime_pb2.CloseSessionRequest(session_id=of),
    "ForkSession": lambda of: runtime_pb2.ForkSessionRequest(session_id=of),
}


@pytest.mark.parametrize("method", OPERATIONS)
@pytest.mark.parametrize("is_over", [False, True], ids=["live", "closed"])
async def test_what_is_anothers_is_told_of_as_what_never_was(
    node: Node, method: str, *, is_over: bool
) -> None:
    owner, stranger = As(node, "a"), As(node, "b")
    session = await owner.open(initial_token_ids=PROMPT)
    if is_over:
        await owner.call("CloseSession", runtime_pb2.CloseSessionRequest(session_id=session))
    told = await stranger.status(method, OPERATIONS[method](session))
    never = await stranger.status(method, OPERATIONS[method](NEVER))
    assert repr(told).replace(session, NEVER) == repr(never)
    assert "SESSION_NOT_FOUND" in repr(told)
    if is_over:
        assert "was closed" in repr(await owner.status(method, OPERATIONS[method](session)))
    else:
        assert session in await owner.listed()
        await owner.call("CloseSession", runtime_pb2.CloseSessionRequest(session_id=session))


async def test_a_stranger_who_forks_at_each_length_reads_nothing_of_a_prompt(node: Node) -> None:
    owner, stranger = As(node, "a"), As(node, "b")
    session = await owner.open(initial_token_ids=PROMPT)

    def forking(length: int) -> runtime_pb2.ForkSessionRequest:
        return runtime_pb2.ForkSessionRequest(session_id=session, history_length=length)

    answers = {
        await stranger.status("ForkSession", forking(length)) for length in range(len(PROMPT) + 2)
    }
    # Not even how long it is: the owner is told of a length beyond the end.
    assert len(answers) == 1
    (told,) = answers
    assert told[0] is grpc.StatusCode.NOT_FOUND
    assert (await owner.status("ForkSession", forking(16)))[0] is grpc.StatusCode.OUT_OF_RANGE
    fork = await owner.call("ForkSession", forking(7))
    assert fork.history_length == 7
    # A fork is its maker's, too.
    assert fork.session_id not in await stranger.listed()
    for each in (session, fork.session_id):
        await owner.call("CloseSession", runtime_pb2.CloseSessionRequest(session_id=each))


async def test_a_request_id_opens_a_session_for_each_who_asks_with_it(node: Node) -> None:
    owner, stranger = As(node, "a"), As(node, "b")
    mine = await owner.open(request_id="again", initial_token_ids=PROMPT)
    theirs = await stranger.open(request_id="again")
    assert mine != theirs
    assert await owner.open(request_id="again", initial_token_ids=PROMPT) == mine
    assert await stranger.open(request_id="again") == theirs
    # Nor is somebody told that the id stands for another kind of session of another's.
    assert await As(node, "c").open(request_id="again", stop_token_ids=[3]) not in (mine, theirs)


async def test_lists_and_watches_have_the_callers_own_and_for_the_machines_people_all(
    node: Node,
) -> None:
    owner, stranger, people = As(node, "a"), As(node, "b"), As(node)
    before = await owner.open(initial_token_ids=PROMPT)
    assert before in await owner.listed()
    assert before in await people.listed()
    assert before not in await stranger.listed()
    # Who sees that a session is there has no more of it than a stranger.
    request = runtime_pb2.AppendTokensRequest(session_id=before, token_ids=[1])
    assert (await people.status("AppendTokens", request))[0] is grpc.StatusCode.NOT_FOUND

    watches = [
        each.call("WatchSessions", runtime_pb2.WatchSessionsRequest())
        for each in (owner, stranger, people)
    ]
    snapshots = [(await anext(aiter(each))).snapshot.sessions for each in watches]
    seen = [{each.session.session_id for each in snapshot} for snapshot in snapshots]
    assert [before in each for each in seen] == [True, False, True]
    during = await owner.open()
    for session in (before, during):
        await owner.call("CloseSession", runtime_pb2.CloseSessionRequest(session_id=session))
    # The stranger's own is the first that it hears of.
    own = await stranger.open()
    told = await asyncio.wait_for(anext(aiter(watches[1])), PATIENCE_SECONDS)
    assert told.changed.session.session_id == own
    for watch in (watches[0], watches[2]):
        ended: set[str] = set()
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for message in watch:
                ended.add(message.ended.session_id)
                if {before, during} <= ended:
                    break
    for watch in watches:
        watch.cancel()


async def test_programs_of_one_machine_share_their_sessions(node: Node) -> None:
    """Nothing tells them apart: whichever loopback address they call from."""
    here = As(node)
    session = await here.open(initial_token_ids=PROMPT)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{node.port}") as channel:
        assert (await calls.Caller(channel).info(session)).history_length == len(PROMPT)
    await here.call("CloseSession", runtime_pb2.CloseSessionRequest(session_id=session))
