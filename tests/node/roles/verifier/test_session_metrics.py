"""What sessions leave in the metrics, on a real node."""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio

from kakeya.v1 import runtime_pb2
from tests.support import calls
from tests.support import neighbourhood as nodes

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [index * 11 % 96 for index in range(30)]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def node(neighbourhood: nodes.Neighbourhood, checkpoint: Path) -> nodes.Node:
    """A node that serves both roles itself."""
    return await neighbourhood.start("both", f"verifier={checkpoint}", "proposer=ngram")


@pytest.fixture
def client(node: nodes.Node) -> calls.Caller:
    return calls.Caller(node.channel)


async def speculating(client: calls.Caller) -> str:
    """A session that drafts with the node's own proposer."""
    session = await client.open(mode=calls.FIXED, proposer="ngram", proposer_node="both")
    await client.append(session, PROMPT)
    return session


async def test_a_whole_life_is_counted_once(node: nodes.Node, client: calls.Caller) -> None:
    names = {
        "opened": "kakeya_sessions_opened_total",
        "prefilled": "kakeya_tokens_prefilled_total",
        "generated": "kakeya_tokens_generated_total",
        "drafts": "kakeya_spec_decode_num_drafts_total",
        "drafted": "kakeya_spec_decode_num_draft_tokens_total",
        "tried": "kakeya_spec_decode_num_tried_tokens_total",
        "accepted": "kakeya_spec_decode_num_accepted_tokens_total",
        "forwards": "kakeya_verify_seconds_count",
        "draft_times": "kakeya_draft_seconds_count",
        "wire_times": "kakeya_draft_wire_seconds_count",
        "wait_times": "kakeya_draft_wait_seconds_count",
        "lengths": "kakeya_acceptance_length_count",
        "length": "kakeya_acceptance_length_sum",
        "first": "kakeya_time_to_first_token_seconds_count",
        "between": "kakeya_inter_token_seconds_count",
        "queued": "kakeya_generation_queue_seconds_count",
        "histories": "kakeya_session_history_tokens_count",
        "history": "kakeya_session_history_tokens_sum",
        "prefills": "kakeya_prefill_tokens_count",
        "prefill": "kakeya_prefill_tokens_sum",
        "prefill_times": "kakeya_prefill_duration_seconds_count",
        "prefill_time": "kakeya_prefill_duration_seconds_sum",
        "prefill_seconds": "kakeya_prefill_seconds_total",
        "continued": "kakeya_generation_history_tokens_count",
        "continued_tokens": "kakeya_generation_history_tokens_sum",
    }
    before = {key: node.metric(name) for key, name in names.items()}
    ended = node.metric("kakeya_generations_total", end="max_tokens")
    closed = node.metric("kakeya_sessions_total", outcome="closed")

    session = await speculating(client)
    assert node.metric("kakeya_sessions_active") == 1
    assert node.metric("kakeya_history_tokens") == len(PROMPT)
    assert node.metric("kakeya_kv_bytes") > 0
    done = (await client.generate(session, 120)).done
    assert node.metric("kakeya_sessions_generating") == 0
    assert node.metric("kakeya_history_tokens") == len(PROMPT) + 120
    await client.close(session)

    await calls.until(lambda: node.metric("kakeya_sessions_active") == 0)
    grown = {key: node.metric(name) - before[key] for key, name in names.items()}
    speculation = done.speculation
    assert grown["opened"] == grown["lengths"] == grown["first"] == grown["queued"] == 1
    assert grown["histories"] == 1
    assert grown["history"] == len(PROMPT) + 120
    # The last token of a history is computed with the block behind it.
    assert grown["prefilled"] == len(PROMPT) - 1
    # One append, in as many forwards as it took; the generation found all computed.
    assert grown["prefills"] == grown["prefill_times"] == 1
    assert grown["prefill"] == grown["prefilled"]
    assert grown["prefill_time"] == pytest.approx(grown["prefill_seconds"])
    assert (grown["continued"], grown["continued_tokens"]) == (1, len(PROMPT))
    assert grown["generated"] == 120
    assert grown["forwards"] == speculation.verify_forward_count
    assert grown["drafts"] == speculation.block_count > 0
    assert grown["drafted"] == speculation.drafted_count
    assert grown["accepted"] == speculation.accepted_count
    assert grown["accepted"] <= grown["tried"] <= grown["drafted"]
    assert grown["draft_times"] == grown["wire_times"] == grown["wait_times"] == grown["drafts"]
    assert grown["length"] == pytest.approx(speculation.acceptance_length)
    assert 0 < grown["between"] < 120, "the first message's tokens have none before them"
    assert node.metric("kakeya_prefill_seconds_total") > 0
    assert node.metric("kakeya_generations_total", end="max_tokens") == ended + 1
    assert node.metric("kakeya_sessions_total", outcome="closed") == closed + 1
    assert node.metric("kakeya_history_tokens") == 0


async def test_a_generation_that_is_left_is_told_apart(
    node: nodes.Node, client: calls.Caller
) -> None:
    left = node.metric("kakeya_generations_total", end="left")
    session = await client.open()
    await client.append(session, PROMPT)
    call = client.stub.Generate(
        runtime_pb2.GenerateRequest(session_id=session, max_tokens=4000), timeout=60
    )
    await call.read()
    assert node.metric("kakeya_sessions_generating") == 1
    call.cancel()
    await calls.until(lambda: node.metric("kakeya_sessions_generating") == 0)
    assert node.metric("kakeya_generations_total", end="left") == left + 1
    await client.close(session)


async def test_sessions_that_end_with_their_node_were_drained(
    neighbourhood: nodes.Neighbourhood, checkpoint: Path
) -> None:
    node = await neighbourhood.start("leaving", f"verifier={checkpoint}")
    await calls.Caller(node.channel).open()
    await node.stop()
    assert node.metric("kakeya_sessions_total", outcome="drained") == 1
    assert node.metric("kakeya_sessions_active") == 0
