"""From domain errors to statuses, details and remedies."""

from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2

from kakeya_fleet.engine.errors import (
    EngineError,
    GroupLost,
    HistoryLengthMismatch,
    ModelUnusable,
    OutOfKvMemory,
)
from kakeya_fleet.fleet.errors import FleetError
from kakeya_fleet.node.errors import BadConfig
from kakeya_fleet.node.rpc.error_reasons import REASONS
from kakeya_fleet.node.rpc.error_status import error_status, status_code
from kakeya_fleet.node.rpc.refusals import Draining, ForkBeyondHistory, Refusal


def descendants(kind):
    return {kind, *(leaf for child in kind.__subclasses__() for leaf in descendants(child))}


@pytest.mark.parametrize("base", [EngineError, FleetError, Refusal])
def test_every_class_of_the_trees_ends_a_call_with_a_status_of_its_own(base) -> None:
    ours = {kind for kind in descendants(base) if kind.__module__.split(".")[0] != "kakeya"}
    statuses = {kind: REASONS[kind.reason].status for kind in ours}
    assert None not in statuses.values()
    assert grpc.StatusCode.UNKNOWN not in statuses.values()
    internal = {kind for kind, status in statuses.items() if status is grpc.StatusCode.INTERNAL}
    assert internal <= {EngineError, FleetError}


def test_what_stops_a_node_is_internal_to_a_caller() -> None:
    assert status_code(BadConfig("cause", "remedy")) is grpc.StatusCode.INTERNAL


def test_a_fork_past_the_end_is_out_of_range_where_an_append_out_of_step_is_not() -> None:
    assert ForkBeyondHistory.reason == HistoryLengthMismatch.reason
    assert status_code(ForkBeyondHistory("")) is grpc.StatusCode.OUT_OF_RANGE
    assert status_code(HistoryLengthMismatch("")) is grpc.StatusCode.FAILED_PRECONDITION


def test_details_stay_below_what_trailers_carry() -> None:
    error = OutOfKvMemory("x" * 100_000, **{f"key_{n}": "v" * 10_000 for n in range(50)})
    assert error_status(error).ByteSize() < 7000


def test_a_retry_hint_of_the_engine_is_passed_on() -> None:
    status = error_status(OutOfKvMemory("full", retry_after_seconds="2.5"))
    retry = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(retry) for detail in status.details)
    assert retry.retry_delay.ToMilliseconds() == 2500


def test_what_passes_with_time_says_when_to_retry() -> None:
    retry = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(retry) for detail in error_status(GroupLost("")).details)
    assert retry.retry_delay.seconds == 5
    assert len(error_status(ModelUnusable("")).details) == 1


def info_of(error):
    info = error_details_pb2.ErrorInfo()
    assert any(detail.Unpack(info) for detail in error_status(error).details)
    return info


def test_a_cause_that_stands_alone_comes_with_its_remedy_whatever_else_is_told() -> None:
    error = OutOfKvMemory("full", **{f"key_{n}": "v" * 10_000 for n in range(50)})
    assert info_of(error).metadata["mend"] == REASONS["OUT_OF_KV_MEMORY"].remedy
    draining = info_of(Draining("mini-1 is leaving"))
    assert dict(draining.metadata) == {"mend": "ask another node that serves the model"}


def test_a_message_with_its_remedy_gets_no_second_one() -> None:
    error = ModelUnusable("the folder has no config.json: download it again")
    assert "mend" not in info_of(error).metadata
