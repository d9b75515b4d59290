from __future__ import annotations

import dataclasses
import re
from enum import StrEnum
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message

import kakeya
from kakeya.enum_names import enum_value
from kakeya.generated import wire
from kakeya.generation import committed
from kakeya.v1 import capability_pb2, model_pb2, placement_pb2, runtime_pb2, tensor_pb2

ENUMS = [
    (kakeya.KvStrategy, placement_pb2.KvStrategy),
    (kakeya.Transport, placement_pb2.Transport),
    (kakeya.RejectionReason, placement_pb2.RejectionReason),
    (kakeya.Role, model_pb2.Role),
    (kakeya.ModelKind, model_pb2.ModelKind),
    (kakeya.Liveness, capability_pb2.Liveness),
    (kakeya.StopReason, runtime_pb2.StopReason),
    (kakeya.DropReason, runtime_pb2.DropReason),
    (kakeya.SessionState, runtime_pb2.SessionState),
    (kakeya.LinkPurpose, tensor_pb2.LinkPurpose),
]


@pytest.mark.parametrize(("ours", "theirs"), ENUMS, ids=[ours.__name__ for ours, _ in ENUMS])
def test_every_value_of_the_contract_has_its_member(
    ours: type[StrEnum], theirs: EnumTypeWrapper
) -> None:
    members = [enum_value(ours, theirs.DESCRIPTOR, number) for number in theirs.values()]
    unknown = ours["UNKNOWN"]
    assert members[0] is unknown
    assert unknown not in members[1:]
    assert len(set(members)) == len(members) == len(ours)
    assert enum_value(ours, theirs.DESCRIPTOR, 10_000) is unknown


def test_statistics_and_timeline_of_a_generation() -> None:
    done = wire.generation_done(
        runtime_pb2.GenerateDone(
            stop_reason=runtime_pb2.STOP_REASON_DEADLINE,
            generated_token_count=5,
            history_length=9,
            seed=2**63,
            timings=runtime_pb2.GenerateTimings(
                queue_seconds=1, prefill_seconds=2, first_token_seconds=3, total_seconds=4
            ),
            speculation=runtime_pb2.SpeculationStatistics(
                block_count=1,
                drafted_count=2,
                accepted_count=3,
                verify_forward_count=4,
                acceptance_length=5,
                round_trip_seconds_p50=6,
                round_trip_seconds_p99=7,
                faults=[runtime_pb2.DraftFault(reason=runtime_pb2.DROP_REASON_STALE, count=8)],
                drop_reason=runtime_pb2.DROP_REASON_DEADLINE,
                ahead_hit_count=9,
                ahead_miss_count=10,
                proposer_node_id="bb",
                proposer_model_id="ngram",
            ),
            link_changes=[
                runtime_pb2.LinkChange(
                    start_seconds=0.5,
                    purpose=tensor_pb2.LINK_PURPOSE_FEATURES,
                    transport=placement_pb2.TRANSPORT_RING,
                    generation=2,
                    reason="It is faster.",
                    peer_node_id="cc",
                )
            ],
            timeline=[
                runtime_pb2.BlockTiming(
                    first_index=1,
                    drafted_count=2,
                    accepted_count=3,
                    draft_seconds=4,
                    wire_seconds=5,
                    wait_seconds=6,
                    verify_seconds=7,
                    drafted_ahead=True,
                    start_seconds=8,
                )
            ],
        )
    )
    assert done == kakeya.GenerationDone(
        stop_reason=kakeya.StopReason.DEADLINE,
        generated_token_count=5,
        history_length=9,
        timings=kakeya.Timings(1, 2, 3, 4),
        speculation=kakeya.SpeculationStatistics(
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            (kakeya.DraftFault(kakeya.DropReason.STALE, 8),),
            kakeya.DropReason.DEADLINE,
            9,
            10,
            "bb",
            "ngram",
        ),
        timeline=(kakeya.BlockTiming(1, 2, 3, 4, 5, 6, 7, drafted_ahead=True, start_seconds=8),),
        seed=2**63,
        link_changes=(
            kakeya.LinkChange(
                0.5,
                kakeya.LinkPurpose.FEATURES,
                kakeya.Transport.RING,
                generation=2,
                reason="It is faster.",
                peer_node_id="cc",
            ),
        ),
    )


def test_alternatives_without_their_log_probabilities_are_the_nodes_fault() -> None:
    lame = runtime_pb2.TokenAlternatives(token_ids=[1, 2], log_probabilities=[-1.0])
    with pytest.raises(kakeya.UnexpectedError):
        committed(runtime_pb2.CommittedTokens(token_ids=[1], alternatives=[lame]))


VALUES = [
    (kakeya.ModelOffer, model_pb2.ModelOffer),
    (kakeya.Plan, placement_pb2.Plan),
    (kakeya.Placement, placement_pb2.Placement),
    (kakeya.Rejection, placement_pb2.Rejection),
    (kakeya.SessionInfo, runtime_pb2.SessionInfo),
    (kakeya.GenerationDone, runtime_pb2.GenerateDone),
    (kakeya.SpeculationStatistics, runtime_pb2.SpeculationStatistics),
    (kakeya.BlockTiming, runtime_pb2.BlockTiming),
    (kakeya.ProposerStatistics, runtime_pb2.ProposerStatistics),
    (kakeya.Trial, placement_pb2.Trial),
    (kakeya.Timings, runtime_pb2.GenerateTimings),
    (kakeya.Tokens, runtime_pb2.CommittedTokens),
    (kakeya.NodeLoad, capability_pb2.NodeLoad),
    (kakeya.PeerLink, capability_pb2.PeerLink),
    (kakeya.TensorLink, capability_pb2.TensorLinkStatus),
    (kakeya.SeedFault, capability_pb2.SeedFault),
    (kakeya.LinkChange, runtime_pb2.LinkChange),
    (kakeya.ArchiveRange, placement_pb2.ArchiveRange),
    (kakeya.MeasuredAcceptance, capability_pb2.MeasuredAcceptance),
    (kakeya.Node, capability_pb2.GetNodeResponse),
    (kakeya.NodeSample, capability_pb2.NodeSample),
    (kakeya.NodeEvent, capability_pb2.NodeEvent),
    (kakeya.Transfer, capability_pb2.Transfer),
    (kakeya.NodeHistory, capability_pb2.NodeHistory),
    (kakeya.SessionActivity, runtime_pb2.SessionActivity),
    (kakeya.EndedSession, runtime_pb2.EndedSession),
]


@pytest.mark.parametrize(("value", "message"), VALUES)
def test_values_have_the_fields_of_their_messages(value: type[Any], message: type[Message]) -> None:
    assert set(value.__dataclass_fields__) == set(message.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (kakeya.FleetSnapshot, capability_pb2.FleetSnapshot),
        (kakeya.SessionsSnapshot, runtime_pb2.SessionsSnapshot),
    ],
)
def test_snapshots_say_nothing_of_the_parts_in_which_they_came(
    value: type[Any], message: type[Message]
) -> None:
    assert {*value.__dataclass_fields__, "more"} == set(message.DESCRIPTOR.fields_by_name)


GIVEN = {
    FieldDescriptor.TYPE_STRING: "a",
    FieldDescriptor.TYPE_BYTES: b"a",
    FieldDescriptor.TYPE_DOUBLE: 1.5,
    FieldDescriptor.TYPE_BOOL: True,
}


def filled(message: Message) -> Message:
    """The message with something in each of its fields."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None:
            inner = getattr(message, field.name)
            filled(inner.add() if field.is_repeated else inner)
            continue
        given = GIVEN.get(field.type, 1)
        if field.is_repeated:
            getattr(message, field.name).append(given)
        else:
            setattr(message, field.name, given)
    return message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        *(each for each in VALUES if each[0] is not kakeya.Tokens),
        (kakeya.Card, capability_pb2.CapabilityCard),
        (kakeya.RestorerInfo, runtime_pb2.RestorerInfo),
    ],
)
def test_every_field_of_a_message_arrives(value: type[Any], message: type[Message]) -> None:
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", value.__name__).lower()
    seen = getattr(wire, name)(filled(message()))
    assert type(seen) is value
    for field in dataclasses.fields(value):
        assert getattr(seen, field.name) not in (None, "", 0, (), "unknown"), field.name


def test_an_offer_carries_what_a_session_takes_and_what_computes_it() -> None:
    offer = wire.model_offer(
        model_pb2.ModelOffer(kv_bytes_per_token=7, kv_fixed_bytes=2**63, backend="mlx", exact=True)
    )
    assert (offer.kv_bytes_per_token, offer.kv_fixed_bytes) == (7, 2**63)
    assert (offer.backend, offer.exact) == ("mlx", True)


@pytest.mark.parametrize("exact", [True, False])
def test_a_plan_tells_whether_drafts_can_change_tokens(exact: bool) -> None:
    assert wire.plan(placement_pb2.Plan(exact=exact)).exact is exact


def test_a_node_that_does_not_tell_is_not_taken_for_exact() -> None:
    assert not wire.plan(placement_pb2.Plan()).exact
