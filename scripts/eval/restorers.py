"""The restorers of one verifier, as the evaluations use them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path

import torch

from kakeya_fleet.engine.backends import load_map_encoder
from kakeya_fleet.engine.backends.torch_backend.evicted_store import TorchEvictedStore
from kakeya_fleet.engine.backends.torch_backend.projecting import projecting_store
from kakeya_fleet.engine.backends.torch_backend.projection import Projection, load_projection
from kakeya_fleet.engine.contracts.evicted_shape import EvictedShape
from kakeya_fleet.engine.contracts.evicted_store import EvictedStore
from kakeya_fleet.engine.contracts.features import FeatureEncoder
from kakeya_fleet.engine.contracts.restorer_spec import RestorerKind, RestorerSpec
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.kv.group_store import kv_pool
from kakeya_fleet.engine.restoration.learned_map import LearnedMap, find_map
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.archive.archive_ways import ArchiveWays
from kakeya_fleet.node.roles.archive.opening import Opening
from kakeya_fleet.node.roles.settings import RestorerSettings
from scripts.bench.archive_process import ArchiveProcess
from scripts.bench.kv_strategies import KeysValues, Numbers, Restorer

LOCAL = "local"
"""Instead of an archive's process: the same stores in this one."""
DEADLINE_SECONDS = 60.0
"""Longest wait for an answer: a machine that measures is not a machine that failed."""


class Restoring:
    """The restorers that there are on this machine; `close` ends what it started.

    All but `identity` keep what is evicted in the archive's process.
    """

    def __init__(self, verifier: Verifier, learned: str, archive: str, *, threads: int = 1) -> None:
        """`learned` names a shipped drafter with a learned map or its folder; none when empty.

        `archive` is the bytes of an archive to be started, such as `4GiB`, the
        address host:port of one that runs, or `LOCAL`; one that is started computes
        with `threads`. Raises `ModelNotFound`, `TrainedForAnother`.
        """
        self._digest = verifier.info.weights_digest
        self._pool = kv_pool()
        self._loop = asyncio.new_event_loop()
        drafters = {}
        if learned and Path(learned).is_dir():
            drafters[Path(learned).name] = Path(learned)
            learned = Path(learned).name
        self._map = find_map(learned, self._digest, drafters) if learned else None
        if self._map is not None:
            self._map.check_verifier(verifier.info.model_id, self._digest)
        self._process: ArchiveProcess | None = None
        self._address = archive if ":" in archive else ""
        if archive != LOCAL and not self._address:
            self._process = ArchiveProcess(archive, drafters, threads)
            self._address = self._process.address
        self._ways = ArchiveWays(
            NodeMetrics(), RestorerSettings(deadline=DEADLINE_SECONDS), time.monotonic
        )
        identity = RestorerSpec(RestorerKind.IDENTITY)
        self.restorers: dict[RestorerKind, Restorer] = {
            RestorerKind.IDENTITY: Restorer(
                identity, lambda shape: TorchEvictedStore(shape, identity, self._pool)
            ),
            RestorerKind.ARCHIVE: self._elsewhere(RestorerSpec(RestorerKind.ARCHIVE)),
        }
        if self._map is not None:
            self.restorers[RestorerKind.PROJECTION] = self._projection(self._map)
        self.description = _description(self._map, is_local=archive == LOCAL)

    @property
    def address(self) -> str:
        """That of the archive, for other processes; `LOCAL` when there is none."""
        return self._address or LOCAL

    def packed(self, codec: str) -> Restorer:
        """A restorer that keeps keys and values in the archive, packed by a codec."""
        return self._elsewhere(RestorerSpec(RestorerKind.ARCHIVE, codec=codec))

    def close(self) -> None:
        """Ends the ways to the archive, and its process if it was started here."""
        self._loop.run_until_complete(self._ways.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        if self._process is not None:
            self._process.close()

    def _elsewhere(self, spec: RestorerSpec) -> Restorer:
        """A restorer that keeps keys and values in the archive."""
        return Restorer(spec, lambda shape: self._opened(spec, shape, None, None))

    def _projection(self, found: LearnedMap) -> Restorer:
        encoder = load_map_encoder(found)
        projection = load_projection(found.path)
        return Restorer(
            found.spec,
            lambda shape: self._opened(found.spec, shape, encoder, projection),
            lambda vectors, first: _mapped(projection, vectors, first),
        )

    def _opened(
        self,
        spec: RestorerSpec,
        shape: EvictedShape,
        encoder: FeatureEncoder | None,
        projection: Projection | None,
    ) -> EvictedStore:
        if not self._address:
            if projection is None:
                return TorchEvictedStore(shape, spec, self._pool)
            return projecting_store(shape, spec, self._pool, projection, encoder)
        opening = Opening(restorer=spec, shape=shape, verifier_digest=self._digest)
        opened = self._loop.run_until_complete(self._ways.open(self._address, opening, encoder))
        return opened.store


def _mapped(projection: Projection, vectors: Numbers, first: int) -> Mapping[int, KeysValues]:
    """Each layer's keys and values of what was deposited, [n, width], from `first` on."""
    positions = torch.arange(first, first + len(vectors))
    with torch.inference_mode():
        layers = projection.restored(torch.from_numpy(vectors), positions)
    return {index: (keys.numpy(), values.numpy()) for index, (keys, values) in enumerate(layers)}


def _description(found: LearnedMap | None, *, is_local: bool) -> dict[str, object]:
    """For reports."""
    told: dict[str, object] = {
        "archive": "in this process" if is_local else "another process on this machine"
    }
    if found is not None:
        told |= {"learned_map": found.model_id, "digest": found.spec.digest, "width": found.width}
        told |= trained_by(found.folder)
    return told


def trained_by(folder: Path) -> dict[str, object]:
    """Steps and the longest row of a map that `scripts.train.pair` trained alone; else nothing."""
    manifest = folder / "training.json"
    if not manifest.is_file():
        return {}
    training = json.loads(manifest.read_bytes()).get("training", {})
    if training.get("train") != "restorer":
        return {}
    return {"steps": training["steps"], "longest_row": max(training["restore_lengths"])}
