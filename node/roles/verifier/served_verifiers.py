"""All verifiers that a node serves now, and the K/V budget that they share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.engine.sessions.session_registry import SessionRegistry
from kakeya_fleet.fleet.cards.card import ModelOffer
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.roles.verifier.served_verifier import ServedVerifier


class ServedVerifiers:
    """The verifiers by model id. Belongs to the event loop's thread.

    `by_model` is always the same mapping. Sessions that hold more than a share that
    became smaller keep it, and find no room to grow until others have ended.
    """

    def __init__(
        self,
        registry: SessionRegistry[OpenSession],
        budget_bytes: int,
        count: Callable[[], int],
    ) -> None:
        """`budget_bytes` are shared evenly by as many as `count` says: with those that load."""
        self._registry = registry
        self._budget_bytes = budget_bytes
        self._count = count
        self.by_model: dict[str, ServedVerifier] = {}

    @property
    def share_bytes(self) -> int:
        """K/V bytes of the sessions of one verifier."""
        return self._budget_bytes // max(1, self._count())

    @property
    def offers(self) -> tuple[ModelOffer, ...]:
        """What the card says of them."""
        return tuple(served.offer for served in self.by_model.values())

    @property
    def kv_bytes(self) -> int:
        """K/V bytes of all sessions."""
        return sum(served.budget.used_bytes for served in self.by_model.values())

    @property
    def kv_budget_bytes(self) -> int:
        """K/V bytes that all sessions may take; 0 without a verifier."""
        return self._budget_bytes if self.by_model else 0

    @property
    def free_kv_bytes(self) -> int | None:
        """K/V bytes that new sessions may take now; None without a verifier."""
        if not self.by_model:
            return None
        available = self._registry.available_bytes
        return sum(available(served.budget) for served in self.by_model.values())

    def trim(self) -> None:
        """Gives memory back that no session took since the last call."""
        if sum(served.verifier.pool.trim() for served in self.by_model.values()):
            # Half a second a GB, which other threads run beside.
            asyncio.get_running_loop().run_in_executor(None, system_memory.give_back)

    def share(self) -> None:
        """Gives each its share, after others came or went."""
        for served in self.by_model.values():
            self._registry.share(served.budget, self.share_bytes)
