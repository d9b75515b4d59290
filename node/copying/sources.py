"""Nodes that a model is copied from: who has it, which files, and the bytes of one piece."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import grpc
import grpc.aio

from kakeya.v1 import model_service_pb2 as wire
from kakeya.v1.model_service_pb2_grpc import ModelServiceStub
from kakeya_fleet.engine.models.model_manifest import BadManifest, Manifest, Piece
from kakeya_fleet.fleet.cards.liveness import Liveness
from kakeya_fleet.fleet.errors import NodeNotFound
from kakeya_fleet.node.copying.manifest_wire import ManifestReader
from kakeya_fleet.node.planning.fleet_view import FleetView
from kakeya_fleet.node.rpc.closed_channels import closed_under_call

MOST_SOURCES = 8
"""Each has two pieces of 8 MiB under way: 128 MiB together."""
MOST_ASKED = 32
"""Of those that do not serve the model; what they have pulled is not on their cards."""
LIST_SECONDS = 3.0
FILES_SECONDS = 60.0
"""Between two messages of a model's files: a source reads 128 MiB for each."""
FILES_SECONDS_A_PIECE = 2.0
"""For all messages together besides: of a disk that gives 4 MB/s."""
SILENT_SECONDS = 10.0
"""Between two messages of a piece."""
PIECE_SECONDS = 300.0
"""A whole one: 8 MiB at 28 kB/s. Who is slower would hold up the end."""
MOST_CHANNELS = 3
"""In a row that are closed under a source's answer: one is opened with each new certificate, and
with each new way to the node."""
CLOSED = "the connection to it was closed again and again"
_SHOWN_CHARACTERS = 200


class SourceFault(Exception):
    """Why nothing more is asked of a source."""


class SourceBusy(Exception):
    """It gives as many pieces at once as it may: later."""


class ChannelClosed(Exception):
    """By this node itself, under the call: the source is to be asked by the channel of now."""


@dataclass(frozen=True, slots=True)
class Source:
    """A node of the fleet.

    `channel` gives the channel to it of now, which is somebody else's to close, and raises
    `NodeNotFound` where it has left.
    """

    node_id: str
    name: str
    channel: Callable[[], grpc.aio.Channel]


async def holders(fleet: FleetView, model_id: str) -> list[Source]:
    """The nearest nodes that serve the model or have pulled it, 8 at most."""
    others = [
        view.card
        for view in fleet.nodes()
        if view.liveness is Liveness.ALIVE and view.card.node_id != fleet.self_id
    ]
    others.sort(key=lambda card: _distance(fleet, card.node_id))
    serving = {
        card.node_id
        for card in others
        if any(offer.model_id == model_id and offer.weights_digest for offer in card.models)
    }
    asked = [card for card in others if card.node_id not in serving][:MOST_ASKED]
    have = await asyncio.gather(
        *(_has_pulled(fleet.channel(card.node_id), model_id) for card in asked)
    )
    pulled = {card.node_id for card, has in zip(asked, have, strict=True) if has}
    found = [card for card in others if card.node_id in serving | pulled]
    return [
        Source(each.node_id, each.name, partial(fleet.channel, each.node_id))
        for each in found[:MOST_SOURCES]
    ]


def named_sources(fleet: FleetView, node_ids: Sequence[str]) -> list[Source]:
    """Those with these ids, in that order. Raises `NodeNotFound`."""
    names = {view.card.node_id: view.card.name for view in fleet.nodes()}
    # Who is not known is told before the copy begins.
    for each in node_ids:
        fleet.channel(each)
    return [Source(each, names.get(each, ""), partial(fleet.channel, each)) for each in node_ids]


async def files_of(source: Source, model_id: str) -> Manifest:
    """Which files it has of a model. Raises `SourceFault`."""
    for _ in range(MOST_CHANNELS):
        try:
            return await _files_of(source, model_id)
        except ChannelClosed:
            continue
    raise SourceFault(CLOSED)


async def _files_of(source: Source, model_id: str) -> Manifest:
    """As `files_of`; raises `ChannelClosed` too."""
    reader, began = ManifestReader(model_id), asyncio.get_running_loop().time()
    request = wire.GetModelFilesRequest(model_id=model_id)
    try:
        call = ModelServiceStub(source.channel()).GetModelFiles(request)
        try:
            async with asyncio.timeout(FILES_SECONDS) as together:
                while not reader.is_whole:
                    async with asyncio.timeout(FILES_SECONDS):
                        message = await call.read()
                    if not isinstance(message, wire.GetModelFilesResponse):
                        break
                    reader.take(message)
                    seconds = FILES_SECONDS + FILES_SECONDS_A_PIECE * reader.piece_count
                    together.reschedule(began + seconds)
        finally:
            call.cancel()
        return reader.manifest()
    except BadManifest as error:
        raise SourceFault(f"what it says of the model's files is refused: {error}") from error
    except (grpc.aio.AioRpcError, TimeoutError, NodeNotFound) as error:
        raise SourceFault(_cause(error)) from error
    except (grpc.aio.UsageError, asyncio.CancelledError) as error:
        raise _closed_or_cancelled(error) from error


async def bytes_of(
    source: Source, model_id: str, piece: Piece, into: bytearray, heard: Callable[[int], None]
) -> memoryview:
    """One piece, as long as it is to be, in the first bytes of `into`, which has room for it.

    `heard` hears of bytes that came. Raises `SourceFault`, `SourceBusy`, `ChannelClosed`.
    """
    view, came = memoryview(into)[: piece.byte_count], 0
    request = wire.ReadPieceRequest(model_id=model_id, sha256=piece.sha256)
    try:
        call = ModelServiceStub(source.channel()).ReadPiece(request)
        try:
            async with asyncio.timeout(PIECE_SECONDS):
                while came < piece.byte_count:
                    async with asyncio.timeout(SILENT_SECONDS):
                        message = await call.read()
                    if not isinstance(message, wire.ReadPieceResponse) or not message.data:
                        break
                    data = message.data
                    if came + len(data) > piece.byte_count:
                        raise _wrong_length(piece, came + len(data))
                    view[came : came + len(data)] = data
                    came += len(data)
                    heard(len(data))
        finally:
            call.cancel()
    except (grpc.aio.AioRpcError, TimeoutError, NodeNotFound) as error:
        if isinstance(error, grpc.aio.AioRpcError) and _is_full(error):
            raise SourceBusy from error
        raise SourceFault(_cause(error)) from error
    except (grpc.aio.UsageError, asyncio.CancelledError) as error:
        raise _closed_or_cancelled(error) from error
    if came != piece.byte_count:
        raise _wrong_length(piece, came)
    return view


def _wrong_length(piece: Piece, came: int) -> SourceFault:
    return SourceFault(
        f"it gave {came:,} bytes for a piece of {piece.file} that has {piece.byte_count:,}"
    )


async def _has_pulled(channel: grpc.aio.Channel, model_id: str) -> bool:
    try:
        call = ModelServiceStub(channel).ListModels(wire.ListModelsRequest(), timeout=LIST_SECONDS)
        listed = await call
    except (grpc.aio.AioRpcError, grpc.aio.UsageError):
        # One that does not answer, or is of an older version, has nothing for us.
        return False
    except asyncio.CancelledError:
        if not closed_under_call():
            raise
        return False
    return any(model.model_id == model_id and model.is_whole for model in listed.models)


def _distance(fleet: FleetView, node_id: str) -> float:
    seconds = fleet.round_trip(node_id)
    return math.inf if seconds is None else seconds


def _is_full(error: grpc.aio.AioRpcError) -> bool:
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def _cause(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        words = " ".join((error.details() or "").split())[:_SHOWN_CHARACTERS]
        return words or error.code().name
    if isinstance(error, TimeoutError):
        return "it said nothing for too long"
    return "it has left the fleet"


def _closed_or_cancelled(error: BaseException) -> BaseException:
    """What a call ends with whose channel was closed before it, or under it."""
    if isinstance(error, asyncio.CancelledError) and not closed_under_call():
        return error
    return ChannelClosed()
