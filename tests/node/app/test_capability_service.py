"""CapabilityService over a real server: bad input, watchers, probes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc.aio import UnaryStreamMultiCallable, UnaryUnaryMultiCallable

from kakeya.v1 import capability_pb2, capability_pb2_grpc
from kakeya_fleet.fleet.cards.card import ModelKind, ModelOffer, Role
from kakeya_fleet.node.membership.card_wire import signed_to_wire
from tests.node.conftest import (
    MakeCard,
    MakeIdentity,
    RunningAgent,
    Scrape,
    StartAgent,
    next_message,
)
from tests.support.patience import PATIENCE_SECONDS

METHOD = "/kakeya.v1.CapabilityService/"


# Of a version to come.
UNKNOWN: capability_pb2.Liveness.ValueType = 99  # type: ignore[assignment] # no member
RawCall = UnaryUnaryMultiCallable[bytes, bytes]
RawWatch = UnaryStreamMultiCallable[bytes, bytes]


@pytest.fixture
async def agent(start_agent: StartAgent) -> RunningAgent:
    return await start_agent("a")


@pytest.fixture
def stub(agent: RunningAgent) -> capability_pb2_grpc.CapabilityServiceAsyncStub:
    return capability_pb2_grpc.CapabilityServiceStub(agent.channel)


RequestOf = Callable[..., capability_pb2.ExchangeCapabilitiesRequest]


@pytest.fixture
def request_of(fleet_name: str) -> RequestOf:
    def make(**fields: Any) -> capability_pb2.ExchangeCapabilitiesRequest:
        values: dict[str, Any] = {"fleet_name": fleet_name, "protocol_min": 1, "protocol_max": 1}
        return capability_pb2.ExchangeCapabilitiesRequest(**(values | fields))

    return make


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """The ErrorInfo reason of a failed call."""
    details = dict(error.trailing_metadata() or ())["grpc-status-details-bin"]
    info = error_details_pb2.ErrorInfo()
    status_pb2.Status.FromString(details).details[0].Unpack(info)
    assert info.domain == "kakeya"
    return str(info.reason)


async def refused(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), reason_of(caught.value)


async def test_one_that_only_looks_gets_a_digest(
    stub: capability_pb2_grpc.CapabilityServiceAsyncStub, agent: RunningAgent, request_of: RequestOf
) -> None:
    answer = await stub.ExchangeCapabilities(request_of())
    assert answer.sender_node_id == agent.node_id
    assert [entry.node_key for entry in answer.digest] == [int(agent.node_id[:16], 16)]
    wanted = request_of(wanted_node_keys=[answer.digest[0].node_key])
    cards = (await stub.ExchangeCapabilities(wanted)).cards
    assert [capability_pb2.CapabilityCard.FromString(c.card).name for c in cards] == ["a"]
    same = await stub.ExchangeCapabilities(request_of(root_hash=answer.root_hash))
    assert not same.digest


async def test_bad_cards_are_skipped_by_rule_and_the_good_are_merged(
    stub: capability_pb2_grpc.CapabilityServiceAsyncStub,
    agent: RunningAgent,
    request_of: RequestOf,
    make_card: MakeCard,
    make_identity: MakeIdentity,
    fleet_name: str,
    scrape: Scrape,
) -> None:
    def card(**fields: object) -> capability_pb2.SignedCard:
        return signed_to_wire(make_card(make_identity(), **{"fleet_name": fleet_name} | fields))

    good, late_good = card(name="good"), card(name="late good")
    forged = card()
    forged.signature = bytes(64)
    unknown_role = capability_pb2.CapabilityCard.FromString(card().card)
    unknown_role.models.add(model_id="m", role=77, kind=1)
    cards = [
        card(announced_at_unix=float("inf")),
        good,
        capability_pb2.SignedCard(card=b"\xff\xff garbage", signature=bytes(64)),
        forged,
        card(node_id=""),
        capability_pb2.SignedCard(card=unknown_role.SerializeToString(), signature=bytes(64)),
        capability_pb2.SignedCard(card=bytes(70_000), signature=bytes(64)),
        card(announced_at_unix=float("nan")),
        card(fleet_name="another"),
        late_good,
    ]
    answer = await stub.ExchangeCapabilities(request_of(cards=cards))
    assert {skipped.index: skipped.reason for skipped in answer.skipped} == {
        0: "BAD_STAMP",
        2: "MALFORMED",
        3: "BAD_SIGNATURE",
        4: "EMPTY_NODE_ID",
        5: "UNKNOWN_ROLE",
        6: "OVERSIZE",
        7: "BAD_STAMP",
        8: "WRONG_FLEET",
    }
    await agent.events.wait_for("peer_joined", name="good")
    await agent.events.wait_for("peer_joined", name="late good")
    text = await scrape(agent.ready["metrics_address"])
    assert 'kakeya_cards_skipped_total{rule="BAD_STAMP"} 2.0' in text
    assert 'kakeya_cards_skipped_total{rule="BAD_SIGNATURE"} 1.0' in text


async def test_rumours_of_unknown_nodes_or_values_change_nothing(
    stub: capability_pb2_grpc.CapabilityServiceAsyncStub, agent: RunningAgent, request_of: RequestOf
) -> None:
    rumours = [
        capability_pb2.Rumour(
            node_id="ab" * 32, incarnation=1, liveness=capability_pb2.LIVENESS_DEAD
        ),
        capability_pb2.Rumour(
            node_id="not hex", incarnation=1, liveness=capability_pb2.LIVENESS_DEAD
        ),
        capability_pb2.Rumour(node_id=agent.node_id, incarnation=1, liveness=UNKNOWN),
        capability_pb2.Rumour(
            node_id=agent.node_id, incarnation=1, liveness=capability_pb2.LIVENESS_UNSPECIFIED
        ),
        capability_pb2.Rumour(
            node_id=agent.node_id, incarnation=1, liveness=capability_pb2.LIVENESS_LEFT
        ),
    ]
    before = await stub.ExchangeCapabilities(request_of())
    after = await stub.ExchangeCapabilities(request_of(rumours=rumours))
    assert after.root_hash == before.root_hash
    assert len(after.digest) == 1


async def test_a_false_accusation_is_refuted(
    stub: capability_pb2_grpc.CapabilityServiceAsyncStub, agent: RunningAgent, request_of: RequestOf
) -> None:
    rumour = capability_pb2.Rumour(
        node_id=agent.node_id, incarnation=1, liveness=capability_pb2.LIVENESS_DEAD
    )
    watch = stub.WatchFleet(capability_pb2.WatchFleetRequest())
    await next_message(watch)
    await stub.ExchangeCapabilities(request_of(rumours=[rumour]))
    changed = (await next_message(watch)).changed
    assert changed.card.incarnation == 2
    assert changed.liveness == capability_pb2.LIVENESS_ALIVE
    assert changed.is_self


async def test_the_wrong_fleet_and_protocol_are_named(
    stub: capability_pb2_grpc.CapabilityServiceAsyncStub, request_of: RequestOf
) -> None:
    code, reason = await refused(stub.ExchangeCapabilities(request_of(fleet_name="other")))
    assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "FLEET_MISMATCH")
    newer = request_of(protocol_min=2, protocol_max=9)
    code, reason = await refused(stub.ExchangeCapabilities(newer))
    assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "PROTOCOL_SKEW")
    wider = request_of(protocol_min=1, protocol_max=9)
    assert (await stub.ExchangeCapabilities(wider)).sender_node_id


async def test_more_than_the_contract_allows_is_refused(
    stub: capability_pb2_grpc.CapabilityServiceAsyncStub, request_of: RequestOf
) -> None:
    for fields in (
        {"cards": [capability_pb2.SignedCard()] * 65},
        {"rumours": [capability_pb2.Rumour()] * 257},
        {"wanted_node_keys": range(1025)},
        {"sender_node_id": "not a node id"},
        {"root_hash": bytes(2 << 20)},
    ):
        code, reason = await refused(stub.ExchangeCapabilities(request_of(**fields)))
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST"), fields


async def test_ten_megabytes_are_refused_by_grpc_itself(
    stub: capability_pb2_grpc.CapabilityServiceAsyncStub, request_of: RequestOf
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ExchangeCapabilities(request_of(root_hash=bytes(10 << 20)))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await stub.ExchangeCapabilities(request_of())).sender_node_id


async def test_malformed_bytes_are_an_invalid_argument(
    agent: RunningAgent, stub: capability_pb2_grpc.CapabilityServiceAsyncStub, request_of: RequestOf
) -> None:
    for method, body in (
        ("ExchangeCapabilities", b"\xff" * 40),
        ("ExchangeCapabilities", b"\x0a\xff\xff\xff\xff\x0f"),
        ("ExchangeCapabilities", b"\x0a\x02\xff\xfe"),
        ("ProbePeer", b"\x0a\x02\xff\xfe"),
        ("GetNode", b"\xff" * 40),
        ("Leave", b"\x09\x00"),
    ):
        call: RawCall = agent.channel.unary_unary(METHOD + method)
        code, reason = await refused(call(body, timeout=PATIENCE_SECONDS))
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST"), (method, body)
    watching: RawWatch = agent.channel.unary_stream(METHOD + "WatchFleet")
    watch = watching(b"\xff" * 40, timeout=PATIENCE_SECONDS)
    assert await refused(watch.read()) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST")
    assert (await stub.ExchangeCapabilities(request_of())).sender_node_id


async def test_any_damage_to_a_request_is_answered_by_the_contract(
    agent: RunningAgent,
    stub: capability_pb2_grpc.CapabilityServiceAsyncStub,
    request_of: RequestOf,
    make_card: MakeCard,
    make_identity: MakeIdentity,
    fleet_name: str,
    scrape: Scrape,
) -> None:
    rng = Random(seed := 1)
    cards = [signed_to_wire(make_card(make_identity(), fleet_name=fleet_name)) for _ in range(3)]
    rumours = [
        capability_pb2.Rumour(
            node_id=agent.node_id, incarnation=1, liveness=capability_pb2.LIVENESS_ALIVE
        )
    ]
    whole = request_of(cards=cards, rumours=rumours, wanted_node_keys=[1]).SerializeToString()
    call: RawCall = agent.channel.unary_unary(METHOD + "ExchangeCapabilities")
    reasons = set()
    for _ in range(100):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 8)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            await call(bytes(damaged[: rng.randint(0, len(damaged))]), timeout=PATIENCE_SECONDS)
        except grpc.aio.AioRpcError as error:
            reasons.add(reason_of(error))
    assert reasons <= {"BAD_REQUEST", "FLEET_MISMATCH", "PROTOCOL_SKEW"}, f"seed {seed}"
    assert "INTERNAL_ERROR" not in await scrape(agent.ready["metrics_address"])
    assert (await stub.ExchangeCapabilities(request_of())).sender_node_id


async def test_a_probe_has_a_bounded_timeout(
    stub: capability_pb2_grpc.CapabilityServiceAsyncStub, agent: RunningAgent
) -> None:
    for seconds in (0.0, -1.0, 11.0, float("nan"), float("inf")):
        request = capability_pb2.ProbePeerRequest(node_id=agent.node_id, timeout_seconds=seconds)
        assert (await refused(stub.ProbePeer(request)))[1] == "BAD_REQUEST", seconds


async def test_a_probe_of_an_unknown_node_is_not_found(
    stub: capability_pb2_grpc.CapabilityServiceAsyncStub,
) -> None:
    request = capability_pb2.ProbePeerRequest(node_id="ab" * 32, timeout_seconds=1)
    code, reason = await refused(stub.ProbePeer(request))
    assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "NODE_NOT_FOUND")


async def test_a_probe_of_a_silent_node_says_so(
    stub: capability_pb2_grpc.CapabilityServiceAsyncStub,
    agent: RunningAgent,
    request_of: RequestOf,
    make_card: MakeCard,
    make_identity: MakeIdentity,
    fleet_name: str,
) -> None:
    owner = make_identity()
    silent = make_card(owner, fleet_name=fleet_name, addresses=("127.0.0.1:1",))
    await stub.ExchangeCapabilities(request_of(cards=[signed_to_wire(silent)]))
    request = capability_pb2.ProbePeerRequest(node_id=owner.node_id, timeout_seconds=1)
    answer = await stub.ProbePeer(request)
    assert not answer.reachable
    assert answer.round_trip_seconds == 0


async def test_a_node_under_anothers_address_is_not_reached(
    stub: capability_pb2_grpc.CapabilityServiceAsyncStub,
    agent: RunningAgent,
    request_of: RequestOf,
    make_card: MakeCard,
    make_identity: MakeIdentity,
    fleet_name: str,
) -> None:
    owner = make_identity()
    impostor = make_card(owner, fleet_name=fleet_name, addresses=(agent.address,))
    await stub.ExchangeCapabilities(request_of(cards=[signed_to_wire(impostor)]))
    request = capability_pb2.ProbePeerRequest(node_id=owner.node_id, timeout_seconds=5)
    assert not (await stub.ProbePeer(request)).reachable


async def test_forged_addresses_are_neither_called_nor_told(
    stub: capability_pb2_grpc.CapabilityServiceAsyncStub,
    agent: RunningAgent,
    request_of: RequestOf,
    make_card: MakeCard,
    make_identity: MakeIdentity,
    fleet_name: str,
    scrape: Scrape,
) -> None:
    foreign = [
        make_card(make_identity(), fleet_name=fleet_name, addresses=(f"{host}:80",))
        for host in ("169.254.169.254", "8.8.8.8", "224.0.0.1", "metadata.internal")
    ]
    mixed = make_card(
        make_identity(),
        fleet_name=fleet_name,
        name="mixed",
        addresses=("169.254.169.254:80", "127.0.0.1:1"),
        http_address="169.254.169.254:80",
    )
    cards = [signed_to_wire(card) for card in (*foreign, mixed)]
    answer = await stub.ExchangeCapabilities(request_of(cards=cards))
    assert [each.reason for each in answer.skipped] == ["FOREIGN_ADDRESS"] * 4
    snapshot = (await next_message(stub.WatchFleet(capability_pb2.WatchFleetRequest()))).snapshot
    told = {node.card.name: node.card for node in snapshot.nodes}
    assert list(told["mixed"].addresses) == ["127.0.0.1:1"]
    assert told["mixed"].http_address == ""
    text = await scrape(agent.ready["metrics_address"])
    assert 'kakeya_cards_skipped_total{rule="FOREIGN_ADDRESS"} 4.0' in text


async def test_a_watcher_that_does_not_read_is_ended_and_the_others_are_not(
    stub: capability_pb2_grpc.CapabilityServiceAsyncStub,
    agent: RunningAgent,
    request_of: RequestOf,
    make_card: MakeCard,
    make_identity: MakeIdentity,
    fleet_name: str,
    scrape: Scrape,
) -> None:
    owner = make_identity()
    dropped = "kakeya_watchers_dropped_total 1.0"
    # Whose window does not grow: else it takes megabytes that nobody reads.
    options = (("grpc.http2.bdp_probe", 0),)
    async with grpc.aio.insecure_channel(agent.address, options=options) as channel:
        slow = capability_pb2_grpc.CapabilityServiceStub(channel).WatchFleet(
            capability_pb2.WatchFleetRequest()
        )
        await next_message(slow)
        for sequence in range(4000):
            # Long cards fill the stream's flow control window, then the queue.
            signed = make_card(
                owner,
                fleet_name=fleet_name,
                sequence=sequence,
                addresses=tuple(f"127.0.0.1:{port}" for port in range(1, 17)),
                models=tuple(
                    ModelOffer(f"{index}" * 250, Role.PROPOSER, ModelKind.NGRAM, "w" * 250)
                    for index in range(8)
                ),
            )
            await stub.ExchangeCapabilities(request_of(cards=[signed_to_wire(signed)]))
            if sequence % 100 == 99 and dropped in await scrape(agent.ready["metrics_address"]):
                break
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while await slow.read() is not grpc.aio.EOF:
                pass
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert reason_of(caught.value) == "WATCHER_TOO_SLOW"
    fresh = stub.WatchFleet(capability_pb2.WatchFleetRequest())
    assert len((await next_message(fresh)).snapshot.nodes) == 2


async def test_a_watcher_that_leaves_is_forgotten(
    stub: capability_pb2_grpc.CapabilityServiceAsyncStub, agent: RunningAgent
) -> None:
    watch = stub.WatchFleet(capability_pb2.WatchFleetRequest())
    await next_message(watch)
    watch.cancel()
    assert await watch.code() is grpc.StatusCode.CANCELLED
    await agent.leave()


async def test_leave_takes_no_strange_drain(
    stub: capability_pb2_grpc.CapabilityServiceAsyncStub, agent: RunningAgent
) -> None:
    for seconds in (-1.0, float("nan"), float("inf"), 1e9):
        code, reason = await refused(stub.Leave(capability_pb2.LeaveRequest(drain_seconds=seconds)))
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_REQUEST")
    assert not agent.task.done()
