from enum import Enum

import pytest
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from kakeya.enum_names import number_of
from kakeya.v1 import capability_pb2, placement_pb2, runtime_pb2
from kakeya_fleet.engine.sessions.session_record import Activity
from kakeya_fleet.engine.speculation.generation_report import DropReason, StopReason
from kakeya_fleet.fleet.placement.plan import KvStrategy, RejectionReason, Transport
from kakeya_fleet.node.roles.verifier.observer import Outcome
from kakeya_fleet.node.watch.event_log import Severity
from kakeya_fleet.node.watch.transfers import TransferKind, TransferState


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (KvStrategy, placement_pb2.KvStrategy),
        (Transport, placement_pb2.Transport),
        (RejectionReason, placement_pb2.RejectionReason),
        (StopReason, runtime_pb2.StopReason),
        (DropReason, runtime_pb2.DropReason),
        (Activity, runtime_pb2.SessionState),
        (Outcome, runtime_pb2.SessionOutcome),
        (Severity, capability_pb2.EventSeverity),
        (TransferKind, capability_pb2.TransferKind),
        (TransferState, capability_pb2.TransferState),
    ],
)
def test_what_the_node_tells_has_the_contracts_numbers(
    ours: type[Enum], theirs: EnumTypeWrapper
) -> None:
    assert {number_of(theirs, member) for member in ours} == set(theirs.values()) - {0}
