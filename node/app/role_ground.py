"""What a node's roles stand on, whether anything is served in them or not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kakeya_fleet.node.admission.allowances import Allowances
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.roles.expected_roles import ExpectedRoles
from kakeya_fleet.node.roles.settings import RoleSettings
from kakeya_fleet.node.watch.activity import NodeActivity

if TYPE_CHECKING:
    from kakeya_fleet.node.links.roads.contract import RoadBuilder
    from kakeya_fleet.node.roles.verifier.observer import SessionObserver


@dataclass(frozen=True, slots=True)
class RoleGround:
    """`expected` are to be loaded; tensor links may have `roads` beside gRPC, best first.

    `observers` hear of every session; events and transfers are noted in `activity`; callers share
    what `allowances` has. `changed` is set when what is served differs from before.
    """

    expected: ExpectedRoles
    settings: RoleSettings
    fleet: FleetView
    metrics: NodeMetrics
    roads: Sequence[RoadBuilder]
    observers: Sequence[SessionObserver]
    activity: NodeActivity
    allowances: Allowances
    changed: asyncio.Event
