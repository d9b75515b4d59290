"""When people are told of seed peers that cannot be joined."""

from __future__ import annotations

import pytest

from kakeya_fleet.fleet.membership.seed_faults import (
    NOT_A_NODE,
    QUIET_SECONDS,
    REPEAT_SECONDS,
    UNREACHABLE,
    Fault,
    SeedFaults,
    Telling,
)

SEED = "10.0.0.9:7600"
SILENT = Fault(UNREACHABLE, "Nothing listens there.", "Start it.")
NO_NODE = Fault(NOT_A_NODE, "It is no node.", "")
OTHER_FLEET = Fault("FLEET_MISMATCH", "It belongs to another fleet.", "")


def test_a_peer_that_starts_together_with_this_node_is_not_told_of() -> None:
    faults = SeedFaults([SEED])
    assert faults.failed(SEED, SILENT, 0.0) is Telling.NOTHING
    assert faults.failed(SEED, SILENT, QUIET_SECONDS - 0.1) is Telling.NOTHING
    assert faults.answered(SEED) is Telling.NOTHING
    assert faults.present() == ()


@pytest.mark.parametrize("fault", [NO_NODE, OTHER_FLEET])
def test_what_cannot_pass_by_itself_is_told_at_once(fault: Fault) -> None:
    assert SeedFaults([SEED]).failed(SEED, fault, 0.0) is Telling.NEWS


def test_the_same_is_told_once_a_minute_and_counted_every_time() -> None:
    faults = SeedFaults([SEED])
    told = {second: faults.failed(SEED, SILENT, float(second)) for second in range(200)}
    first = int(QUIET_SECONDS)
    again = range(first + int(REPEAT_SECONDS), 200, int(REPEAT_SECONDS))
    assert [at for at, telling in told.items() if telling is Telling.NEWS] == [first]
    assert [at for at, telling in told.items() if telling is Telling.REMINDER] == list(again)
    (fault,) = faults.present()
    assert (fault.address, fault.fault, fault.since) == (SEED, SILENT, 0.0)
    assert fault.attempt_count == 200


def test_another_reason_is_news_and_keeps_the_age() -> None:
    faults = SeedFaults([SEED])
    faults.failed(SEED, SILENT, 0.0)
    assert faults.failed(SEED, OTHER_FLEET, 1.0) is Telling.NEWS
    assert faults.failed(SEED, OTHER_FLEET, 2.0) is Telling.NOTHING
    assert faults.get(SEED).since == 0.0


def test_a_peer_that_recovers_is_told_once() -> None:
    faults = SeedFaults([SEED])
    faults.failed(SEED, NO_NODE, 0.0)
    assert faults.answered(SEED) is Telling.NEWS
    assert faults.answered(SEED) is Telling.NOTHING
    # And what is wrong after that is news again, after as long a patience as at first.
    assert faults.failed(SEED, SILENT, 100.0) is Telling.NOTHING
    assert faults.failed(SEED, SILENT, 100.0 + QUIET_SECONDS) is Telling.NEWS


def test_addresses_that_nobody_gave_are_ignored() -> None:
    faults = SeedFaults([SEED])
    assert faults.failed("10.0.0.8:7600", NO_NODE, 0.0) is Telling.NOTHING
    assert faults.present() == ()
    assert "10.0.0.8:7600" not in faults
