"""Who has the next range of a session's archives opened: the session itself, as long as it is."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.positions import CHUNK_KEYS
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archive_ways import ArchiveWays
from kakeya_fleet.node.roles.archive.next_range import NextRange, RangePart
from kakeya_fleet.node.roles.archive.session_restorer import RestorerChoice, SessionRestorer
from kakeya_fleet.node.roles.archive.session_restorers import Restorers, RestorerSettings
from tests.support import evicted_stores

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)
SHAPE = replace(evicted_stores.small_shape(), context_length=3 * CHUNK_KEYS)
SETTINGS = RestorerSettings()


class Asked:
    """Restorers that note who asks for a range."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by: list[SessionRestorer] = []
        self.wanted: list[NextRange] = []
        self.restorers = Restorers(
            fleet=None,  # type: ignore[arg-type]
            ways=ArchiveWays(NodeMetrics(), SETTINGS, lambda: 0.0),
            metrics=NodeMetrics(),
            settings=SETTINGS,
            drafters={},
            clock=lambda: 0.0,
        )
        monkeypatch.setattr(Restorers, "_begin_opening", self._begin)

    def _begin(self, restorer: SessionRestorer, wanted: NextRange) -> None:
        self.by.append(restorer)
        self.wanted.append(wanted)

    def opened(self) -> SessionRestorer:
        """With a store whose range ends where the first chunk does."""
        restorer = SessionRestorer(RestorerChoice(), ARCHIVE, SHAPE, "v")
        part = RangePart(TorchEvictedStore(SHAPE, ARCHIVE, kv_pool()), None)
        restorer.use(self.restorers._shared(restorer, part))
        return restorer


def fill(store: EvictedStore | None, end: int) -> None:
    assert store is not None
    first = max(store.length, SHAPE.sink)
    store.deposit(first, evicted_stores.random_evicted(SHAPE, end - first, seed=1))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


async def test_a_fork_asks_for_itself_also_when_its_origin_is_gone(asked: Asked) -> None:
    origin = asked.opened()
    fill(origin.shared, 100)
    assert origin.shared is not None
    fork = asked.restorers.forked(origin, origin.shared.fork(90))
    origin.shared.release()
    del origin
    fill(fork.shared, CHUNK_KEYS - 1)
    await asyncio.sleep(0)
    assert asked.by == [fork]
    assert (asked.wanted[0].first, asked.wanted[0].end) == (CHUNK_KEYS, 2 * CHUNK_KEYS)


async def test_for_a_session_that_is_gone_nobody_asks(asked: Asked) -> None:
    origin = asked.opened()
    store = origin.shared
    del origin
    fill(store, CHUNK_KEYS - 1)
    await asyncio.sleep(0)
    assert asked.by == []
