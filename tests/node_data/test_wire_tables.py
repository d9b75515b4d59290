"""Enumerations of the domain and their numbers on the wire."""

from __future__ import annotations

import pytest

from kakeya_fleet.node.planning import plan_wire
from kakeya_fleet.node.roles.verifier import report_wire

TABLES = {
    "rejections": plan_wire._REJECTION_REASONS,
    "transports": plan_wire._TRANSPORTS,
    "strategies": plan_wire._KV_STRATEGIES,
    "stops": report_wire._STOP_REASONS,
    "drops": report_wire._DROP_REASONS,
    "activities": report_wire._STATES,
}


@pytest.mark.parametrize("name", TABLES)
def test_every_value_has_a_number_of_its_own(name):
    table = TABLES[name]
    assert set(type(next(iter(table)))) == set(table)
    assert len(set(table.values())) == len(table)
    assert 0 not in table.values(), "0 says that nothing was given"
