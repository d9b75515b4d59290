"""ModelService: what a node serves and has on its disk, changed while it runs."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio

from kakeya.enum_names import number_of
from kakeya.v1 import model_pb2, model_service_pb2, model_service_pb2_grpc
from kakeya_fleet.engine.memory import system_memory
from kakeya_fleet.engine.models.model_manifest import DIGEST_BYTES
from kakeya_fleet.engine.models.public_names import is_public_name
from kakeya_fleet.engine.models.pulled_models import stored_place
from kakeya_fleet.engine.models.weight_choice import WEIGHTS
from kakeya_fleet.engine.proposers.names import TARGET_MARK, WITHOUT_FILES
from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.errors import ModelNotFound
from kakeya_fleet.node.admission.allowance import Allowance
from kakeya_fleet.node.admission.caller import THIS_MACHINE
from kakeya_fleet.node.app.model_loads import LoadStatus, ModelLoads
from kakeya_fleet.node.app.model_pulls import ModelPulls
from kakeya_fleet.node.app.pull_wire import progress_to_wire, pulled_to_wire, stored_to_wire
from kakeya_fleet.node.app.roles import Roles
from kakeya_fleet.node.config.role_spec import RoleSpec
from kakeya_fleet.node.copying.manifest_wire import files_to_wire
from kakeya_fleet.node.copying.shared_models import CHUNK_BYTES, SharedModels
from kakeya_fleet.node.copying.sources import MOST_SOURCES
from kakeya_fleet.node.membership.card_wire import offer_to_wire
from kakeya_fleet.node.membership.network import is_of_this_machine
from kakeya_fleet.node.rpc.calling import Peer, calling_of, proven
from kakeya_fleet.node.rpc.refusals import (
    Draining,
    MalformedMessage,
    ModelLoading,
    NotLoopback,
)
from kakeya_fleet.node.watch.watch_wire import transfer_to_wire

if TYPE_CHECKING:
    from typing import TypeAlias, TypeVar

    Request = TypeVar("Request")
    Response = TypeVar("Response")
    Context: TypeAlias = grpc.aio.ServicerContext[Request, Response]

SERVICE_NAME = model_service_pb2.DESCRIPTOR.services_by_name["ModelService"].full_name
MAX_NAME_CHARACTERS = 1024
MAX_DRAIN_SECONDS = 3600.0
MAX_UNLOAD_AFTER_SECONDS = 31_536_000.0
"""A year."""
READ_BYTES = 2 * CHUNK_BYTES
"""What a call that reads a piece has in memory: one chunk on its way, and the next one."""
_ROLES = {
    model_pb2.ROLE_VERIFIER: Role.VERIFIER,
    model_pb2.ROLE_PROPOSER: Role.PROPOSER,
}


class ModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    """Belongs to the event loop's thread.

    In a fleet with an authority `Authorisation` has asked whether the caller may; in one without
    a connection proves no more than its address, and this asks.
    """

    def __init__(
        self,
        roles: Roles,
        loads: ModelLoads,
        pulls: ModelPulls,
        shared: SharedModels,
        reads: Allowance,
        tell_peers: Callable[[], Awaitable[None]],
        drain_seconds: float,
    ) -> None:
        """Generations get `drain_seconds` to end where an unload says nothing.

        Callers that read pieces of `shared` have their share of `reads`, in bytes.
        """
        self._roles = roles
        self._loads = loads
        self._pulls = pulls
        self._shared = shared
        self._reads = reads
        self._tell_peers = tell_peers
        self._drain_seconds = drain_seconds

    async def LoadModel(  # noqa: N802
        self,
        request: model_service_pb2.LoadModelRequest,
        context: Context[
            model_service_pb2.LoadModelRequest,
            model_service_pb2.LoadModelResponse,
        ],
    ) -> AsyncIterator[model_service_pb2.LoadModelResponse]:
        """How the load stands, then the offer.

        Raises `NotLoopback`, `MalformedMessage`, and what `ModelLoads.served`, `ModelLoads.begin`
        and the load raise.
        """
        spec = _spec_of(request, is_here=_check_caller(context))
        unload_after = _unload_after(request)
        offer = self._loads.served(spec)
        was_served = offer is not None
        if offer is not None:
            self._loads.keep(spec, offer, unload_after)
        else:
            load = self._loads.begin(spec, unload_after)
            async for status in load.statuses():
                yield model_service_pb2.LoadModelResponse(progress=_progress_to_wire(status))
            offer = load.outcome.result()
        loaded = model_service_pb2.LoadedModel(offer=offer_to_wire(offer), was_served=was_served)
        yield model_service_pb2.LoadModelResponse(loaded=loaded)

    async def UnloadModel(  # noqa: N802
        self,
        request: model_service_pb2.UnloadModelRequest,
        context: Context[
            model_service_pb2.UnloadModelRequest,
            model_service_pb2.UnloadModelResponse,
        ],
    ) -> model_service_pb2.UnloadModelResponse:
        """Ends what is served.

        Raises `NotLoopback`, `MalformedMessage`, `ModelNotFound`, `ModelLoading`, `Draining`.
        """
        _check_caller(context)
        name = _checked_name("model_id", request.model_id)
        seconds = request.drain_seconds
        if not (math.isfinite(seconds) and 0 <= seconds <= MAX_DRAIN_SECONDS):
            raise MalformedMessage(f"drain_seconds is {seconds}: give 0 to {MAX_DRAIN_SECONDS:.0f}")
        if self._roles.draining:
            raise Draining("this node is leaving the fleet, and serves its models no more")
        self._check_idle(name)
        role, model_id = self._served(name, request.role)
        await self._roles.remove(role, model_id, seconds or self._drain_seconds)
        await self._tell_peers()
        return model_service_pb2.UnloadModelResponse(
            model_id=model_id,
            role=number_of(model_pb2.Role, role),
            memory_free_bytes=system_memory.available_bytes(),
        )

    async def PullModel(  # noqa: N802
        self,
        request: model_service_pb2.PullModelRequest,
        context: Context[
            model_service_pb2.PullModelRequest,
            model_service_pb2.PullModelResponse,
        ],
    ) -> AsyncIterator[model_service_pb2.PullModelResponse]:
        """How the pull stands, then the model.

        Raises `NotLoopback`, `MalformedMessage`, and what `ModelPulls.begin` says.
        """
        _check_caller(context)
        name = _checked_name("model", request.model)
        source_ids = request.source_node_ids
        if len(source_ids) > MOST_SOURCES or self._pulls.self_id in source_ids:
            raise MalformedMessage(
                f"source_node_ids has {len(source_ids)} ids: give at most {MOST_SOURCES}, of other"
                " nodes"
            )
        pulled = await self._pulls.there(name)
        was_there = pulled is not None
        if pulled is None:
            pull = self._pulls.begin(name, source_ids)
            async for status in pull.statuses():
                yield model_service_pb2.PullModelResponse(progress=progress_to_wire(status))
            pulled = pull.outcome.result()
        told = pulled_to_wire(pulled, was_there=was_there)
        yield model_service_pb2.PullModelResponse(pulled=told)

    async def RemoveModel(  # noqa: N802
        self,
        request: model_service_pb2.RemoveModelRequest,
        context: Context[
            model_service_pb2.RemoveModelRequest,
            model_service_pb2.RemoveModelResponse,
        ],
    ) -> model_service_pb2.RemoveModelResponse:
        """Removes what a pull brought.

        Raises `NotLoopback`, `MalformedMessage`, `ModelNotKept`, `ModelInUse`,
        `ModelCacheUnwritable`.
        """
        _check_caller(context)
        name = _checked_name("model_id", request.model_id)
        byte_count = await self._pulls.remove(name)
        return model_service_pb2.RemoveModelResponse(model_id=name, byte_count=byte_count)

    async def ListModels(  # noqa: N802
        self,
        request: model_service_pb2.ListModelsRequest,  # noqa: ARG002
        context: Context[  # noqa: ARG002
            model_service_pb2.ListModelsRequest,
            model_service_pb2.ListModelsResponse,
        ],
    ) -> model_service_pb2.ListModelsResponse:
        """What pulls brought."""
        return stored_to_wire(await self._pulls.all())

    async def GetModelFiles(  # noqa: N802
        self,
        request: model_service_pb2.GetModelFilesRequest,
        context: Context[  # noqa: ARG002
            model_service_pb2.GetModelFilesRequest,
            model_service_pb2.GetModelFilesResponse,
        ],
    ) -> AsyncIterator[model_service_pb2.GetModelFilesResponse]:
        """The files, then digests of their pieces. Raises `MalformedMessage`, `ModelNotFound`."""
        name = _checked_name("model_id", request.model_id)
        files, piece_bytes = await self._shared.files(name)
        told = files_to_wire(files, piece_bytes)
        yield model_service_pb2.GetModelFilesResponse(files=told)
        async for digests in self._shared.digests(name):
            told_digests = model_service_pb2.PieceDigests(sha256=digests)
            yield model_service_pb2.GetModelFilesResponse(digests=told_digests)

    async def ReadPiece(  # noqa: N802
        self,
        request: model_service_pb2.ReadPieceRequest,
        context: Context[
            model_service_pb2.ReadPieceRequest,
            model_service_pb2.ReadPieceResponse,
        ],
    ) -> AsyncIterator[model_service_pb2.ReadPieceResponse]:
        """The bytes of a piece. Raises `MalformedMessage`, `ModelNotFound`, `TooManyReads`."""
        name = _checked_name("model_id", request.model_id)
        if len(request.sha256) != DIGEST_BYTES:
            raise MalformedMessage(
                f"sha256 has {len(request.sha256)} bytes: give the {DIGEST_BYTES} of a piece"
            )
        with self._reads.holding(calling_of(context).caller, READ_BYTES):
            async for data in self._shared.piece(name, request.sha256):
                yield model_service_pb2.ReadPieceResponse(data=data)

    def _check_idle(self, name: str) -> None:
        """Raises `ModelLoading` while a model is loaded: the two would wait for each other."""
        names = [spec.model[:64] for spec in self._roles.expected.loading]
        if names:
            which = "it is" if names == [name] else f"{', '.join(names)} is"
            raise ModelLoading(
                f"{which} being loaded on this node: unload {name[:64]} once that has ended",
                model_id=names[0],
            )

    def _served(self, name: str, asked: model_pb2.Role.ValueType) -> tuple[Role, str]:
        """The one role and model id that a request names."""
        roles = tuple(_ROLES.values()) if not asked else (_role_of(asked),)
        found = {role: self._roles.served_as(role, name) for role in roles}
        served = [(role, each.model_id) for role, each in found.items() if each is not None]
        if len(served) > 1:
            raise MalformedMessage(
                f"{name[:64]} is served as a verifier and as a proposer: say which, with role"
            )
        if not served:
            known = ", ".join(offer.model_id for offer in self._roles.offers()) or "none"
            as_what = f" as a {roles[0].value}" if asked else ""
            raise ModelNotFound(
                f"{name[:64]!r} is not served here{as_what}; served: {known}",
                model_id=name[:64],
                served=known,
            )
        return served[0]


def _check_caller(context: Peer) -> bool:
    """Whether a program of this machine calls. Raises `NotLoopback` where only those may."""
    found = proven.get()
    if found is not None:
        return found.caller == THIS_MACHINE
    if not is_of_this_machine(context.peer()):
        raise NotLoopback(
            "in a fleet without an authority a node's models are loaded, unloaded, pulled and"
            " removed from its own machine only"
        )
    return True


def _spec_of(request: model_service_pb2.LoadModelRequest, *, is_here: bool) -> RoleSpec:
    """What is to be served. Raises `MalformedMessage`, `NotLoopback`."""
    model = _checked_name("model", request.model)
    role = _role_of(request.role or model_pb2.ROLE_VERIFIER)
    if request.weights and request.weights not in WEIGHTS:
        raise MalformedMessage(
            f"weights is {request.weights[:64]!r}: give one of {', '.join(WEIGHTS)}"
        )
    if not is_here and not _is_known_anywhere(role, model):
        raise NotLoopback(
            f"{model[:64]!r} is no name that means the same on every machine, and a path of a"
            " node's disk is loaded from its own machine only: from another name a shipped or"
            " published model, or one of the hub"
        )
    return RoleSpec(role, model, request.weights)


def _unload_after(request: model_service_pb2.LoadModelRequest) -> float | None:
    """Seconds, None where nothing is said. Raises `MalformedMessage`."""
    if not request.HasField("unload_after_seconds"):
        return None
    seconds = request.unload_after_seconds
    if not (math.isfinite(seconds) and 0 <= seconds <= MAX_UNLOAD_AFTER_SECONDS):
        raise MalformedMessage(
            f"unload_after_seconds is {seconds}: give 0 to {MAX_UNLOAD_AFTER_SECONDS:.0f}"
        )
    return seconds


def _is_known_anywhere(role: Role, model: str) -> bool:
    """Whether a name says the same to every machine; `MODEL@TARGET` if both do.

    So does that of a model that other machines gave this one.
    """
    if role is not Role.PROPOSER:
        return _is_known(model)
    if model in WITHOUT_FILES:
        return True
    return all(map(_is_known, model.rsplit(TARGET_MARK, 1))) and not Path(model).exists()


def _is_known(model: str) -> bool:
    is_pulled = stored_place(model) is not None and not Path(model).exists()
    return is_pulled or is_public_name(model)


def _role_of(number: model_pb2.Role.ValueType) -> Role:
    """Raises `MalformedMessage` for what no model is served as."""
    role = _ROLES.get(number)
    if role is None:
        raise MalformedMessage(
            "role is none of a model: give ROLE_VERIFIER or ROLE_PROPOSER; memory for others is"
            " given with `fleet join --serve archive=AMOUNT`"
        )
    return role


def _checked_name(field: str, name: str) -> str:
    """`name` without white space around it. Raises `MalformedMessage`."""
    if not name.strip() or len(name) > MAX_NAME_CHARACTERS or "\0" in name:
        raise MalformedMessage(
            f"{field} has {len(name)} characters: give a model's name, 1 to {MAX_NAME_CHARACTERS}"
        )
    return name.strip()


def _progress_to_wire(status: LoadStatus) -> model_service_pb2.LoadProgress:
    transfer = transfer_to_wire(status.transfer) if status.transfer is not None else None
    return model_service_pb2.LoadProgress(
        phase=number_of(model_service_pb2.LoadPhase, status.phase), transfer=transfer
    )
