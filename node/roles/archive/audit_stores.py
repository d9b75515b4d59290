"""What a node computes the answers of archives with again; loaded when it is first needed."""

from __future__ import annotations

import threading

import structlog

from kakeya_fleet.engine.backends import archive_stores
from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.restoration.stores import EvictedStores

_log = structlog.get_logger(__name__)


class AuditStores:
    """Stores of one node's audits, under a budget of their own. Any thread may call."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._lock = threading.Lock()
        self._found: list[EvictedStores | None] = []

    def get(self) -> EvictedStores | None:
        """None where no back end that attends to evicted positions is installed."""
        with self._lock:
            if not self._found:
                self._found.append(self._loaded())
            return self._found[0]

    def _loaded(self) -> EvictedStores | None:
        try:
            return archive_stores(self._budget_bytes)
        except ModelUnusable as error:
            _log.warning("archives_not_audited", detail=str(error))
            return None
