"""Sessions that outlive their node."""

from __future__ import annotations

import asyncio

import grpc
import pytest

import kakeya
from kakeya import AsyncClient, Client, Speculation, StopReason, Timeouts
from kakeya.options import SessionOptions
from kakeya.v1 import placement_pb2, runtime_pb2
from tests.sdk.conftest import Pair
from tests.support import scripted_node as scripted
from tests.support.patience import PATIENCE_SECONDS
from tests.support.scripted_answers import next_token
from tests.support.scripted_node import ScriptedNode

Code = grpc.StatusCode
DRAINING = runtime_pb2.STOP_REASON_DRAINING


def stream(start: int, count: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(next_token(position, seed) for position in range(start, start + count))


def refused(
    node: ScriptedNode, method: str, code: Code = Code.UNAVAILABLE, **refusal: object
) -> None:
    node.refuse(method, code, **refusal)


# The refusal's code and reason, and the reason of the resumption.
LOSSES = {
    "unreachable": (Code.UNAVAILABLE, "", "NODE_UNREACHABLE"),
    "deadline": (Code.DEADLINE_EXCEEDED, "", "DEADLINE_EXCEEDED"),
    "cancelled": (Code.CANCELLED, "", "CANCELLED"),
    "internal": (Code.INTERNAL, "", "UNEXPECTED_ERROR"),
    "draining": (Code.UNAVAILABLE, "DRAINING", "DRAINING"),
    "group": (Code.UNAVAILABLE, "GROUP_LOST", "GROUP_LOST"),
}


@pytest.mark.parametrize("blocks", [0, 1, 2])
@pytest.mark.parametrize("loss", sorted(LOSSES))
async def test_a_generation_goes_on_as_the_same_stream(pair: Pair, loss: str, blocks: int) -> None:
    node, other = pair
    code, told, reason = LOSSES[loss]
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", resume=True)
        await session.append([1, 2, 3])
        refused(node, "Generate", code, reason=told, after_blocks=blocks)
        generation = session.generate(10)
        taken = [tokens async for tokens in generation]
        assert tuple(each for tokens in taken for each in tokens.token_ids) == stream(3, 10)
        assert [tokens.first_index for tokens in taken[: blocks + 1]] == [3, 7, 11][: blocks + 1]
        assert generation.done is not None
        assert generation.done.stop_reason is StopReason.MAX_TOKENS
        assert (generation.done.generated_token_count, generation.done.history_length) == (10, 13)
        (resumption,) = session.resumptions
        assert (resumption.from_address, resumption.to_address) == (node.address, other.address)
        assert (resumption.reason, resumption.history_length) == (reason, 3 + 4 * blocks)
        assert resumption.seconds > 0
        assert session.address == other.address
        assert other.requests["Generate"][0].max_tokens == 10 - 4 * blocks
        # And it stays there.
        assert await session.append([5]) == 14
        assert other.sessions[session.session_id] == list(session.history)


async def test_a_node_that_stops_for_draining_hands_over(pair: Pair) -> None:
    node, other = pair
    node.ends_after, node.done.stop_reason = 6, DRAINING
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", resume=True)
        await session.append([1])
        completion = await session.generate(10).collect()
        assert completion.token_ids == stream(1, 10)
        assert completion.done.generated_token_count == 10
        assert [each.reason for each in session.resumptions] == ["DRAINING"]
        assert other.requests["Generate"][0].max_tokens == 4


async def test_without_the_option_nothing_is_resumed(pair: Pair) -> None:
    node, other = pair
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny")
        await session.append([1])
        refused(node, "Generate", after_blocks=1)
        with pytest.raises(kakeya.NodeUnreachable):
            await session.generate(10).collect()
        node.ends_after, node.done.stop_reason = 2, DRAINING
        completion = await session.generate(10).collect()
        assert completion.done.stop_reason is StopReason.DRAINING
        refused(node, "AppendTokens", reason="DRAINING")
        with pytest.raises(kakeya.Draining):
            await session.append([1])
        assert session.resumptions == ()
        assert not other.requests
        assert not node.requests["WatchFleet"]


async def test_a_silent_node_is_given_up(pair: Pair) -> None:
    node, _other = pair
    node.silent_after = 1
    # The other one is not given up, however late a busy machine lets it go on.
    async with AsyncClient(node.address, timeouts=Timeouts(stream_idle=2.0)) as client:
        session = await client.create_session("tiny", resume=True)
        await session.append([1])
        completion = await session.generate(6).collect()
        assert completion.token_ids == stream(1, 6)
        assert session.resumptions[0].reason == "DEADLINE_EXCEEDED"
        assert await asyncio.to_thread(node.streams[0].cancelled.wait, PATIENCE_SECONDS)


async def test_the_gateway_may_be_what_is_lost(pair: Pair) -> None:
    node, other = pair
    node.silent_after = 1
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", resume=True)
        await session.append([1])
        iterator = aiter(session.generate(12))
        await anext(iterator)
        await node.stop()
        rest = [each async for tokens in iterator for each in tokens.token_ids]
        assert tuple(rest) == stream(5, 8)
        assert session.address == other.address
        assert (await session.fork()).address == other.address


@pytest.mark.parametrize("loss", sorted(LOSSES))
async def test_an_append_is_made_elsewhere(pair: Pair, loss: str) -> None:
    node, other = pair
    code, told, reason = LOSSES[loss]
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", resume=True)
        await session.append([1, 2])
        # As often as an idempotent call is sent.
        for _ in range(5):
            refused(node, "AppendTokens", code, reason=told)
        assert await session.append([3]) == 3
        assert other.sessions[session.session_id] == [1, 2, 3]
        assert session.resumptions[0].reason == reason
        assert session.resumptions[0].history_length == 2


async def test_a_long_append_loses_its_node_midway(pair: Pair) -> None:
    node, other = pair
    token_ids = [index % 1000 for index in range(150_000)]
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", resume=True)
        await session.append([7])
        node.refuse("AppendTokens", Code.UNAVAILABLE, reason="DRAINING", after=True, skip=1)
        assert await session.append(token_ids) == 150_001
        assert other.sessions[session.session_id] == [7, *token_ids]
        assert [each.history_length for each in session.resumptions] == [65_537]


async def test_a_rewind_and_an_early_leave_survive(pair: Pair) -> None:
    node, other = pair
    node.commits_on_cancel = 3
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", resume=True)
        await session.append([1, 2, 3])
        async for _ in session.generate(1_000_000):
            break
        await node.stop()
        assert await session.append([9]) == 8
        assert other.sessions[session.session_id] == list(session.history)
        await session.rewind(2)
        assert session.history == (1, 2)


async def test_wrong_weights_are_refused_even_when_the_card_lies(pair: Pair) -> None:
    node, other = pair
    other.model.weights_digest = "ee" * 32
    scripted.join(node, other)
    async with AsyncClient(node.address, timeouts=Timeouts(resume=0)) as client:
        session = await client.create_session("tiny", resume=True)
        await session.append([1])
        refused(node, "Generate", after_blocks=1)
        with pytest.raises(kakeya.NodeUnreachable) as caught:
            await session.generate(10).collect()
        assert caught.value.metadata["resumption_reason"] == "NO_PLACEMENT"
        assert not other.requests["CreateSession"]
        # A card of yesterday: the node says itself what it serves now.
        honest, other.model.weights_digest = other.model.weights_digest, "cd" * 32
        scripted.join(node, other)
        other.model.weights_digest = honest
        refused(node, "Generate")
        with pytest.raises(kakeya.NodeUnreachable) as caught:
            await session.generate(10).collect()
        assert "other weights" in caught.value.metadata["resumption_failure"]
        assert "no other node could go on" in caught.value.__notes__[0]
        assert not other.sessions
        assert session.address == node.address


async def test_nobody_left_is_the_first_error_and_says_so(pair: Pair) -> None:
    node, other = pair
    node.fleet_events = other.fleet_events = [scripted.fleet_of(node, other, dead=(other,))]
    async with AsyncClient(node.address, timeouts=Timeouts(resume=0)) as client:
        session = await client.create_session("tiny", resume=True)
        await session.append([1])
        refused(node, "Generate", reason="DRAINING")
        with pytest.raises(kakeya.Draining) as caught:
            await session.generate(10).collect()
        assert caught.value.metadata["resumption_reason"] == "NO_PLACEMENT"
        assert session.resumptions == ()
        with pytest.raises(kakeya.NoPlacement, match="second verifier"):
            await session.resume()
        # Nothing is broken: the session is where it was.
        assert (await session.generate(3).collect()).done.history_length == 4


async def test_the_next_candidate_is_tried(pair: Pair) -> None:
    node, other = pair
    third = scripted.ScriptedNode("mini-3", "cc")
    await third.start()
    scripted.join(node, other, third)
    refused(other, "CreateSession", code=Code.RESOURCE_EXHAUSTED, reason="OUT_OF_KV_MEMORY")
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", resume=True)
        await session.append([1])
        refused(node, "Generate", after_blocks=1)
        assert (await session.generate(10).collect()).token_ids == stream(1, 10)
        assert session.address == third.address
        # It dies too.
        scripted.join(other, third)
        node.fleet_events = other.fleet_events
        refused(third, "Generate", after_blocks=1)
        assert (await session.generate(10).collect()).token_ids == stream(11, 10)
        assert [each.to_address for each in session.resumptions] == [third.address, other.address]
    await third.stop()


async def test_a_candidate_that_fails_to_append_is_closed(pair: Pair) -> None:
    node, other = pair
    other.takes_first_tokens = False
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", resume=True)
        await session.append([1])
        refused(node, "Generate")
        refused(other, "AppendTokens", code=Code.OUT_OF_RANGE, reason="CONTEXT_EXCEEDED")
        with pytest.raises(kakeya.NodeUnreachable) as caught:
            await session.generate(1).collect()
        assert caught.value.metadata["resumption_reason"] == "CONTEXT_EXCEEDED"
        assert not other.sessions


@pytest.mark.parametrize(
    ("had", "nearest", "alike"),
    [
        ({"backend": "mlx"}, {"backend": "torch"}, {"backend": "mlx"}),
        ({"thread_count": 1}, {"thread_count": 2}, {"thread_count": 1}),
        ({"arithmetic": "torch 2"}, {"arithmetic": "torch 3"}, {"arithmetic": "torch 2"}),
        (
            {"arithmetic": "torch 2", "thread_count": 1},
            {"arithmetic": "torch 3", "thread_count": 1},
            {"arithmetic": "torch 2", "thread_count": 2},
        ),
        # As many threads are worth less than the same number format.
        (
            {"thread_count": 1, "dtype": "float32"},
            {"thread_count": 1, "dtype": "bfloat16"},
            {"thread_count": 2, "dtype": "float32"},
        ),
    ],
    ids=["back end", "threads", "arithmetic", "arithmetic before threads", "format before threads"],
)
async def test_those_that_compute_alike_come_first(
    pair: Pair, had: dict[str, object], nearest: dict[str, object], alike: dict[str, object]
) -> None:
    node, other = pair
    third = scripted.ScriptedNode("mini-3", "cc")
    for each, fields in ((node, had), (other, nearest), (third, alike)):
        for name, value in fields.items():
            setattr(each.model, name, value)
    await third.start()
    scripted.join(node, other, third)
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", resume=True)
        await session.append([1])
        refused(node, "Generate")
        await session.generate(1).collect()
        assert session.address == third.address
    await third.stop()


async def test_the_same_sampled_stream_goes_on(pair: Pair) -> None:
    node, other = pair
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", resume=True)
        await session.append([1])
        refused(node, "Generate", after_blocks=1)
        completion = await session.generate(
            10, temperature=0.5, top_k=3, logit_bias={4: 1.0}, top_log_probabilities=1
        ).collect()
        seed = node.requests["Generate"][0].seed
        assert node.requests["Generate"][0].HasField("seed")
        assert completion.token_ids == stream(1, 10, seed)
        assert completion.done.seed == seed
        assert len(completion.log_probabilities) == len(completion.alternatives) == 10
        there = other.requests["Generate"][0]
        assert (there.seed, there.temperature, there.top_k) == (seed, 0.5, 3)
        assert dict(there.logit_bias) == {4: 1.0}
        await session.generate(1, temperature=0.5, seed=9).collect()
        await session.generate(1).collect()
        assert other.requests["Generate"][1].seed == 9
        assert not other.requests["Generate"][2].HasField("seed")


async def test_time_counts_from_the_first_request(pair: Pair) -> None:
    node, other = pair
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", resume=True)
        await session.append([1])
        refused(node, "Generate", after_blocks=1)
        await session.generate(10, deadline_seconds=60).collect()
        assert 0 < other.requests["Generate"][0].deadline_seconds < 60
        other.silent_after = 1
        # Long enough for the first tokens on a busy machine.
        iterator = aiter(session.generate(10, deadline_seconds=2.0))
        await anext(iterator)
        await asyncio.sleep(2.0)
        await other.stop()
        assert [tokens async for tokens in iterator] == []


@pytest.mark.parametrize(
    ("stop_token_ids", "max_tokens", "reason"),
    [((), 4, StopReason.MAX_TOKENS), ((31,), 10, StopReason.STOP_TOKEN)],
)
async def test_an_end_that_was_lost_is_known_here(
    pair: Pair, stop_token_ids: tuple[int, ...], max_tokens: int, reason: StopReason
) -> None:
    node, other = pair
    node.ends_after = 8
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", stop_token_ids=stop_token_ids, resume=True)
        await session.append([1])
        # The last token is 31; the node dies before it says that this was the end.
        refused(node, "Generate", after_blocks=1)
        completion = await session.generate(max_tokens).collect()
        assert completion.token_ids == (10, 17, 24, 31)
        assert completion.done.stop_reason is reason
        assert (completion.done.generated_token_count, completion.done.history_length) == (4, 5)
        assert not other.requests["Generate"]


async def test_what_the_session_was_asked_for_is_asked_for_again(pair: Pair) -> None:
    node, other = pair
    asked: SessionOptions = {
        "kv_strategy": "restored",
        "sink_tokens": 2,
        "window_tokens": 8,
        "stop_token_ids": [7],
        "client_label": "agent",
        "restorer": "projection",
        "restorer_model": "tiny-dflash",
        "restorer_node_id": "cc",
        "speculation": Speculation("ngram", node_id="dd", block_size=3),
        "resume": True,
    }
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", **asked)
        await session.append([1])
        refused(node, "Generate")
        await session.generate(1).collect()
    first, second = node.requests["CreateSession"][0], other.requests["CreateSession"][0]
    assert first.request_id != second.request_id
    assert second.initial_token_ids == [1]
    second.request_id = first.request_id
    del second.initial_token_ids[:]
    assert first == second


async def test_named_helpers_that_are_lost_too_give_way(pair: Pair) -> None:
    node, other = pair
    async with AsyncClient(node.address) as client:
        session = await client.create_session(
            "tiny",
            kv_strategy="restored",
            restorer_node_id="cc",
            speculation=Speculation("ngram", node_id="dd"),
            resume=True,
        )
        await session.append([1])
        refused(node, "Generate")
        for code, reason in (
            (Code.FAILED_PRECONDITION, "NO_PLACEMENT"),
            (Code.FAILED_PRECONDITION, "NO_ARCHIVE"),
            (Code.FAILED_PRECONDITION, "NO_PLACEMENT"),
        ):
            other.refuse("CreateSession", code, reason=reason)
        await session.generate(1).collect()
    asked = other.requests["CreateSession"]
    assert [each.speculation.proposer_node_id for each in asked] == ["dd", "", "", ""]
    assert [each.speculation.proposer_model_id for each in asked] == ["ngram"] * 3 + [""]
    assert [each.restorer.node_id for each in asked] == ["cc", "cc", "", ""]
    # Without its restorer the stream would be another.
    assert asked[-1].kv_strategy == placement_pb2.KV_STRATEGY_RESTORED
    assert len({each.request_id for each in asked}) == 4


async def test_a_session_moves_when_it_is_asked_to(pair: Pair) -> None:
    node, other = pair
    async with AsyncClient(node.address) as client, await client.create_session("tiny") as session:
        await session.append([1, 2])
        await session.resume()
        assert (session.address, session.resumptions[0].reason) == (other.address, "ASKED")
        assert not node.sessions
        assert other.sessions[session.session_id] == [1, 2]
        await session.resume()
        assert session.address == node.address
        iterator = aiter(session.generate(1_000_000))
        await anext(iterator)
        with pytest.raises(kakeya.SessionBusy):
            await session.resume()


async def test_other_errors_and_a_left_generation_move_nothing(pair: Pair) -> None:
    node, other = pair
    async with AsyncClient(node.address) as client:
        session = await client.create_session("tiny", resume=True)
        await session.append([1])
        with pytest.raises(kakeya.TokenOutOfVocabulary):
            await session.append([5000])
        refused(node, "Generate", code=Code.FAILED_PRECONDITION, reason="INVARIANT_VIOLATED")
        with pytest.raises(kakeya.InvariantViolated):
            await session.generate(1).collect()
        async with session.generate(1_000_000) as generation:
            async for _ in generation:
                break
        assert await asyncio.to_thread(node.streams[0].cancelled.wait, PATIENCE_SECONDS)
        await session.close()
        assert not other.requests["CreateSession"]
        assert session.resumptions == ()


def test_the_synchronous_session_resumes_too(threaded_node: ScriptedNode) -> None:
    with Client(threaded_node.address) as client:
        session = client.create_session("tiny", resume=True)
        session.append([1])
        assert session.resumptions == ()
        with pytest.raises(kakeya.NoPlacement):
            session.resume()
