"""How one model comes into a node: its files from the hub, then its weights into memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from kakeya_fleet.engine.errors import EngineError
from kakeya_fleet.fleet.errors import FleetError
from kakeya_fleet.node.errors import NodeError
from kakeya_fleet.node.watch.activity import NodeActivity
from kakeya_fleet.node.watch.event_log import EventKind
from kakeya_fleet.node.watch.transfers import Transfer, TransferKind


class ModelTransfer:
    """Tells of a model's download and load. Progress may be told in any thread, one at a time."""

    def __init__(self, model_id: str, activity: NodeActivity) -> None:
        self._model_id = model_id
        self._activity = activity
        self._download: Transfer | None = None
        self._load: Transfer | None = None

    def downloading(self, done_bytes: int, total_bytes: int) -> None:
        """Files come from the hub; nobody says so of files that are here already."""
        if self._download is None:
            self._download = self._begun(TransferKind.DOWNLOAD)
        self._download.progress(done_bytes, total_bytes)

    def reading(self, done_bytes: int, total_bytes: int) -> None:
        """Weights come into memory: what was downloaded is here."""
        if self._load is None:
            self.load_begins()
        if self._load is not None:
            self._load.progress(done_bytes, total_bytes)

    def load_begins(self) -> None:
        """What is needed is here, and is loaded."""
        if self._download is not None and self._download.running:
            self._download.done()
        if self._load is None:
            self._load = self._begun(TransferKind.LOAD)

    def loaded(self) -> None:
        """The model is served."""
        self.load_begins()
        if self._load is not None:
            self._load.done()
        self._activity.events.add(
            EventKind.MODEL_LOADED, f"{self._model_id} is loaded, measured and served."
        )

    def failed(self, error: str) -> None:
        """It is not to be had; `error` says why, with the mend."""
        running = self._load or self._download or self._begun(TransferKind.LOAD)
        running.failed(error)
        # The sentence has the mend.
        self._activity.events.add(
            EventKind.LOAD_FAILED, f"{self._model_id} was not loaded: {error}", mend=""
        )

    def given_up(self) -> None:
        """Nobody waits for it any more."""
        for transfer in (self._download, self._load):
            if transfer is not None and transfer.running:
                transfer.failed("the load was given up")

    def _begun(self, kind: TransferKind) -> Transfer:
        return self._activity.transfers.begin(kind, self._model_id)


@contextmanager
def model_transfer(model_id: str, activity: NodeActivity) -> Iterator[ModelTransfer]:
    """Around what brings a model into the node: tells how it went."""
    transfer = ModelTransfer(model_id, activity)
    try:
        yield transfer
    except (EngineError, FleetError, NodeError) as error:
        transfer.failed(str(error))
        raise
    except asyncio.CancelledError:
        transfer.given_up()
        raise
    except BaseException as error:
        # A fault: its words are the log's.
        transfer.failed(f"{type(error).__name__}, which the node's log tells more of.")
        raise
    transfer.loaded()
