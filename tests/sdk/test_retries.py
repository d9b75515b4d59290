from __future__ import annotations

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kakeya
from kakeya import AsyncClient
from kakeya.retries import RetryBudget, pause_seconds
from tests.support.scripted_node import ScriptedNode, join


async def test_an_append_whose_answer_was_lost_is_not_doubled(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([1, 2])
        node.refuse("AppendTokens", grpc.StatusCode.UNAVAILABLE, after=True)
        assert await session.append([3, 4]) == 4
        assert node.sessions[session.session_id] == [1, 2, 3, 4] == list(session.history)
        assert len(node.requests["AppendTokens"]) == 3


async def test_an_append_that_never_arrived_is_sent_again(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        node.refuse("AppendTokens", grpc.StatusCode.UNAVAILABLE)
        node.refuse("AppendTokens", grpc.StatusCode.UNAVAILABLE)
        assert await session.append([1]) == 1
        assert node.sessions[session.session_id] == [1]


async def test_a_lost_append_onto_another_history_is_still_a_mismatch(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([1])
        node.sessions[session.session_id].append(7)
        # One token more, as this append would make it: but nothing was lost.
        with pytest.raises(kakeya.HistoryLengthMismatch):
            await session.append([2])
        node.sessions[session.session_id].append(7)
        node.refuse("AppendTokens", grpc.StatusCode.UNAVAILABLE)
        with pytest.raises(kakeya.HistoryLengthMismatch):
            await session.append([2])
        assert session.history == (1,)


async def test_a_lost_append_after_an_early_leave_continues_what_arrived(
    node: ScriptedNode,
) -> None:
    node.commits_on_cancel = 2
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([1])
        async for _ in session.generate(1_000_000):
            break
        node.refuse("AppendTokens", grpc.StatusCode.UNAVAILABLE)
        # As many tokens as the node may have committed unseen: lengths alone prove nothing.
        await session.append([8, 9])
        assert node.sessions[session.session_id] == list(session.history)
        assert session.history[-2:] == (8, 9)


async def test_a_create_whose_answer_was_lost_opens_one_session(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        await client.fleet.node()
        node.refuse("CreateSession", grpc.StatusCode.UNAVAILABLE, after=True)
        session = await client.create_session("tiny")
        assert list(node.sessions) == [session.session_id]
        assert len({item.request_id for item in node.requests["CreateSession"]}) == 1


async def test_a_create_without_request_id_is_sent_once(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        await client.fleet.node()
        node.refuse("CreateSession", grpc.StatusCode.UNAVAILABLE, after=True)
        with pytest.raises(kakeya.NodeUnreachable):
            await client.create_session("tiny", request_id="")
        assert len(node.requests["CreateSession"]) == 1


async def test_what_is_not_idempotent_is_sent_once(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        await client.create_session("tiny")
        node.refuse("Leave", grpc.StatusCode.UNAVAILABLE)
        with pytest.raises(kakeya.NodeUnreachable):
            await client.fleet.leave()
        assert len(node.requests["Leave"]) == 1


async def test_a_fork_whose_answer_was_lost_makes_one_session(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny")
        await session.append([1, 2, 3])
        node.refuse("ForkSession", grpc.StatusCode.UNAVAILABLE, after=True)
        fork = await session.fork(2)
        assert len(node.requests["ForkSession"]) == 2
        assert set(node.sessions) == {session.session_id, fork.session_id}
        assert node.sessions[fork.session_id] == [1, 2]
        other = await session.fork(2)
        assert other.session_id != fork.session_id


async def test_a_close_whose_answer_was_lost_is_no_error(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny")
        node.refuse("CloseSession", grpc.StatusCode.UNAVAILABLE, after=True)
        await session.close()
        assert len(node.requests["CloseSession"]) == 2
        assert not node.sessions
        with pytest.raises(kakeya.SessionNotFound):
            await session.close()


async def test_a_generation_says_which_history_it_continues(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([1, 2, 3])
        await session.generate(4).collect()
        node.sessions[session.session_id].append(9)
        with pytest.raises(kakeya.HistoryLengthMismatch):
            await session.generate(4).collect()
        expected = [each.expected_history_length for each in node.requests["Generate"]]
        assert expected == [3, 7]


async def test_a_broken_connection_costs_a_session_that_resumes_no_token(
    node: ScriptedNode,
) -> None:
    """To the only node, which is there: it committed tokens behind the connection that broke."""
    join(node)
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", resume=True)
        await session.append([1])
        undisturbed = await client.create_session("tiny")
        await undisturbed.append([1])
        whole = await undisturbed.generate(16).collect()
        node.commits_on_cancel = 3
        node.refuse("Generate", grpc.StatusCode.UNAVAILABLE, after_blocks=2)
        completion = await session.generate(16).collect()
        assert completion.token_ids == whole.token_ids
        assert completion.done.generated_token_count == 16
        assert node.sessions[session.session_id] == list(session.history)
        assert len(node.sessions) == 2, "the session that was lost is closed"
        (resumption,) = session.resumptions
        assert resumption.from_address == resumption.to_address == node.address


STORM = 100


@pytest.mark.parametrize(
    "method", ["AppendTokens", "CloseSession", "ForkSession", "GetSessionInfo"]
)
async def test_a_retry_storm_is_a_tenth_of_the_calls(node: ScriptedNode, method: str) -> None:
    """Row 21 of the fault matrix: a node that refuses everything, and a client that goes on."""
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny")
        await session.append([1])
        node.requests.clear()
        for _ in range(5 * STORM):
            node.refuse(method, grpc.StatusCode.UNAVAILABLE)
        for _ in range(STORM):
            with pytest.raises(kakeya.NodeUnreachable):
                match method:
                    case "AppendTokens":
                        await session.append([1])
                    case "CloseSession":
                        await session.close()
                    case "ForkSession":
                        await session.fork()
                    case "GetSessionInfo":
                        await session.info()
        assert len(node.requests[method]) <= 1.1 * STORM + 10


async def test_sessions_that_resume_do_not_storm_a_fleet_that_refuses_them(
    node: ScriptedNode,
) -> None:
    timeouts = kakeya.Timeouts(resume=0)
    async with AsyncClient(node.address, timeouts=timeouts) as client:
        sessions = [await client.create_session("tiny", resume=True) for _ in range(60)]
        for session in sessions:
            await session.append([1])
        node.requests.clear()
        for method in ("Generate", "GetSessionInfo", "CreateSession", "ForkSession"):
            for _ in range(2000):
                node.refuse(method, grpc.StatusCode.UNAVAILABLE)
        for session in sessions:
            with pytest.raises(kakeya.NodeUnreachable):
                await session.generate(4).collect()
        assert len(node.requests["Generate"]) == 60
        assert not node.requests["CreateSession"], "nobody serves the weights elsewhere"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, "DRAINING"),
        (grpc.StatusCode.INTERNAL, ""),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "OUT_OF_KV_MEMORY"),
    ],
)
async def test_what_a_node_said_is_not_asked_again(
    node: ScriptedNode, code: grpc.StatusCode, reason: str
) -> None:
    async with AsyncClient(node.address) as client:
        await client.fleet.node()
        node.refuse("CreateSession", code, reason=reason)
        with pytest.raises(kakeya.KakeyaError):
            await client.create_session("tiny")
        assert len(node.requests["CreateSession"]) == 1


async def test_a_sick_node_gets_few_retries(node: ScriptedNode) -> None:
    calls = 60
    async with AsyncClient(node.address) as client:
        await client.fleet.node()
        node.requests.clear()
        for _ in range(20 * calls):
            node.refuse("GetNode", grpc.StatusCode.UNAVAILABLE)
        attempts = 0
        for _ in range(calls):
            with pytest.raises(kakeya.NodeUnreachable) as caught:
                await client.fleet.node()
            attempts += caught.value.attempts
        assert attempts == len(node.requests["GetNode"]) <= 1.1 * calls + 10


def test_a_thousand_calls_that_all_fail_are_1100_attempts_at_most() -> None:
    budget, attempts = RetryBudget(), 0
    for _ in range(1000):
        budget.earn()
        attempts += 1
        while budget.spend():
            attempts += 1
    assert 1090 <= attempts <= 1100


@given(st.lists(st.booleans(), max_size=300))
def test_the_budget_bounds_retries_to_a_share_of_the_calls(steps: list[bool]) -> None:
    budget = RetryBudget(capacity=3.0, earned_per_call=0.25)
    calls = retries = 0
    for is_call in steps:
        if is_call:
            calls += 1
            budget.earn()
        else:
            retries += budget.spend()
        assert retries <= 3 + 0.25 * calls


@given(st.integers(0, 1000), st.floats(0, 1))
def test_pauses_grow_to_two_seconds(retry: int, chance: float) -> None:
    assert 0 <= pause_seconds(retry, chance) <= 2
    assert pause_seconds(retry, 1.0) <= pause_seconds(retry + 1, 1.0)
    assert pause_seconds(0, 1.0) == 0.1
