"""Why a group cannot be started."""

from __future__ import annotations

from kakeya_fleet.node.errors import NodeError


class BadGroup(NodeError):
    """The hostfile cannot be used on this node, or for these roles."""

    reason = "BAD_GROUP"


class GroupNotStarted(NodeError):
    """The ranks did not come, or one of them ended before all were ready."""

    reason = "GROUP_NOT_STARTED"
