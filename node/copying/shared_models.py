"""What other nodes may read: the files of models that this one serves or has pulled, by digest.

A caller names a model and the digest of a piece, never a path. A model's files are read once for
their digests, when somebody first asks, and again when they changed; those of a pulled model are
known.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from kakeya_fleet.engine.errors import ModelNotFound, ModelUnusable
from kakeya_fleet.engine.models.model_files import place_of, travelling_files
from kakeya_fleet.engine.models.model_manifest import (
    DIGEST_BYTES,
    PIECE_BYTES,
    BadManifest,
    Manifest,
    ModelFile,
    check_files,
)
from kakeya_fleet.engine.models.pulled_models import stored, stored_place
from kakeya_fleet.node.copying.disk_threads import DiskThreads

CHUNK_BYTES = 1 << 20
"""Of a piece, in one message."""
MOST_KNOWN = 16
"""Models whose digests are kept: 400 bytes a piece of 8 MiB, 5 MB of one of 100 GB."""
TOLD_PIECES = 16
"""Digests in one message, while they are being found."""

Stamp = tuple[int, int, int, int]
"""Size, inode and times: tells a file as it was from one that was changed."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a piece is, in a file as it was when it was read."""

    path: Path
    stamp: Stamp
    offset: int
    byte_count: int


@dataclass(frozen=True, slots=True)
class _Found:
    """A model's files, and what is known of them without reading them."""

    files: tuple[ModelFile, ...]
    paths: Mapping[str, Path]
    stamps: Mapping[str, Stamp]
    known: Manifest | None

    @property
    def piece_bytes(self) -> int:
        return self.known.piece_bytes if self.known is not None else PIECE_BYTES


@dataclass(slots=True, eq=False)
class _Shared:
    """One model, of which more and more digests are found; `loaded_from` as when it was asked."""

    found: _Found
    loaded_from: str | None
    digests: bytearray = field(default_factory=bytearray)
    places: dict[bytes, _Place] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    reading: asyncio.Task[None] | None = None

    def add(self, digest: bytes, place: _Place) -> None:
        self.digests += digest
        # Equal pieces are the same bytes.
        self.places.setdefault(digest, place)

    def tell(self) -> None:
        """Wakes who waits for more."""
        before, self.changed = self.changed, asyncio.Event()
        before.set()


class SharedModels:
    """Belongs to one event loop."""

    def __init__(self, loaded_from: Callable[[str], str | None], threads: DiskThreads) -> None:
        """`loaded_from` gives what a served model was told by; None for one that is not served."""
        self._loaded_from = loaded_from
        self._threads = threads
        self._known: OrderedDict[str, _Shared] = OrderedDict()

    async def files(self, model_id: str) -> tuple[tuple[ModelFile, ...], int]:
        """A model's files, and the size of its pieces. Raises `ModelNotFound`."""
        shared = await self._shared(model_id)
        return shared.found.files, shared.found.piece_bytes

    async def digests(self, model_id: str) -> AsyncIterator[bytes]:
        """The digests of its pieces, in order, as they are found. Raises `ModelNotFound`."""
        shared = await self._shared(model_id)
        told = 0
        while True:
            changed, there = shared.changed, len(shared.digests)
            ended = shared.reading is None or shared.reading.done()
            while told < there:
                end = min(there, told + TOLD_PIECES * DIGEST_BYTES)
                yield bytes(shared.digests[told:end])
                told = end
            if ended:
                break
            await changed.wait()
        if shared.reading is not None:
            if shared.reading.cancelled():
                raise _no_piece(model_id)
            shared.reading.result()

    async def piece(self, model_id: str, sha256: bytes) -> AsyncIterator[bytes]:
        """The bytes of one piece, a chunk at a time; the next one is read meanwhile.

        Raises `ModelNotFound`, also for one that has changed.
        """
        shared = self._known.get(model_id)
        if shared is None or shared.loaded_from != self._loaded_from(model_id):
            # Nobody has asked for its files since the start, or it is served no more, or otherwise.
            shared = await self._shared(model_id)
        place = shared.places.get(sha256)
        if place is None:
            raise _no_piece(model_id)
        chunks = range(0, place.byte_count, CHUNK_BYTES)
        reading = self._threads.begin(partial(_read, place, 0))
        for start in chunks:
            data = await reading
            if data is None:
                raise _no_piece(model_id)
            if start + CHUNK_BYTES < place.byte_count:
                reading = self._threads.begin(partial(_read, place, start + CHUNK_BYTES))
            yield data

    async def close(self) -> None:
        """Ends what is being read."""
        readings = [each.reading for each in self._known.values() if each.reading is not None]
        for reading in readings:
            reading.cancel()
        await asyncio.gather(*readings, return_exceptions=True)

    async def _shared(self, model_id: str) -> _Shared:
        loaded_from = self._loaded_from(model_id)
        found = await self._threads.run(partial(_find, model_id, loaded_from))
        shared = self._known.get(model_id)
        if shared is None or _is_stale(shared, found):
            fresh = await self._threads.run(partial(_begun, found, loaded_from))
            # Somebody else may have begun it meanwhile.
            shared = self._known.get(model_id)
            if shared is None or _is_stale(shared, found):
                shared = self._known[model_id] = fresh
                self._begin_reading(model_id, shared)
        shared.loaded_from = loaded_from
        self._known.move_to_end(model_id)
        return shared

    def _begin_reading(self, model_id: str, shared: _Shared) -> None:
        if shared.found.known is None:
            reading = self._read_all(model_id, shared)
            shared.reading = asyncio.create_task(reading, name=f"digests of {model_id[:64]}")
            shared.reading.add_done_callback(_look)
        while len(self._known) > MOST_KNOWN:
            _, oldest = self._known.popitem(last=False)
            if oldest.reading is not None:
                oldest.reading.cancel()

    async def _read_all(self, model_id: str, shared: _Shared) -> None:
        found = shared.found
        try:
            for file in found.files:
                path, stamp = found.paths[file.name], found.stamps[file.name]
                for offset in range(0, file.byte_count, PIECE_BYTES):
                    size = min(PIECE_BYTES, file.byte_count - offset)
                    place = _Place(path, stamp, offset, size)
                    digest = await self._threads.run(partial(_digest, place))
                    if digest is None:
                        raise _no_piece(model_id)
                    shared.add(digest, place)
                    shared.tell()
        finally:
            asyncio.get_running_loop().call_soon(shared.tell)


def _find(model_id: str, loaded_from: str | None) -> _Found:
    """Raises `ModelNotFound`."""
    pulled = stored_place(model_id)
    place = (place_of(loaded_from) if loaded_from is not None else None) or pulled
    if place is None:
        raise ModelNotFound(
            f"this node neither serves {model_id[:64]!r} from files nor has pulled it",
            model_id=model_id[:64],
        )
    model = stored(model_id) if place == pulled else None
    try:
        if model is not None:
            paths = {each.name: model.files / each.name for each in model.manifest.files}
            files = model.manifest.files
        else:
            paths = travelling_files(place)
            sizes = ((name, path.stat().st_size) for name, path in paths.items())
            files = tuple(ModelFile(name, size) for name, size in sizes)
            check_files(files, PIECE_BYTES)
        stamps = {name: _stamp(path.stat()) for name, path in paths.items()}
    except (OSError, ModelUnusable, BadManifest) as error:
        raise ModelNotFound(
            f"the files of {model_id[:64]!r} are not to be had here: {error}",
            model_id=model_id[:64],
        ) from error
    return _Found(files, paths, stamps, model.manifest if model is not None else None)


def _begun(found: _Found, loaded_from: str | None) -> _Shared:
    """What is known of a model before its files are read: all of a pulled one."""
    shared = _Shared(found, loaded_from)
    for piece in found.known.pieces() if found.known is not None else ():
        path, stamp = found.paths[piece.file], found.stamps[piece.file]
        shared.add(piece.sha256, _Place(path, stamp, piece.offset, piece.byte_count))
    return shared


def _is_stale(shared: _Shared, found: _Found) -> bool:
    failed = (
        shared.reading is not None
        and shared.reading.done()
        and bool(shared.reading.cancelled() or shared.reading.exception())
    )
    same = (shared.found.paths, shared.found.stamps) == (found.paths, found.stamps)
    return failed or not same


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _read(place: _Place, start: int) -> bytes | None:
    """A chunk of a piece; None where its file is another than it was."""
    size = min(CHUNK_BYTES, place.byte_count - start)
    try:
        with place.path.open("rb", buffering=0) as file:
            if _stamp(os.fstat(file.fileno())) != place.stamp:
                return None
            data = os.pread(file.fileno(), size, place.offset + start)
    except OSError:
        return None
    return data if len(data) == size else None


def _digest(place: _Place) -> bytes | None:
    """SHA-256 of a piece; None where its file is another than it was."""
    digest = hashlib.sha256()
    for start in range(0, place.byte_count, CHUNK_BYTES):
        data = _read(place, start)
        if data is None:
            return None
        digest.update(data)
    return digest.digest()


def _look(reading: asyncio.Task[None]) -> None:
    if not reading.cancelled():
        reading.exception()


def _no_piece(model_id: str) -> ModelNotFound:
    return ModelNotFound(
        f"{model_id[:64]!r} has no such piece here, or has changed on the disk; ask for its files"
        " again",
        model_id=model_id[:64],
    )
