"""Models that a running node was asked to serve, each until it is served or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path

from kakeya_fleet.engine.errors import EngineError
from kakeya_fleet.engine.models.model_folder import model_id_of
from kakeya_fleet.fleet.cards.card import ModelOffer, Role
from kakeya_fleet.fleet.errors import FleetError, ModelNotFound
from kakeya_fleet.node.app.roles import Roles
from kakeya_fleet.node.app.told_work import ToldWork
from kakeya_fleet.node.config.role_spec import BadRoleSpec, RoleSpec, named_twice
from kakeya_fleet.node.errors import NodeError
from kakeya_fleet.node.roles.cycles import free_removed
from kakeya_fleet.node.rpc.refusals import Draining, ModelLoading, Refusal, TooManyLoads
from kakeya_fleet.node.watch.background import BackgroundTasks
from kakeya_fleet.node.watch.transfers import TransferKind, Transfers, TransferStatus


class LoadPhase(Enum):
    """What a load does."""

    WAITING = "waiting"
    """Another model is loaded, or unloaded, first."""
    FETCHING = "fetching"
    """Its files are looked for, come from the hub, or are converted."""
    READING = "reading"
    """Its weights come into memory."""
    CHECKING = "checking"
    """It is checked and measured on this machine."""


@dataclass(frozen=True, slots=True)
class LoadStatus:
    """How a load stands; `transfer` is None while it waits, and before there is one."""

    phase: LoadPhase
    transfer: TransferStatus | None = None


class ModelLoad(ToldWork[ModelOffer, LoadStatus]):
    """One load; its outcome is what the card says of the model, or it raises as `Roles.add`."""

    def __init__(self, spec: RoleSpec, transfers: Transfers) -> None:
        """It is seen in `transfers` once its turn has come."""
        super().__init__()
        self.spec = spec
        self.unload_after_seconds: float | None = None
        """After how long without use it is to be unloaded; None where nobody said."""
        self._model_id = model_id_of(spec.model)
        self._transfers = transfers
        self._after: int | None = None

    def begins(self) -> None:
        """Its turn has come: no other load has transfers that begin from now on."""
        self._after = self._transfers.count

    def joins(self) -> None:
        """It is under way already, and so are its transfers."""
        self._after = 0

    def status(self) -> LoadStatus:
        """How it stands."""
        if self._after is None:
            return LoadStatus(LoadPhase.WAITING)
        transfer = self._transfers.latest_of(self._model_id, self._after)
        if transfer is None or transfer.kind is TransferKind.DOWNLOAD:
            return LoadStatus(LoadPhase.FETCHING, transfer)
        has_all = 0 < transfer.total_bytes <= transfer.done_bytes
        return LoadStatus(LoadPhase.CHECKING if has_all else LoadPhase.READING, transfer)


class ModelLoads:
    """The loads that run or wait. Belongs to one event loop."""

    def __init__(
        self,
        roles: Roles,
        transfers: Transfers,
        tasks: BackgroundTasks,
        tell_peers: Callable[[], Awaitable[None]],
        most: int,
        keep_for: Callable[[Role, str, float | None], None],
    ) -> None:
        """At most `most` at once, each one of `tasks`; `tell_peers` is called behind each.

        `keep_for` hears of each model that is served now after how long it is to be unloaded.
        """
        self._roles = roles
        self._transfers = transfers
        self._tasks = tasks
        self._tell_peers = tell_peers
        self._most = most
        self._keep_for = keep_for
        self._running: dict[ModelLoad, asyncio.Future[None]] = {}
        self.refused_count = 0

    def __len__(self) -> int:
        return len(self._running)

    def served(self, spec: RoleSpec) -> ModelOffer | None:
        """What the card says of a model that is served already; None if it is not.

        Raises `BadRoleSpec` for one that is served with other weights, or another of its name;
        `ModelLoading` while its group is started again.
        """
        roles, named = self._roles, model_id_of(spec.model)
        served = roles.served_as(spec.role, spec.model) or roles.served_as(spec.role, named)
        if served is None:
            return None
        if spec.model != served.model_id and not _same_place(spec.model, served.spec.model):
            raise named_twice(spec, served.model_id)
        self._check_weights(spec, served.spec, "is served")
        offer = roles.offer_of(spec.role, served.model_id)
        if offer is None:
            raise ModelLoading(
                f"the group that serves {served.model_id} is being started again",
                model_id=served.model_id,
            )
        return offer

    def keep(self, spec: RoleSpec, offer: ModelOffer, seconds: float | None) -> None:
        """Says of a model that is served already after how long it is to be unloaded."""
        self._keep_for(spec.role, offer.model_id, seconds)

    def begin(self, spec: RoleSpec, unload_after_seconds: float | None = None) -> ModelLoad:
        """The load of a model that is not served; the one that runs already, where one does.

        What is said last of `unload_after_seconds` counts.

        Raises `Draining`, `TooManyLoads`; `BadRoleSpec` where it is being loaded with other
        weights.
        """
        if self._roles.draining:
            raise _leaving()
        for load in self._running:
            # One that has come to nothing is not waited for, though what it read is not free yet.
            if _names_one(spec, load.spec) and not load.outcome.done():
                self._check_weights(spec, load.spec, "is being loaded")
                if unload_after_seconds is not None:
                    load.unload_after_seconds = unload_after_seconds
                return load
        if len(self._running) >= self._most:
            self.refused_count += 1
            waiting = ", ".join(load.spec.model[:64] for load in self._running)
            raise TooManyLoads(
                f"{len(self._running)} models are loaded here, or wait for it ({waiting}): ask"
                " again when one of them is there"
            )
        loading = self._roles.expected.loading
        under_way = next((each for each in loading if _names_one(each, spec)), None)
        load = ModelLoad(spec, self._transfers)
        load.unload_after_seconds = unload_after_seconds
        if under_way is not None:
            self._check_weights(spec, under_way, "is being loaded")
            load.joins()
        elif not self._running and not self._roles.is_changing:
            # It is its turn as soon as it runs.
            load.begins()
        work = partial(self._run, load, under_way)
        self._running[load] = self._tasks.once("load of a model", work)
        return load

    def close(self) -> None:
        """Gives up those that run: the node leaves."""
        for load, task in self._running.items():
            load.failed(_leaving())
            task.cancel()

    async def _run(self, load: ModelLoad, under_way: RoleSpec | None) -> None:
        try:
            offer = await self._loaded(load, under_way)
            self._keep_for(load.spec.role, offer.model_id, load.unload_after_seconds)
            load.done(offer)
        except (EngineError, FleetError, NodeError, Refusal) as error:
            has_read = load.status().phase in (LoadPhase.READING, LoadPhase.CHECKING)
            # Frames have what was read of the model, and its modules refer to each other.
            error.__traceback__ = error.__context__ = error.__cause__ = None
            load.failed(error)
            if has_read:
                await free_removed()
        except Exception as error:
            load.failed(error)
            # A fault, which is counted and logged.
            raise
        finally:
            del self._running[load]

    async def _loaded(self, load: ModelLoad, under_way: RoleSpec | None) -> ModelOffer:
        """Loads it, or waits where the node does so for another reason, as `under_way` says."""
        spec, roles = load.spec, self._roles
        if under_way is not None:
            load.joins()
            await roles.expected.settled(under_way)
            served = roles.served_as(spec.role, spec.model)
            model_id = served.model_id if served is not None else ""
        else:
            model_id = await roles.add(spec, load.begins)
            await self._tell_peers()
        offer = roles.offer_of(spec.role, model_id)
        if offer is None:
            name = spec.model[:64]
            cause = f"{name} was unloaded as soon as it was there, or its other load failed"
            raise ModelNotFound(cause, model_id=name)
        return offer

    def _check_weights(self, asked: RoleSpec, there: RoleSpec, cause: str) -> None:
        """Raises `BadRoleSpec` for what is asked for with other weights than it has."""
        weights = self._roles.weights_of(there)
        if asked.weights not in ("", weights):
            raise BadRoleSpec(
                f"{asked.model[:64]} {cause} with --weights {weights}",
                f"unload it first to have it with --weights {asked.weights}",
                spec=asked.model[:64],
            )


def _names_one(spec: RoleSpec, other: RoleSpec) -> bool:
    """Whether both name one model in one role."""
    return (spec.role, spec.model) == (other.role, other.model)


def _same_place(one: str, other: str) -> bool:
    """Whether two names of models mean the same, or one folder or file of this machine."""
    first, second = (Path(each).expanduser() for each in (one, other))
    return one == other or (first.exists() and first.resolve() == second.resolve())


def _leaving() -> Draining:
    return Draining("this node is leaving the fleet; load the model on another")
