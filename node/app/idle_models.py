"""Models that are unloaded when nobody has used them for as long as a person says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.errors import ModelNotFound
from kakeya_fleet.node.app.roles import Roles
from kakeya_fleet.node.roles.contract import ModelUse

Key = tuple[Role, str]
"""A role and a model that is served in it."""
NEVER = 0.0


@dataclass(slots=True)
class _Idle:
    """Since when a model was not used, as far as it was looked at."""

    use_count: int
    since: float


class IdleModels:
    """Decides whom to unload, from what it is shown: no clocks, no tasks."""

    def __init__(self) -> None:
        self._idle: dict[Key, _Idle] = {}

    def due(
        self, uses: Mapping[Key, ModelUse], after: Callable[[Key], float], now: float
    ) -> list[Key]:
        """The models that are idle for as long as `after` says, in seconds; never with 0.

        A model is in use while it has a session, or a draft stream; what was begun and ended since
        the look before has used it too. `now` is in monotonic seconds.
        """
        for key in self._idle.keys() - uses.keys():
            # It is another model when it is loaded again.
            del self._idle[key]
        found = []
        for key, use in uses.items():
            idle = self._idle.get(key)
            if idle is None or use.in_use or use.use_count != idle.use_count:
                self._idle[key] = _Idle(use.use_count, now)
            elif NEVER < after(key) <= now - idle.since:
                found.append(key)
        return found


class IdleUnloading:
    """Unloads them, as UnloadModel does. Belongs to one event loop."""

    def __init__(
        self,
        roles: Roles,
        clock: Callable[[], float],
        tell_peers: Callable[[], Awaitable[None]],
        *,
        after_seconds: float,
        look_seconds: float = 1.0,
    ) -> None:
        """Models of which nothing else was said are unloaded `after_seconds`, never with 0.

        `clock` gives monotonic seconds; `tell_peers` is called behind each.
        """
        self._roles = roles
        self._clock = clock
        self._tell_peers = tell_peers
        self._after_seconds = after_seconds
        self._look_seconds = look_seconds
        self._idle = IdleModels()
        self._own: dict[Key, float] = {}

    def keep_for(self, role: Role, model_id: str, seconds: float | None) -> None:
        """Says of a model that is served after how long it is unloaded; None leaves it as it is."""
        if seconds is not None:
            self._own[role, model_id] = seconds

    async def run(self) -> None:
        """Looks again and again, until cancelled. Owned by the node's TaskGroup."""
        while True:
            await asyncio.sleep(self._look_seconds)
            await self.look()

    async def look(self) -> None:
        """Unloads what is due now; while another model is opened or removed nothing is."""
        roles = self._roles
        self._own = {key: after for key, after in self._own.items() if roles.served_as(*key)}
        due = self._idle.due(roles.uses(), self._after, self._clock())
        if roles.draining or roles.is_changing:
            return
        for role, model_id in due:
            because = f"nobody used it for {_duration(self._after((role, model_id)))}"
            try:
                # It has no generations that would have to end.
                await roles.remove(role, model_id, 0.0, because)
            except ModelNotFound:
                # Somebody else unloaded it a moment ago.
                continue
            await self._tell_peers()

    def _after(self, key: Key) -> float:
        return self._own.get(key, self._after_seconds)


def _duration(seconds: float) -> str:
    """`30 min`, `1.5 h`, `20 s`."""
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
