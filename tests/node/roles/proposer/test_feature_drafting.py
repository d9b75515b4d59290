"""A DFlash proposer on another node: context vectors over the wire, tokens untouched.

What goes wrong with the vectors is done to them on their way, at the verifier's
end of the link: the proposer's node is the real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from kakeya.v1 import runtime_pb2
from kakeya_fleet.engine.contracts.features import ContextVectors
from kakeya_fleet.engine.speculation import breaker, pace
from kakeya_fleet.fleet.placement.plan import Placement, Trial
from kakeya_fleet.node.links.features.feature_sender import FeatureStream
from kakeya_fleet.node.watch.event_log import EventKind
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support.late_vectors import wait_for_vectors
from tests.support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [index * 5 % 96 for index in range(50)]
TOKENS = 40
SAMPLED: dict[str, float] = {"temperature": 0.9, "seed": 21}
FEATURES = runtime_pb2.DROP_REASON_FEATURES
send = FeatureStream.send


Alone = Callable[..., Awaitable[list[int]]]
Send = Callable[[FeatureStream, int, ContextVectors], None]


@pytest.fixture(scope="module")
def drafter(checkpoint: Path, random_drafter: Callable[..., Path]) -> Path:
    return random_drafter(checkpoint, "drafter")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def proposer(neighbourhood: nodes.Neighbourhood, drafter: Path) -> nodes.Node:
    return await neighbourhood.start("drafting", f"proposer={drafter}")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def alone(verifier: nodes.Node) -> Alone:
    """The verifier's own stream: (tokens, prompt, **sampling)."""
    client = calls.Caller(verifier.channel)
    known: dict[tuple[object, ...], list[int]] = {}

    async def stream(
        tokens: int = TOKENS, prompt: Sequence[int] = PROMPT, **sampling: Any
    ) -> list[int]:
        key = (tokens, tuple(prompt), tuple(sampling.items()))
        if key not in known:
            session = await client.open()
            await client.append(session, prompt)
            known[key] = (await client.generate(session, tokens, **sampling)).token_ids
        return known[key]

    return stream


async def paired(
    client: calls.Caller, node_id: str = "drafting", prompt: Sequence[int] = PROMPT
) -> str:
    """A session that is fixed to the drafter of a node."""
    session = await client.open(
        mode=runtime_pb2.SPECULATION_MODE_FIXED, proposer="drafter", proposer_node=node_id
    )
    await client.append(session, prompt)
    return session


@pytest.fixture
def vectors_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is late because the machine is busy."""
    wait_for_vectors(monkeypatch)


def faults_of(stream: calls.Stream) -> dict[runtime_pb2.DropReason.ValueType, int]:
    return {fault.reason: fault.count for fault in stream.done.speculation.faults}


@pytest.mark.usefixtures("vectors_in_time")
async def test_remote_drafts_never_change_the_stream(
    client: calls.Caller, proposer: nodes.Node, alone: Alone
) -> None:
    session = await paired(client)
    stream = await client.generate(session, TOKENS, **SAMPLED)
    assert stream.token_ids == await alone(**SAMPLED)
    statistics = stream.done.speculation
    assert statistics.faults == []
    assert statistics.block_count > TOKENS / 16
    assert statistics.ahead_hit_count == statistics.ahead_miss_count == 0
    assert proposer.metric("kakeya_link_bytes_total") > 0


async def test_each_vector_travels_once_and_a_closed_session_leaves_no_link(
    client: calls.Caller, proposer: nodes.Node
) -> None:
    before = proposer.metric("kakeya_link_bytes_total")
    session = await paired(client)
    for _ in range(3):
        await client.generate(session, 20)
    # Two bytes a value, 32 values a position; the last token is not forwarded yet.
    sent = proposer.metric("kakeya_link_bytes_total") - before
    assert (len(PROMPT) - 1) * 64 < sent <= (len(PROMPT) + 60) * 64
    links = proposer.metric("kakeya_links_active")
    await client.close(session)
    await calls.until(lambda: proposer.metric("kakeya_links_active") == links - 1)


async def test_a_proposer_in_the_same_process_drafts_too(
    neighbourhood: nodes.Neighbourhood, checkpoint: Path, drafter: Path
) -> None:
    node = await neighbourhood.start("both", f"verifier={checkpoint}", f"proposer={drafter}")
    client = calls.Caller(node.channel)
    wanted = await client.open()
    await client.append(wanted, PROMPT)
    tokens = (await client.generate(wanted, TOKENS)).token_ids
    session = await paired(client, "both")
    stream = await client.generate(session, TOKENS)
    assert stream.token_ids == tokens
    assert stream.done.speculation.faults == []
    assert stream.done.speculation.drafted_count > 0
    assert node.metric("kakeya_link_bytes_total") == 0
    await node.stop()


@pytest.mark.usefixtures("vectors_in_time")
async def test_a_session_tries_another_proposer_and_returns_to_its_vectors(
    neighbourhood: nodes.Neighbourhood,
    verifier: nodes.Node,
    client: calls.Caller,
    proposer: nodes.Node,
    alone: Alone,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are made all the while, so that nothing is missing when the drafter is back."""
    other = await neighbourhood.start("looking-up", "proposer=ngram")
    session = await client.open(mode=runtime_pb2.SPECULATION_MODE_AUTO)
    pairing = verifier.roles.sessions.opened(session).pairing
    monkeypatch.setattr(pairing, "_replan", lambda **_: None)
    # Soon, however much the drafter wins, or loses beside other work.
    monkeypatch.setattr(pace, "LATEST_PROBE_AT", pace.PROBED_AT)
    monkeypatch.setattr(pairing, "_book", lambda *_: None)
    pairing._plan = replace(
        pairing._plan,
        proposer=Placement("drafting", "drafting", proposer.address, "drafter"),
        trials=(Trial(Placement("looking-up", "looking-up", other.address, "ngram"), 1e9),),
        stand_in=None,
    )
    await pairing.conditioned()
    await client.append(session, PROMPT)
    expected = await alone(150)
    first = await client.generate(session, 110)
    assert first.token_ids == expected[:110]
    tried = [each.model_id for each in first.done.speculation.proposers]
    assert tried == ["drafter", "ngram"]
    assert first.done.speculation.faults == []
    roster = pairing._roster
    assert roster is not None
    roster._contest = replace(roster._contest, leader=0, runner_up=None, trial=None, is_warm=False)
    roster.rivals[0].state.pace = roster.rivals[0].state.pace.taken_up()
    second = await client.generate(session, 40)
    assert second.token_ids == expected[110:]
    assert second.done.timeline[0].proposer_model_id == "drafter"
    assert second.done.speculation.faults == []
    await other.stop()


def dropped(stream: FeatureStream, first: int, vectors: ContextVectors) -> None:
    """The vectors get lost, and the sender does not know."""
    stream._sent_end = first + len(vectors)


def not_finite(stream: FeatureStream, first: int, vectors: ContextVectors) -> None:
    broken = vectors.copy()
    broken[-1, -1] = np.nan
    send(stream, first, broken)


def ended(stream: FeatureStream, first: int, vectors: ContextVectors) -> None:
    """The link ends under it: a delta out of order, a dead connection."""
    stream._end.end("out of order")
    send(stream, first, vectors)


FAULTS: dict[Send, str | None] = {
    dropped: None,
    not_finite: "not_finite",
    ended: None,
}


@pytest.mark.parametrize(("fault", "sampling"), [(dropped, SAMPLED), (not_finite, {}), (ended, {})])
async def test_bad_vectors_cost_drafts_and_no_token(
    client: calls.Caller,
    proposer: nodes.Node,
    alone: Alone,
    monkeypatch: pytest.MonkeyPatch,
    fault: Send,
    sampling: dict[str, float],
) -> None:
    sent = 0

    def sending(stream: FeatureStream, first: int, vectors: ContextVectors) -> None:
        nonlocal sent
        sent += 1
        # Now and then, so that the breaker stays closed.
        (fault if sent % 5 == 4 else send)(stream, first, vectors)

    monkeypatch.setattr(FeatureStream, "send", sending)
    # Each that is bad is waited for so long.
    wait_for_vectors(monkeypatch, 0.5)
    refused = {"fault": FAULTS[fault] or "not_finite"}
    before = proposer.metric("kakeya_tensors_refused_total", **refused)
    session = await paired(client)
    stream = await client.generate(session, TOKENS, **sampling)
    assert stream.token_ids == await alone(**sampling)
    counted = faults_of(stream)
    assert counted.keys() == {FEATURES}
    assert 0 < counted[FEATURES] < stream.done.speculation.verify_forward_count
    assert stream.done.speculation.drop_reason == runtime_pb2.DROP_REASON_UNSPECIFIED
    assert stream.done.speculation.drafted_count > TOKENS / 2
    after = proposer.metric("kakeya_tensors_refused_total", **refused)
    assert after > before if FAULTS[fault] else after == before

    monkeypatch.undo()
    wait_for_vectors(monkeypatch)
    again = await client.generate(session, 30, **sampling)
    assert faults_of(again).get(FEATURES, 0) <= 1
    assert again.done.speculation.drafted_count > 0


def cooled_down(verifier: nodes.Node) -> None:
    """As if the time had passed after which breakers let a draft through again."""
    known = verifier.roles.verifier._breakers._breakers
    for key, (incarnation, opened) in tuple(known.items()):
        known[key] = incarnation, replace(opened, retry_at=0.0, tried_until=0.0)


async def test_vectors_that_are_always_bad_open_the_breaker(
    client: calls.Caller,
    proposer: nodes.Node,
    alone: Alone,
    monkeypatch: pytest.MonkeyPatch,
    verifier: nodes.Node,
) -> None:
    monkeypatch.setattr(FeatureStream, "send", not_finite)
    # Longer than the generation, on a busy machine too: what is quoted needs no vectors, and would
    # close the breaker where it is tried once more.
    monkeypatch.setattr(breaker, "FIRST_COOL_DOWN_SECONDS", breaker.LONGEST_COOL_DOWN_SECONDS)
    session = await paired(client)
    stream = await client.generate(session, TOKENS)
    assert stream.token_ids == await alone()
    counted = faults_of(stream)
    assert counted.keys() == {FEATURES}
    assert (
        breaker.BAD_BLOCKS_TO_OPEN
        <= counted[FEATURES]
        < stream.done.speculation.verify_forward_count
    )
    assert stream.done.speculation.drop_reason == FEATURES
    assert (await client.info(session)).drop_reason == FEATURES
    assert verifier.roles.verifier.open_breakers()
    opened = [
        event
        for event in verifier.activity.events.latest
        if event.kind is EventKind.BREAKER_OPENED and event.subject_node_id == "drafting"
    ]
    assert opened
    monkeypatch.undo()
    wait_for_vectors(monkeypatch)
    cooled_down(verifier)
    assert not verifier.roles.verifier.open_breakers()
    healed = await client.generate(session, 30)
    assert healed.done.speculation.drafted_count > 0
    assert faults_of(healed) == {}


@pytest.mark.usefixtures("vectors_in_time")
async def test_a_proposer_that_comes_back_with_another_encoder_drafts_from_its_vectors(
    neighbourhood: nodes.Neighbourhood,
    client: calls.Caller,
    checkpoint: Path,
    drafter: Path,
    random_drafter: Callable[..., Path],
    alone: Alone,
) -> None:
    node = await neighbourhood.start("retrained", f"proposer={drafter}")
    session = await paired(client, "retrained")
    tokens = (await client.generate(session, 30)).token_ids
    channels = neighbourhood.directory.channels
    # A fleet keeps the channel to an address, whatever is started behind it.
    kept = channels.pop("retrained")
    await node.stop()
    other = random_drafter(checkpoint, "drafter", seed=1)
    again = await neighbourhood.start("retrained", f"proposer={other}", port=node.port)
    await channels["retrained"].close()
    channels["retrained"] = kept
    await asyncio.wait_for(kept.channel_ready(), PATIENCE_SECONDS)
    assert again.roles.offers()[0].encoder_digest != node.roles.offers()[0].encoder_digest
    stream = await client.generate(session, 30)
    assert tokens + stream.token_ids == await alone(60)
    # The first block has no vector yet: they are made from now on.
    assert faults_of(stream).get(FEATURES, 0) <= 1
    assert stream.done.speculation.drafted_count > 0
    await again.stop()


@pytest.mark.usefixtures("vectors_in_time")
async def test_sessions_that_share_a_proposer_do_not_disturb_each_other(
    client: calls.Caller, proposer: nodes.Node, alone: Alone
) -> None:
    prompts = [PROMPT, PROMPT[::-1]]
    sessions = [await paired(client, prompt=prompt) for prompt in prompts]
    ends = await asyncio.gather(*(client.generate(session, TOKENS) for session in sessions))
    for prompt, stream in zip(prompts, ends, strict=True):
        assert stream.token_ids == await alone(prompt=prompt)
        assert stream.done.speculation.faults == []
        assert stream.done.speculation.drafted_count > 0


@pytest.mark.usefixtures("vectors_in_time")
async def test_a_fork_keeps_the_vectors_of_its_prefix(
    client: calls.Caller, proposer: nodes.Node, alone: Alone
) -> None:
    session = await paired(client)
    await client.generate(session, 30)
    response = await client.stub.ForkSession(
        runtime_pb2.ForkSessionRequest(session_id=session), timeout=20
    )
    stream = await client.generate(response.session_id, 60)
    assert stream.token_ids == (await alone(90))[30:]
    assert stream.done.speculation.faults == []
    assert stream.done.speculation.drafted_count > 0


@pytest.mark.parametrize("fields", [{"encoder_digest": "a" * 64}, {"model_id": "nobody"}])
async def test_without_its_encoder_a_session_decodes_alone_and_says_so(
    neighbourhood: nodes.Neighbourhood,
    client: calls.Caller,
    proposer: nodes.Node,
    alone: Alone,
    fields: dict[str, str],
) -> None:
    (offer,) = proposer.roles.offers()
    changes: dict[str, Any] = {"encoder_digest": "b" * 64, **fields}
    strange = replace(offer, **changes)
    await neighbourhood.directory.put("strange", proposer.address, (strange,))
    session = await client.open(
        mode=runtime_pb2.SPECULATION_MODE_FIXED,
        proposer=strange.model_id,
        proposer_node="strange",
    )
    await client.append(session, PROMPT)
    stream = await client.generate(session, TOKENS)
    assert stream.token_ids == await alone()
    assert stream.done.speculation.drafted_count == 0
    assert stream.done.speculation.drop_reason == FEATURES
    assert (await client.info(session)).drop_reason == FEATURES
