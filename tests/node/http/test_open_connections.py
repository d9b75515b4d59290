"""Who keeps a connection while there are too few, without a socket."""

from __future__ import annotations

import asyncio

from kakeya_fleet.node.admission.limits import HttpLimits
from kakeya_fleet.node.http.connections import LimitedConnection, OpenConnections
from kakeya_fleet.node.metrics import NodeMetrics
from tests.support.allowances import allowances_of


class Wire(asyncio.WriteTransport):
    """A connection from `host` that says nothing."""

    def __init__(self, host: str) -> None:
        super().__init__({"peername": (host, 9)})
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


def opened(connections: OpenConnections, host: str) -> tuple[Wire, LimitedConnection]:
    wire, connection = Wire(host), connections()
    assert isinstance(connection, LimitedConnection)
    connection.connection_made(wire)
    return wire, connection


async def test_a_place_is_taken_back_from_who_holds_most_and_none_that_is_answered() -> None:
    metrics = NodeMetrics()
    shared = allowances_of(metrics, http=HttpLimits(connections=4))
    connections = OpenConnections(asyncio.Protocol, shared)
    honest, _ = opened(connections, "10.0.0.1")
    greedy = [opened(connections, "10.0.0.9") for _ in range(3)]
    connections.began(greedy[0][0])
    opened(connections, "10.0.0.2")
    # The oldest of those that are not being answered.
    assert [wire.is_aborted for wire, _ in greedy] == [False, True, False]
    assert not honest.is_aborted
    told = metrics.registry.get_sample_value
    assert told("kakeya_admission_reclaimed_total", {"limit": "http.connections"}) == 1
    greedy[1][1].connection_lost(None)
    assert told("kakeya_admission_used", {"limit": "http.connections"}) == 4


async def test_while_all_are_answered_there_is_no_place() -> None:
    connections = OpenConnections(asyncio.Protocol, allowances_of(http=HttpLimits(connections=2)))
    for _ in range(2):
        wire, _ = opened(connections, "10.0.0.1")
        connections.began(wire)
    refused, _ = opened(connections, "10.0.0.2")
    assert refused.is_aborted
