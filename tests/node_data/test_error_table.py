"""Every domain error has its line in the one table."""

from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2

from kakeya_fleet.engine.errors import EngineError, ModelUnusable, OutOfKvMemory
from kakeya_fleet.fleet.errors import FleetError
from kakeya_fleet.node.cli.shell.mends import with_mend
from kakeya_fleet.node.rpc.error_table import STATUS, error_status, status_code
from kakeya_fleet.node.rpc.mends import MENDS
from kakeya_fleet.node.rpc.refusals import Draining, Refusal


def descendants(kind):
    return {kind, *(leaf for child in kind.__subclasses__() for leaf in descendants(child))}


@pytest.mark.parametrize("base", [EngineError, FleetError, Refusal])
def test_every_class_of_the_trees_is_in_the_table(base):
    ours = {kind for kind in descendants(base) if kind.__module__.split(".")[0] != "kakeya"}
    assert ours <= STATUS.keys()


def test_no_error_but_the_bases_says_internal():
    internal = {kind.__name__ for kind, code in STATUS.items() if code is grpc.StatusCode.INTERNAL}
    assert internal <= {"EngineError", "FleetError", "NodeError"}
    assert grpc.StatusCode.UNKNOWN not in STATUS.values()


def test_a_class_that_is_not_in_the_table_takes_its_parents_line():
    class Narrower(OutOfKvMemory):
        """A session of another kind."""

    assert status_code(Narrower("")) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_details_stay_below_what_trailers_carry():
    error = OutOfKvMemory("x" * 100_000, **{f"key_{n}": "v" * 10_000 for n in range(50)})
    assert error_status(error).ByteSize() < 7000


def test_a_retry_hint_of_the_engine_is_passed_on():
    status = error_status(OutOfKvMemory("full", retry_after_seconds="2.5"))
    retry = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(retry) for detail in status.details)
    assert retry.retry_delay.ToMilliseconds() == 2500


def info_of(error):
    info = error_details_pb2.ErrorInfo()
    assert any(detail.Unpack(info) for detail in error_status(error).details)
    return info


def test_a_cause_that_stands_alone_comes_with_its_mend_whatever_else_is_told():
    error = OutOfKvMemory("full", **{f"key_{n}": "v" * 10_000 for n in range(50)})
    assert info_of(error).metadata["mend"] == MENDS["OUT_OF_KV_MEMORY"]
    assert dict(info_of(Draining("mini-1 is leaving")).metadata) == {"mend": MENDS["DRAINING"]}


def test_a_message_with_its_mend_gets_no_second_one():
    error = ModelUnusable("the folder has no config.json: download it again")
    assert "mend" not in info_of(error).metadata


def test_mends_are_of_reasons_that_are_told_and_a_few_words():
    assert MENDS.keys() <= {kind.reason for kind in STATUS}
    for reason, mend in MENDS.items():
        assert 10 < len(mend) < 100, reason
        assert mend == mend.strip(" ."), reason


def test_the_terminal_says_its_own_words_for_each():
    for reason in MENDS:
        assert with_mend(reason, "the cause").startswith("the cause; "), reason
