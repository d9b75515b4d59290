from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest

import kakeya
from kakeya import AsyncClient, Speculation, StopReason
from kakeya.v1 import placement_pb2, runtime_pb2
from tests.support.patience import PATIENCE_SECONDS
from tests.support.scripted_node import ScriptedNode


async def test_tokens_arrive_in_blocks_and_done_holds_the_end(
    node: ScriptedNode, token_at: Callable[[int], int]
) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        assert await session.append([1, 2, 3]) == 3
        generation = session.generate(10)
        early = generation.done
        blocks = [tokens async for tokens in generation]
        assert [tokens.first_index for tokens in blocks] == [3, 7, 11]
        assert [len(tokens.token_ids) for tokens in blocks] == [4, 4, 2]
        assert blocks[0].drafted_count == 3
        assert early is None
        assert generation.done is not None
        assert generation.done.stop_reason is StopReason.MAX_TOKENS
        assert generation.done.history_length == 13
        assert session.history == (1, 2, 3, *(token_at(i) for i in range(3, 13)))


async def test_ids_and_collect_give_the_same_tokens_as_blocks(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([5])
        ids = [token_id async for token_id in session.generate(6).ids()]
        fork = await session.fork(1)
        completion = await fork.generate(6).collect()
        assert completion.token_ids == tuple(ids) == session.history[1:]
        assert completion.done.generated_token_count == 6


async def test_a_stream_of_many_messages_is_complete_for_a_slow_reader(
    node: ScriptedNode, token_at: Callable[[int], int]
) -> None:
    node.block_size = 1
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([5])
        generation = session.generate(500)
        blocks = aiter(generation)
        first = await anext(blocks)
        # The node is done, every message waits here.
        while not node.streams[0].ended.is_set():
            await session.info()
        rest = [tokens.token_ids[0] async for tokens in blocks]
        assert [*first.token_ids, *rest] == [token_at(i) for i in range(1, 501)]


async def test_the_request_says_what_was_asked_for(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        session = await client.create_session(
            "tiny",
            kv_strategy="full",
            sink_tokens=0,
            window_tokens=8,
            stop_token_ids=[7],
            speculation=Speculation("ngram", node_id="bb", block_size=3),
            client_label="test",
            max_history_tokens=99,
        )
        request = node.requests["CreateSession"][0]
        assert request.kv_strategy == placement_pb2.KV_STRATEGY_FULL
        assert request.HasField("sink_tokens")
        assert request.sink_tokens == 0
        assert request.window_tokens == 8
        assert list(request.stop_token_ids) == [7]
        assert request.speculation == runtime_pb2.Speculation(
            mode=runtime_pb2.SPECULATION_MODE_FIXED,
            proposer_node_id="bb",
            proposer_model_id="ngram",
            block_size=3,
        )
        assert request.client_label == "test"
        assert request.request_id
        assert request.max_history_tokens == 99
        await session.append([1])
        await session.generate(
            2,
            temperature=0.5,
            top_p=0.25,
            top_k=3,
            min_p=0.125,
            repetition_penalty=1.5,
            logit_bias={7: -0.5, 9: float("-inf")},
            seed=0,
            stop_token_ids=[4, 5],
            top_log_probabilities=0,
            deadline_seconds=9,
        ).collect()
        request = node.requests["Generate"][0]
        assert (request.temperature, request.top_p, request.top_k) == (0.5, 0.25, 3)
        assert (request.min_p, request.repetition_penalty) == (0.125, 1.5)
        assert dict(request.logit_bias) == {7: -0.5, 9: float("-inf")}
        assert list(request.stop_token_ids) == [4, 5]
        assert request.HasField("top_log_probabilities")
        assert request.HasField("seed")
        assert request.deadline_seconds == 9


async def test_defaults_leave_windows_to_the_node_and_speculate(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny")
        await client.create_session("tiny", speculation="off", request_id="")
        first, second = node.requests["CreateSession"]
        assert first.kv_strategy == placement_pb2.KV_STRATEGY_UNSPECIFIED
        assert not first.HasField("sink_tokens")
        assert not first.HasField("window_tokens")
        assert first.speculation.mode == runtime_pb2.SPECULATION_MODE_AUTO
        assert second.speculation.mode == runtime_pb2.SPECULATION_MODE_OFF
        assert second.request_id == ""
        await session.append([1])
        await session.generate(1).collect()
        request = node.requests["Generate"][0]
        assert not request.HasField("seed")
        assert not request.HasField("top_log_probabilities")
        assert not request.logit_bias


async def test_the_session_carries_model_and_plan(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        assert session.model.tokenizer_digest == "ab" * 32
        assert session.model.step_costs[0].token_count == 1
        assert session.vocabulary_size == 1000
        assert session.plan.proposer is not None
        assert session.plan.proposer.node_name == "mini-2"
        assert session.plan.transport is kakeya.Transport.GRPC
        assert session.plan.rejections[0].reason is kakeya.RejectionReason.NOT_ALIVE
        assert session.plan.rejections[0].proposer is None
        info = await session.info()
        assert info.kv_strategy is kakeya.KvStrategy.SINK_WINDOW
        assert info.drop_reason is None


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"kv_strategy": "unknown"}, "kv_strategy"),
        ({"window_tokens": True}, "window_tokens"),
        ({"window_tokens": 2.0}, "window_tokens"),
        ({"stop_token_ids": "end"}, "stop_token_ids"),
        ({"tokens": b"text"}, "tokens"),
        ({"tokens": 5}, "tokens"),
        ({"speculation": "always"}, "speculation"),
    ],
)
async def test_values_that_a_request_cannot_carry_are_named(
    node: ScriptedNode, arguments: dict[str, Any], field: str
) -> None:
    async with AsyncClient(node.address) as client:
        with pytest.raises(kakeya.BadRequest, match=rf"^{field} is ") as caught:
            await client.create_session("tiny", **arguments)
    assert caught.value.field == field
    assert not node.requests["CreateSession"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"temperature": float("nan")}, "temperature"),
        ({"deadline_seconds": float("inf")}, "deadline_seconds"),
        ({"seed": 2**64}, "seed"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias"),
        ({"logit_bias": {7: float("inf")}}, "logit_bias[7]"),
        ({"stop_token_ids": [1, -1]}, "stop_token_ids[1]"),
    ],
)
async def test_what_a_generation_cannot_be_asked_for_is_named(
    node: ScriptedNode, arguments: dict[str, Any], field: str
) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        with pytest.raises(kakeya.BadRequest) as caught:
            session.generate(1, **arguments)
    assert caught.value.field == field


async def test_the_clients_name_is_called_the_same_everywhere(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        with pytest.raises(TypeError, match="label"):
            await client.create_session("tiny", label="mine")  # type: ignore[call-arg]


async def test_numbers_of_numpy_are_numbers(node: ScriptedNode) -> None:
    # Not what the annotations say, but what callers have.
    ids: Any = np.array([1, 2], dtype=np.int64)
    temperature: Any = np.float32(0.5)
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", tokens=ids, window_tokens=ids[1])
        assert await session.append(ids) == 4
        await session.generate(ids[0], temperature=temperature).collect()


def test_a_deadline_is_a_number_of_seconds() -> None:
    with pytest.raises(kakeya.BadRequest, match=r"^timeouts\.connect is a number from 0"):
        kakeya.Timeouts(connect=-1)


async def test_log_probabilities_come_with_their_tokens_when_asked_for(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([5])
        blocks = [tokens async for tokens in session.generate(6, top_log_probabilities=2)]
        assert len(blocks) == 2
        for tokens in blocks:
            assert tokens.log_probabilities == tuple(float(-each) for each in tokens.token_ids)
            assert tokens.alternatives == tuple(
                (kakeya.Alternative(each, -each), kakeya.Alternative(each + 1, -each - 1))
                for each in tokens.token_ids
            )
        alone = await session.generate(6, top_log_probabilities=0).collect()
        assert alone.log_probabilities == tuple(float(-each) for each in alone.token_ids)
        assert alone.alternatives == ()
        assert (await session.generate(6).collect()).log_probabilities == ()
        whole = await session.generate(6, top_log_probabilities=1).collect()
        assert [each[0].token_id for each in whole.alternatives] == list(whole.token_ids)


@pytest.mark.parametrize("token_ids", [[-1], [2**32], [1000]])
async def test_a_bad_id_appends_nothing(node: ScriptedNode, token_ids: list[int]) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([1])
        with pytest.raises(kakeya.TokenOutOfVocabulary):
            await session.append(token_ids)
        assert session.history == (1,)
        assert await session.append([2]) == 2


async def test_empty_append_and_empty_history(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        with pytest.raises(kakeya.EmptyAppend):
            await session.append([])
        with pytest.raises(kakeya.EmptyHistory):
            await session.generate(1).collect()
        assert await session.append([1]) == 1


async def test_expected_history_length(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([1], expected_history_length=0)
        with pytest.raises(kakeya.HistoryLengthMismatch):
            await session.append([2], expected_history_length=0)
        await session.append([2], expected_history_length=1)
        assert session.history == (1, 2)
        # Every append says what it stands on, asked or not.
        await session.append([3])
        assert node.requests["AppendTokens"][-1].expected_history_length == 2


async def test_a_long_append_travels_in_pieces(node: ScriptedNode) -> None:
    token_ids = [index % 1000 for index in range(150_000)]
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        assert await session.append(token_ids) == 150_000
        assert len(node.requests["AppendTokens"]) == 3
        assert node.sessions[session.session_id] == token_ids
        assert session.history == tuple(token_ids)


async def test_an_error_in_a_later_piece_leaves_what_was_appended(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        with pytest.raises(kakeya.TokenOutOfVocabulary):
            await session.append([1] * 70_000 + [5000])
        assert session.history_length == len(node.sessions[session.session_id]) == 65_536


async def test_fork_shares_a_prefix_and_lives_alone(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([1, 2, 3])
        fork = await session.fork(2)
        assert fork.history == (1, 2)
        await fork.append([9])
        assert node.sessions[fork.session_id] == [1, 2, 9]
        assert session.history == (1, 2, 3)
        assert (await session.fork()).history == (1, 2, 3)
        for length in (-1, 4):
            with pytest.raises(kakeya.HistoryLengthMismatch):
                await session.fork(length)


async def test_rewind_goes_back_and_closes_what_it_left(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([1, 2, 3])
        left = session.session_id
        await session.rewind(1)
        assert session.history == (1,)
        assert left not in node.sessions
        await session.append([4])
        assert node.sessions[session.session_id] == [1, 4]


async def test_a_second_close_says_that_the_session_is_gone(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny")
        await session.close()
        with pytest.raises(kakeya.SessionNotFound):
            await session.close()


async def test_the_context_manager_closes_and_forgives_an_evicted_session(
    node: ScriptedNode,
) -> None:
    async with AsyncClient(node.address) as client:
        async with await client.create_session("tiny") as session:
            pass
        assert session.session_id not in node.sessions
        async with await client.create_session("tiny") as session:
            node.sessions.clear()
        async with await client.create_session("tiny") as session:
            await session.close()
        async with await client.create_session("tiny"):
            node.refuse("CloseSession", grpc.StatusCode.UNAVAILABLE, reason="GROUP_LOST")
        async with await client.create_session("tiny"):
            await client.close()


async def test_the_context_manager_does_not_hide_the_error_of_its_body(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        with pytest.raises(ZeroDivisionError):
            async with await client.create_session("tiny"):
                await node.stop()
                raise ZeroDivisionError


async def test_sessions_walks_all_pages(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client:
        for _ in range(5):
            await client.create_session("tiny")
        ids = [info.session_id async for info in client.sessions(page_size=2)]
        assert ids == list(node.sessions)
        assert len(node.requests["ListSessions"]) == 3


async def test_a_node_that_does_not_serve_the_model_is_a_gateway(
    node: ScriptedNode, other_node: ScriptedNode
) -> None:
    node.refuse(
        "CreateSession",
        grpc.StatusCode.FAILED_PRECONDITION,
        reason="MODEL_SERVED_ELSEWHERE",
        metadata={"address": other_node.address},
    )
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", client_label="gateway")
        assert session.address == other_node.address
        await session.append([1])
        assert (await session.generate(3).collect()).done.history_length == 4
        assert node.sessions == {}
        assert other_node.requests["CreateSession"][0].client_label == "gateway"


async def test_the_way_elsewhere_is_followed_once(
    node: ScriptedNode, other_node: ScriptedNode
) -> None:
    for here, there in ((node, other_node), (other_node, node)):
        here.refuse(
            "CreateSession",
            grpc.StatusCode.FAILED_PRECONDITION,
            reason="MODEL_SERVED_ELSEWHERE",
            metadata={"address": there.address},
        )
    async with AsyncClient(node.address) as client:
        with pytest.raises(kakeya.ModelServedElsewhere) as caught:
            await client.create_session("tiny")
        assert caught.value.address == node.address
    assert len(node.requests["CreateSession"]) == 1


async def test_tokens_with_a_gap_are_not_taken(node: ScriptedNode) -> None:
    node.skips_position = True
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([1])
        with pytest.raises(kakeya.HistoryLengthMismatch):
            await session.generate(1_000_000).collect()
        assert session.history == (1,)
        assert await asyncio.to_thread(node.streams[0].cancelled.wait, PATIENCE_SECONDS)


async def test_a_stream_without_its_end_is_an_error(node: ScriptedNode) -> None:
    node.ends_without_done = True
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([1])
        with pytest.raises(kakeya.UnexpectedError):
            await session.generate(4).collect()


async def test_a_keyword_that_is_none_is_refused(node: ScriptedNode) -> None:
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        with pytest.raises(TypeError, match="unexpected keyword argument 'temprature'"):
            session.generate(3, temprature=0.5)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="unexpected keyword argument 'kv'"):
            await client.create_session("tiny", kv="restored")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="unexpected keyword argument 'tokens'"):
            await client.fleet.plan("tiny", tokens=[1])  # type: ignore[call-arg]
