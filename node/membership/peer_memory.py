"""Last known addresses of other nodes, kept so that a restart finds its fleet again."""

from __future__ import annotations

import asyncio

import structlog

from kakeya_fleet.fleet.membership.registry import Registry
from kakeya_fleet.node.config.state_directory import StateDirectory
from kakeya_fleet.node.errors import StateUnwritable

_log = structlog.get_logger(__name__)


class PeerMemory:
    """Writes the addresses when they changed.

    A full disk costs the memory alone, and only as long as it is full: the log has a line
    when they cannot be written, and one when they are.
    """

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        self._kept: tuple[str, ...] = ()
        self._failure = ""

    def recall(self) -> tuple[str, ...]:
        """The addresses of the last run; none, and a line in the log, from a damaged file."""
        kept = self._state.remembered_peers()
        if kept is None:
            _log.warning("peers_file_damaged", mend="rebuilt from the peers that answer")
        self._kept = kept or ()
        return self._kept

    async def run(self, registry: Registry, seconds: float) -> None:
        """Looks every `seconds` until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            await self.remember(registry)

    async def remember(self, registry: Registry) -> None:
        """Keeps the first addresses of the live peers, or tries; an empty fleet keeps the last."""
        addresses = tuple(
            sorted(
                record.card.addresses[0]
                for record in registry.records()
                if not record.liveness.is_tombstone and record.card.node_id != registry.own_id
            )
        )
        if not addresses or addresses == self._kept:
            return
        try:
            await asyncio.to_thread(self._state.remember_peers, addresses)
        except StateUnwritable as error:
            if error.cause != self._failure:
                _log.warning(
                    "peers_not_kept", reason=error.reason, cause=error.cause, mend=error.mend
                )
            self._failure = error.cause
            return
        if self._failure:
            _log.warning("peers_kept_again")
            self._failure = ""
        self._kept = addresses
