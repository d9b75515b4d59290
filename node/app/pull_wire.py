"""What a node says of pulls and of pulled models, as it travels."""

from __future__ import annotations

from collections.abc import Iterable

from kakeya.enum_names import number_of
from kakeya.v1 import model_service_pb2 as wire
from kakeya_fleet.engine.models.pulled_models import StoredModel
from kakeya_fleet.node.app.model_pulls import Pulled, PullStatus, SourceStatus
from kakeya_fleet.node.watch.watch_wire import transfer_to_wire

MOST_LISTED = 1024


def progress_to_wire(status: PullStatus) -> wire.PullProgress:
    """How a pull stands."""
    return wire.PullProgress(
        phase=number_of(wire.PullPhase, status.phase),
        transfer=transfer_to_wire(status.transfer),
        sources=_sources_to_wire(status.sources),
    )


def pulled_to_wire(pulled: Pulled, *, was_there: bool) -> wire.PulledModel:
    """A model that is on the disk."""
    told = wire.PulledModel(
        model_id=pulled.model_id,
        was_there=was_there,
        sources=() if was_there else _sources_to_wire(pulled.sources),
    )
    if pulled.model is not None:
        manifest = pulled.model.manifest
        told.byte_count = manifest.byte_count
        told.file_count = len(manifest.files)
        told.files_digest = manifest.digest
    return told


def stored_to_wire(models: Iterable[tuple[StoredModel, bool]]) -> wire.ListModelsResponse:
    """Models on the disk, and whether each is served."""
    told = [
        wire.StoredModel(
            model_id=model.manifest.model_id,
            byte_count=model.byte_count,
            files_digest=model.manifest.digest,
            is_whole=model.is_whole,
            is_served=is_served,
            pulled_at_unix=model.pulled_at_unix,
            source_names=model.sources,
        )
        for model, is_served in models
    ]
    return wire.ListModelsResponse(models=told[:MOST_LISTED])


def _sources_to_wire(sources: Iterable[SourceStatus]) -> list[wire.PullSource]:
    return [
        wire.PullSource(
            node_id=each.node_id, node_name=each.name, done_bytes=each.done_bytes, fault=each.fault
        )
        for each in sources
    ]
