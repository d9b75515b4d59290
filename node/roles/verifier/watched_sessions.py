"""The sessions of a node as one who watches them is told of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from kakeya.v1 import runtime_pb2 as wire
from kakeya_fleet.engine.speculation.generation_report import TIMELINE_BLOCKS
from kakeya_fleet.node.roles.verifier.session_activity import SessionActivity

if TYPE_CHECKING:
    from kakeya_fleet.engine.speculation.generation_report import BlockTiming

    Tell: TypeAlias = Callable[
        [SessionActivity, Sequence[tuple[int, BlockTiming]]], wire.SessionActivity
    ]


def subject_of(message: wire.WatchSessionsResponse) -> tuple[str, bool]:
    """The session that a message is about, and whether it ended."""
    if message.WhichOneof("kind") == "ended":
        return message.ended.session_id, True
    return message.changed.session.session_id, False


class WatchedSessions:
    """Sessions by id, for one watcher: a `node.watch.snapshot_parts.Watched`."""

    def __init__(
        self,
        activities: Mapping[str, SessionActivity],
        block_count: int,
        tell: Tell,
        owner: str | None = None,
    ) -> None:
        """`tell` makes the message of a session and of those of its blocks that come along.

        With `owner` nobody else's sessions are among them.
        """
        self._owner = owner
        self._activities = activities
        self._block_count = block_count
        self._tell = tell
        self._told_blocks: dict[str, int] = {}

    def keys(self) -> list[str]:
        """The sessions' ids, oldest first."""
        return [
            session_id
            for session_id, activity in self._activities.items()
            if self._owner in (None, activity.session.record.owner)
        ]

    def item(self, key: str) -> wire.SessionActivity | None:
        """See `Watched.item`: with the latest blocks that all watchers were told of."""
        return self._told(key, self._block_count)

    def snapshot(
        self, items: Sequence[wire.SessionActivity], *, more: bool
    ) -> wire.WatchSessionsResponse:
        """See `Watched.snapshot`."""
        return wire.WatchSessionsResponse(snapshot=wire.SessionsSnapshot(sessions=items, more=more))

    def changed(self, key: str) -> wire.WatchSessionsResponse | None:
        """See `Watched.changed`: with the blocks that all others were told of since."""
        activity = self._activities.get(key)
        told_of = activity.told_block_count if activity is not None else 0
        body = self._told(key, min(told_of - self._told_blocks.get(key, 0), TIMELINE_BLOCKS))
        return wire.WatchSessionsResponse(changed=body) if body is not None else None

    def change(self, message: wire.WatchSessionsResponse) -> wire.WatchSessionsResponse:
        """See `Watched.change`."""
        return message

    def _told(self, key: str, block_count: int) -> wire.SessionActivity | None:
        activity = self._activities.get(key)
        # The loop may hear of a session's end only after this.
        if activity is None or activity.session.has_ended:
            return None
        self._told_blocks[key] = activity.told_block_count
        return self._tell(activity, activity.told_blocks(block_count))
