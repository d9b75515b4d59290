"""Models that a running node was asked to bring to its disk, each until it is there or refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from kakeya_fleet.engine.errors import EngineError, ModelInUse, ModelNotKept
from kakeya_fleet.engine.models.gguf.source import HUB_FILE, PUBLISHED
from kakeya_fleet.engine.models.hub_download import Progress
from kakeya_fleet.engine.models.model_files import fetch, is_here, place_of
from kakeya_fleet.engine.models.model_folder import HUB_ID
from kakeya_fleet.engine.models.pulled_models import (
    StoredModel,
    remove,
    stored,
    stored_models,
    stored_place,
)
from kakeya_fleet.fleet.errors import FleetError, ModelNotFound
from kakeya_fleet.node.app.roles import Roles
from kakeya_fleet.node.app.told_work import ToldWork
from kakeya_fleet.node.copying.disk_threads import DiskThreads
from kakeya_fleet.node.copying.model_copy import ModelCopy
from kakeya_fleet.node.copying.sources import holders, named_sources
from kakeya_fleet.node.errors import NodeError
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.rpc.refusals import Draining, ModelNotCopied, Refusal, TooManyPulls
from kakeya_fleet.node.watch.activity import NodeActivity
from kakeya_fleet.node.watch.background import BackgroundTasks
from kakeya_fleet.node.watch.event_log import EventKind
from kakeya_fleet.node.watch.transfers import Transfer, TransferKind, TransferStatus

FromHub = Callable[[str, Progress | None], None]
"""Brings a model of that name into the hub's cache. Raises `ModelNotFound`."""


class PullPhase(Enum):
    """What a pull does."""

    ASKING = "asking"
    """Members are asked who has the model, and which files it has."""
    CHECKING = "checking"
    """What an earlier pull left is compared with its digests."""
    COPYING = "copying"
    """Its files come from members."""
    DOWNLOADING = "downloading"
    """Its files come from the hub."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """What came from a node; `fault` is why nothing is taken from it any more, else empty."""

    node_id: str
    name: str
    done_bytes: int
    fault: str


@dataclass(frozen=True, slots=True)
class PullStatus:
    """How a pull stands; `sources` in their order, empty before they are known."""

    phase: PullPhase
    transfer: TransferStatus
    sources: tuple[SourceStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class Pulled:
    """A model that is on the disk; `model` is None where no other node gave it."""

    model_id: str
    model: StoredModel | None
    sources: tuple[SourceStatus, ...] = ()


class ModelPull(ToldWork[Pulled, PullStatus]):
    """One pull; its outcome is the model, or it raises as `ModelPulls.begin` says."""

    def __init__(self, model_id: str, transfer: Transfer) -> None:
        """It is seen as `transfer`."""
        super().__init__()
        self.model_id = model_id
        self.transfer = transfer
        self.copy: ModelCopy | None = None
        self.is_from_hub = False

    def sources(self) -> tuple[SourceStatus, ...]:
        """Whom it copies from."""
        states = self.copy.sources if self.copy is not None else ()
        return tuple(
            SourceStatus(each.source.node_id, each.source.name, each.done_bytes, each.fault)
            for each in states
        )

    def status(self) -> PullStatus:
        """How it stands."""
        phase = PullPhase.DOWNLOADING if self.is_from_hub else PullPhase.ASKING
        if self.copy is not None:
            phase = PullPhase(self.copy.phase.value)
        return PullStatus(phase, self.transfer.status(), self.sources())


class ModelPulls:
    """The pulls that run, and what they brought. Belongs to one event loop."""

    def __init__(
        self,
        roles: Roles,
        fleet: FleetView,
        threads: DiskThreads,
        activity: NodeActivity,
        tasks: BackgroundTasks,
        most: int,
        from_hub: FromHub = fetch,
    ) -> None:
        """At most `most` at once, each one of `tasks`; `from_hub` brings what no member has."""
        self._roles = roles
        self._fleet = fleet
        self._threads = threads
        self._activity = activity
        self._tasks = tasks
        self._most = most
        self._from_hub = from_hub
        self._running: dict[str, tuple[ModelPull, asyncio.Future[None]]] = {}
        self.refused_count = 0

    def __len__(self) -> int:
        return len(self._running)

    @property
    def self_id(self) -> str:
        """Id of this node."""
        return self._fleet.self_id

    async def there(self, model_id: str) -> Pulled | None:
        """A model that needs no pull; None where it does, and while it is pulled."""
        if model_id in self._running or not await self._threads.run(partial(is_here, model_id)):
            return None
        return Pulled(model_id, await self._threads.run(partial(stored, model_id)))

    def begin(self, model_id: str, source_ids: Sequence[str]) -> ModelPull:
        """The pull of a model that is not here; the one that runs already, where one does.

        From the nodes `source_ids`, or from all that have it, or else from the hub. Raises
        `Draining`, `TooManyPulls`; the pull `ModelNotFound` where nobody has it, `NodeNotFound`,
        `ModelNotCopied`, `ModelCacheUnwritable`, `ModelInUse`.
        """
        if self._roles.draining:
            raise _leaving()
        running = self._running.get(model_id)
        if running is not None:
            return running[0]
        if len(self._running) >= self._most:
            self.refused_count += 1
            names = ", ".join(name[:64] for name in self._running)
            raise TooManyPulls(
                f"{len(self._running)} models come to this node's disk now ({names}): ask again"
                " when one of them is there"
            )
        pull = ModelPull(model_id, self._activity.transfers.begin(TransferKind.DOWNLOAD, model_id))
        work = partial(self._run, pull, tuple(source_ids))
        self._running[model_id] = pull, self._tasks.once("pull of a model", work)
        return pull

    async def remove(self, model_id: str) -> int:
        """Removes what a pull brought, whole or not; its bytes. One that runs is given up.

        Raises `ModelNotKept`, `ModelInUse`, `ModelCacheUnwritable`.
        """
        if model_id in await self._served():
            raise ModelInUse(
                f"{model_id[:64]} is served on this node: unload it first",
                model_id=model_id[:64],
            )
        was_pulled = await self._given_up(model_id)
        try:
            byte_count = await self._threads.run(partial(remove, model_id))
        except ModelNotKept:
            if not was_pulled:
                raise
            # Nothing of it had come.
            byte_count = 0
        self._tell(EventKind.MODEL_REMOVED, f"{model_id[:64]} was removed from this node's disk.")
        return byte_count

    async def _given_up(self, model_id: str) -> bool:
        """Ends the pull of a model, if one runs; whether one did."""
        running = self._running.get(model_id)
        if running is None:
            return False
        pull, task = running
        pull.failed(
            ModelNotCopied(f"{model_id[:64]} was removed while it came", model_id=model_id[:64])
        )
        task.cancel()
        await asyncio.wait((task,))
        # One that was cancelled before it ran has not done so.
        self._running.pop(model_id, None)
        return True

    async def all(self) -> list[tuple[StoredModel, bool]]:
        """What pulls brought to this machine, and whether this node serves or loads it."""
        models = await self._threads.run(stored_models)
        served = await self._served()
        return [(each, each.is_whole and each.manifest.model_id in served) for each in models]

    def close(self) -> None:
        """Gives up those that run: the node leaves."""
        for pull, task in self._running.values():
            pull.failed(_leaving())
            task.cancel()

    async def _served(self) -> set[str]:
        """Names of pulled models that are served from the folder that a pull brought."""
        names = [spec.model for spec in self._roles.model_specs()]

        def found() -> set[str]:
            places = {place_of(name) for name in names} - {None}
            models = (each.manifest.model_id for each in stored_models() if each.is_whole)
            return {model_id for model_id in models if stored_place(model_id) in places}

        return await self._threads.run(found)

    async def _run(self, pull: ModelPull, source_ids: Sequence[str]) -> None:
        try:
            model = await self._brought(pull, source_ids)
            pull.transfer.done()
            self._tell(EventKind.MODEL_PULLED, _pulled_text(pull))
            pull.done(Pulled(pull.model_id, model, pull.sources()))
        except (EngineError, FleetError, NodeError, Refusal) as error:
            # Frames have pieces of the model.
            error.__traceback__ = error.__context__ = error.__cause__ = None
            pull.transfer.failed(str(error))
            self._tell(EventKind.PULL_FAILED, f"{pull.model_id[:64]} was not pulled: {error}")
            pull.failed(error)
        except Exception as error:
            # A fault, which is counted and logged.
            pull.transfer.failed(f"{type(error).__name__}, which the node's log tells more of.")
            pull.failed(error)
            raise
        except asyncio.CancelledError:
            pull.transfer.failed("it was given up before it was there")
            raise
        finally:
            self._running.pop(pull.model_id, None)

    async def _brought(self, pull: ModelPull, source_ids: Sequence[str]) -> StoredModel | None:
        """From other nodes, or None after it came from the hub."""
        model_id = pull.model_id
        if source_ids:
            sources = named_sources(self._fleet, source_ids)
        else:
            sources = await holders(self._fleet, model_id)
        if sources:
            pull.copy = ModelCopy(
                model_id, sources, self._threads, time.monotonic, pull.transfer.progress
            )
            return await pull.copy.run()
        if not _is_of_hub(model_id):
            raise ModelNotFound(
                f"no other node of the fleet has {model_id[:64]!r}, and the hub would know it as"
                " organisation/name or organisation/name:file.gguf",
                model_id=model_id[:64],
            )
        pull.is_from_hub = True
        await asyncio.to_thread(self._from_hub, model_id, pull.transfer.progress)
        return None

    def _tell(self, kind: EventKind, message: str) -> None:
        self._activity.events.add(kind, message)


def _is_of_hub(name: str) -> bool:
    """Whether a name has the hub's form; what leads out of a repository has not."""
    is_written_so = name in PUBLISHED or any(each.fullmatch(name) for each in (HUB_ID, HUB_FILE))
    return is_written_so and ".." not in name.split("/")


def _pulled_text(pull: ModelPull) -> str:
    names = [each.name for each in pull.sources() if each.done_bytes]
    left = [f"{each.name} was left: {each.fault}" for each in pull.sources() if each.fault]
    whence = f"from {', '.join(names)}" if names else "from the hub"
    return "; ".join((f"{pull.model_id[:64]} came to this node's disk {whence}", *left)) + "."


def _leaving() -> Draining:
    return Draining("this node is leaving the fleet; pull the model to another")
