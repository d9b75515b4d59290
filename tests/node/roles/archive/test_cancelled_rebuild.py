"""A rebuild that is given up ends at once, whatever an archive says or does not say."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive import archive_ways
from kakeya_fleet.node.roles.archive.archive_ways import ArchiveWays, OpenedArchive
from kakeya_fleet.node.roles.archive.opening import Opening
from kakeya_fleet.node.roles.archive.session_restorer import RestorerChoice, SessionRestorer
from kakeya_fleet.node.roles.archive.session_restorers import Restorers, RestorerSettings
from tests.support import evicted_stores

ARCHIVE = RestorerSpec(RestorerKind.ARCHIVE)
SETTINGS = RestorerSettings(deadline=60.0, rebuild=60.0)


@dataclass
class Opened:
    """A store that came; `released` once it was given back."""

    released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        self.released.set()


class Silent:
    """An archive that does not answer an opening until it is told to."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.answers = threading.Event()
        self.store = Opened()

    def open(self, *_: object) -> OpenedArchive:
        self.asked.set()
        self.answers.wait()
        return OpenedArchive(self.store, "")  # type: ignore[arg-type]


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Silent:
    archive = Silent()
    monkeypatch.setattr(archive_ways, "_open", archive.open)
    return archive


async def test_it_does_not_wait_for_an_archive_that_says_nothing(
    silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Would it wait, this would never end: the archive answers only behind the end."""
    shape = evicted_stores.small_shape()
    ways = ArchiveWays(NodeMetrics(), SETTINGS, lambda: 0.0)

    class OneArchive:
        async def open(self, _restorer: object, _wish: object) -> Any:
            return await ways.open("127.0.0.1:1", Opening(ARCHIVE, shape, "v"), None)

    monkeypatch.setattr(Restorers, "_archives", property(lambda _: OneArchive()))
    restorers = Restorers(
        fleet=None,  # type: ignore[arg-type]
        ways=ways,
        metrics=NodeMetrics(),
        settings=SETTINGS,
        drafters={},
        clock=lambda: 0.0,
    )
    restorer = SessionRestorer(RestorerChoice(), ARCHIVE, shape, "v")
    try:
        rebuild = asyncio.create_task(restorers.rebuild(restorer, 100))
        await asyncio.to_thread(silent.asked.wait)
        rebuild.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rebuild
        assert not silent.answers.is_set()
        # Nobody has it, and the session's next operation rebuilds again.
        assert (restorer.lost, restorer.rebuild_count) == (True, 0)
    finally:
        silent.answers.set()
    # What came too late is given back, not left to its lease.
    await asyncio.to_thread(silent.store.released.wait)
