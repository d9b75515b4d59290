"""What every role of one node is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.links.transport.open_links import OpenLinks
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.roles.expected_roles import ExpectedRoles
from kakeya_fleet.node.roles.settings import RoleSettings
from kakeya_fleet.node.watch.activity import NodeActivity
from kakeya_fleet.node.watch.background import FaultBook


@dataclass(frozen=True, slots=True)
class RoleContext:
    """Callers share `allowances`; `expected` says what else is served or will be.

    What happens is noted in `activity`; `changed` is set by a role whose offers differ from
    what they were though nobody opened or removed anything; `clock` gives monotonic seconds.
    Faults of the models' threads are told in `faults`.
    """

    settings: RoleSettings
    allowances: Allowances
    expected: ExpectedRoles
    fleet: FleetView
    links: OpenLinks
    metrics: NodeMetrics
    activity: NodeActivity
    changed: asyncio.Event
    clock: Callable[[], float]
    faults: FaultBook
