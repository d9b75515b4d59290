"""Sessions that one caller opens leave places and memory to others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from kakeya.v1 import placement_pb2, runtime_pb2
from kakeya_fleet.node.admission.caller import Caller
from kakeya_fleet.node.admission.limits import Limits, SessionLimits
from kakeya_fleet.node.roles.verifier.runtime_wire import session_spec_from_wire
from kakeya_fleet.node.rpc.refusals import TooManySessions
from kakeya_fleet.node.watch.event_log import EventKind
from tests.support import calls
from tests.support.neighbourhood import SETTINGS, Neighbourhood, Node

pytestmark = pytest.mark.asyncio(loop_scope="module")

HERE, OTHER = Caller("127.0.0.1"), Caller("10.0.0.7")
OPENING = runtime_pb2.CreateSessionRequest(model_id="random", sink_tokens=4, window_tokens=16)
PROMPT = [index * 7 % 96 for index in range(20)]


def used(node: Node) -> float | None:
    labels = {"limit": "sessions.at_once"}
    return node.metrics.registry.get_sample_value("kakeya_admission_used", labels)


async def test_places_of_sessions_are_shared(
    neighbourhood: Neighbourhood, checkpoint: Path
) -> None:
    limits = Limits(sessions=SessionLimits(at_once=10))
    node = await neighbourhood.start("one", f"verifier={checkpoint}", limits=limits)
    lifecycle = node.roles.verifier._lifecycle
    client = calls.Caller(node.channel)
    mine = [await client.open(window=16) for _ in range(8)]
    refused = await client.refusal("CreateSession", OPENING)
    assert refused.reason == "TOO_MANY_SESSIONS"
    assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    told = {"limit": "10", "used": "8", "cause": "share"}
    assert told.items() <= refused.metadata.items()
    assert refused.retry_seconds == 5.0
    forking = runtime_pb2.ForkSessionRequest(session_id=mine[0])
    assert (await client.refusal("ForkSession", forking)).reason == "TOO_MANY_SESSIONS"

    spec = session_spec_from_wire(OPENING)
    other = await lifecycle.open(spec, OTHER)
    assert used(node) == 9
    with pytest.raises(TooManySessions):
        await lifecycle.open(spec, OTHER)
    # Nothing was lost by being refused.
    await client.append(mine[0], PROMPT)
    assert len((await client.generate(mine[0], 4)).token_ids) == 4
    for each in mine[1:3]:
        await client.close(each)
    await lifecycle.fork(other, None, HERE)
    assert used(node) == 8
    for session in lifecycle.registry.page()[0]:
        lifecycle.registry.close(session.session_id)
    assert used(node) == 0


async def test_a_stranger_has_memory_beside_one_who_took_all(
    neighbourhood: Neighbourhood, checkpoint: Path
) -> None:
    """At once, of sessions between two calls; they rest, and go on with the same tokens."""
    probe = await neighbourhood.start("probe", f"verifier={checkpoint}")
    spec = session_spec_from_wire(OPENING)
    taken = (await probe.roles.verifier._lifecycle.open(spec)).record.session.memory_bytes
    settings = replace(SETTINGS, kv_budget_bytes=4 * taken)
    node = await neighbourhood.start("one", f"verifier={checkpoint}", settings=settings)
    lifecycle, client = node.roles.verifier._lifecycle, calls.Caller(node.channel)
    mine = [(await lifecycle.open(spec, HERE)).session_id for _ in range(4)]
    for each in mine:
        await client.append(each, PROMPT)
    said = [(await client.generate(each, 8)).token_ids for each in mine]
    assert (await client.refusal("CreateSession", OPENING)).reason == "OUT_OF_KV_MEMORY"
    theirs = [(await lifecycle.open(spec, OTHER)).session_id for _ in range(2)]
    infos = [await client.info(each) for each in mine]
    resting = [info for info in infos if info.state == runtime_pb2.SESSION_STATE_RESTING]
    assert [(info.kv_bytes, info.resident_token_count) for info in resting] == [(0, 0)] * 2
    # All but the last token, which is fed with the next ones; of what rests nothing.
    held = [0 if info in resting else len(PROMPT) + 8 - 1 for info in infos]
    assert [info.computed_token_count for info in infos] == held
    assert [info.history_length for info in infos] == [len(PROMPT) + 8] * 4
    for each in theirs:
        lifecycle.registry.close(each)

    for each, info in zip(mine, infos, strict=True):
        again = await client.generate(each, 8)
        said.append(again.token_ids)
        # What it computed before: all but the last token, which is fed with the next ones.
        computed = len(PROMPT) + 8 - 1 if info in resting else 0
        assert again.done.recomputed_token_count == computed
    # One history, one stream, whether its memory was given away in between or not.
    assert said[:4] == [said[0]] * 4
    assert said[4:] == [said[4]] * 4
    latest = node.activity.events.latest
    events = [event for event in latest if event.kind is EventKind.SESSION_RESTED]
    assert {event.session_id for event in events} == {info.session_id for info in resting}
    assert "computes 28 tokens again" in events[0].message
    assert node.metric("kakeya_session_rests_total") == 2
    assert node.metric("kakeya_tokens_recomputed_total") == 2 * 27


async def test_a_session_that_was_said_to_give_way_does_at_once_and_goes_on_alike(
    neighbourhood: Neighbourhood, checkpoint: Path
) -> None:
    probe = await neighbourhood.start("probe", f"verifier={checkpoint}")
    spec = session_spec_from_wire(OPENING)
    taken = (await probe.roles.verifier._lifecycle.open(spec)).record.session.memory_bytes
    settings = replace(SETTINGS, kv_budget_bytes=2 * taken)
    node = await neighbourhood.start("one", f"verifier={checkpoint}", settings=settings)
    client = calls.Caller(node.channel)
    kept, stays = [await client.open(window=16) for _ in range(2)]
    for each in (kept, stays):
        await client.append(each, PROMPT)
    said = [
        (await client.generate(each, 8, gives_way=each == kept)).token_ids for each in (kept, stays)
    ]
    newcomer = await client.open(window=16)
    states = [(await client.info(each)).state for each in (kept, stays)]
    assert states == [runtime_pb2.SESSION_STATE_RESTING, runtime_pb2.SESSION_STATE_IDLE]
    assert (await client.refusal("CreateSession", OPENING)).reason == "OUT_OF_KV_MEMORY"
    await client.close(newcomer)
    again = [(await client.generate(each, 8)).token_ids for each in (kept, stays)]
    assert said[0] == said[1]
    assert again[0] == again[1]
    # It has gone on without having been told so again.
    assert (await client.refusal("CreateSession", OPENING)).reason == "OUT_OF_KV_MEMORY"
    assert (await client.info(kept)).state == runtime_pb2.SESSION_STATE_IDLE


async def test_room_for_an_answer_is_refused_before_anything_is_computed(
    neighbourhood: Neighbourhood, checkpoint: Path
) -> None:
    opening = runtime_pb2.CreateSessionRequest(
        model_id="random", kv_strategy=placement_pb2.KV_STRATEGY_FULL, initial_token_ids=PROMPT
    )
    probe = await neighbourhood.start("probe", f"verifier={checkpoint}")
    probed = await calls.Caller(probe.channel).stub.CreateSession(opening)
    segment = (await calls.Caller(probe.channel).info(probed.session_id)).kv_bytes
    settings = replace(SETTINGS, kv_budget_bytes=2 * segment)
    node = await neighbourhood.start("one", f"verifier={checkpoint}", settings=settings)
    client = calls.Caller(node.channel)
    opening.room_tokens = 600
    assert (await client.refusal("CreateSession", opening)).reason == "OUT_OF_KV_MEMORY"
    opening.room_tokens = 400
    session = (await client.stub.CreateSession(opening)).session_id
    assert (await client.info(session)).kv_bytes == 2 * segment
    assert (await client.refusal("CreateSession", opening)).reason == "OUT_OF_KV_MEMORY"
    more = runtime_pb2.AppendTokensRequest(session_id=session, token_ids=[1], room_tokens=600)
    assert (await client.refusal("AppendTokens", more)).reason == "OUT_OF_KV_MEMORY"
    assert (await client.info(session)).history_length == len(PROMPT)
