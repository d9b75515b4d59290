"""Models that came from other machines, on this one's disk: whole, or on their way.

Each has a folder of its own, named after the model: its files in `files/`, and `pulled.json`, which
says what they are. One on its way has the same under another name, with `have`, a byte a piece that
is 1 where the piece was written: a hint alone, since what is there is compared with its digest
before it counts. All nodes of a machine that have one XDG_CACHE_HOME have the same models.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from kakeya_fleet.engine.errors import ModelInUse, ModelNotKept
from kakeya_fleet.engine.models.model_cache import (
    cache_base,
    check_room,
    flush,
    locked,
    unwritable,
)
from kakeya_fleet.engine.models.model_manifest import (
    GGUF_SUFFIX,
    BadManifest,
    Manifest,
    ModelFile,
    Piece,
)

RECORD, FILES, HAVE = "pulled.json", "files", "have"
PART_SUFFIX, GONE_SUFFIX = ".part", ".gone"
_NO_ALLOCATION = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model that was pulled; `sources` are the names of the nodes that it came from.

    Of one that is not whole `byte_count` is what was written, and `pulled_at_unix` 0.
    """

    manifest: Manifest
    folder: Path
    is_whole: bool
    byte_count: int
    sources: tuple[str, ...]
    pulled_at_unix: float

    @property
    def files(self) -> Path:
        """The folder of its files."""
        return self.folder / FILES


def store_folder() -> Path:
    """Where they are: `$XDG_CACHE_HOME/kakeya/pulled`, by default in ~/.cache."""
    return cache_base() / "pulled"


def stored_models() -> list[StoredModel]:
    """All of them, whole ones and others, by name."""
    folder = store_folder()
    found = [_read(each) for each in folder.iterdir()] if folder.is_dir() else []
    there = [each for each in found if each is not None]
    return sorted(there, key=lambda each: (each.manifest.model_id, not each.is_whole))


def stored(model_id: str) -> StoredModel | None:
    """The one of that name, if it is whole."""
    return _read(_entry(model_id))


def stored_place(model_id: str) -> Path | None:
    """Its folder in the hub's format, or its GGUF file; None where no pull brought it."""
    files = _entry(model_id) / FILES
    if not files.is_dir():
        return None
    gguf = next(files.glob(f"*{GGUF_SUFFIX}"), None)
    return files if gguf is None else gguf


def remove(model_id: str) -> int:
    """Removes what was pulled of a model, whole or not; the bytes that it had.

    Raises `ModelNotKept`, `ModelInUse` while it is pulled, `ModelCacheUnwritable`.
    """
    entry = _entry(model_id)
    part = _part_of(entry)
    try:
        there = [path for path in (entry, part) if path.is_dir()]
        if not there:
            known = ", ".join(each.manifest.model_id for each in stored_models()) or "none"
            raise ModelNotKept(
                f"no pull brought {model_id[:64]!r} to this machine; pulled: {known}",
                model_id=model_id[:64],
                kept=known,
            )
        with locked(store_folder(), entry.name, wait=False) as is_mine:
            if not is_mine:
                raise _in_use(model_id)
            byte_count = sum(_bytes_of(path) for path in there)
            for path in there:
                gone = path.with_name(f"{path.name}{GONE_SUFFIX}")
                shutil.rmtree(gone, ignore_errors=True)
                # At once for everybody who looks.
                path.rename(gone)
                shutil.rmtree(gone)
    except OSError as error:
        raise unwritable(store_folder(), model_id[:64], error) from error
    return byte_count


class PulledPart:
    """A model on its way onto the disk, which nobody else brings meanwhile.

    Pieces are written by any threads, each by one; all else by one thread at a time.
    """

    def __init__(self, manifest: Manifest) -> None:
        """Nothing is written before `open`."""
        self.manifest = manifest
        self._entry = _entry(manifest.model_id)
        self._folder = _part_of(self._entry)
        self._held = ExitStack()

    def open(self) -> None:
        """Makes room for all files, or goes on with those of an earlier pull of the same ones.

        Raises `ModelCacheUnwritable`, before a byte is written that has no room, and `ModelInUse`.
        """
        with ExitStack() as stack, self._told_errors():
            lock = locked(store_folder(), self._entry.name, wait=False)
            if not stack.enter_context(lock):
                raise _in_use(self.manifest.model_id)
            before = _read(self._folder)
            if before is None or before.manifest.digest != self.manifest.digest:
                shutil.rmtree(self._folder, ignore_errors=True)
            have = _allocated(self._folder)
            missing = max(0, self.manifest.byte_count - have)
            check_room(store_folder(), missing, self.manifest.model_id)
            self._lay_out()
            self._held = stack.pop_all()

    def close(self) -> None:
        """Lets others bring it; what was written stays for the next pull."""
        self._held.close()

    def written(self) -> Iterator[Piece]:
        """The pieces that an earlier pull left, right ones alone; reads all of them.

        Raises `ModelCacheUnwritable`.
        """
        with self._told_errors():
            hints = (self._folder / HAVE).read_bytes()
            for piece in self.manifest.pieces():
                if hints[piece.number : piece.number + 1] == b"\1" and self._is_right(piece):
                    yield piece

    def write(self, piece: Piece, data: bytes | memoryview) -> bool:
        """Writes one piece, if `data` is what its digest says. Raises `ModelCacheUnwritable`."""
        if len(data) != piece.byte_count or hashlib.sha256(data).digest() != piece.sha256:
            return False
        with self._told_errors():
            with (self._folder / FILES / piece.file).open("r+b") as file:
                file.seek(piece.offset)
                file.write(data)
            with (self._folder / HAVE).open("r+b") as hints:
                hints.seek(piece.number)
                hints.write(b"\1")
        return True

    def finish(self, sources: Collection[str]) -> StoredModel:
        """Makes it found, now that all pieces are written. Raises `ModelCacheUnwritable`."""
        with self._told_errors():
            (self._folder / HAVE).unlink()
            self._record(sources, time.time())
            flush(self._folder)
            shutil.rmtree(self._entry, ignore_errors=True)
            self._folder.rename(self._entry)
            flush_folder(self._entry.parent)
        found = _read(self._entry)
        assert found is not None  # renamed a moment ago, under the lock
        return found

    def _lay_out(self) -> None:
        files = self._folder / FILES
        for each in self.manifest.files:
            path = files / each.name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.stat().st_size != each.byte_count:
                with path.open("wb") as file:
                    _allocate(file.fileno(), each.byte_count)
        hints = self._folder / HAVE
        if not hints.exists():
            hints.write_bytes(bytes(self.manifest.piece_count))
        self._record((), 0.0)

    def _record(self, sources: Collection[str], now: float) -> None:
        manifest = self.manifest
        record = {
            "model_id": manifest.model_id,
            "piece_bytes": manifest.piece_bytes,
            "files": [[file.name, file.byte_count] for file in manifest.files],
            "digests": manifest.digests.hex(),
            "sources": sorted(sources),
            "pulled_at_unix": now,
        }
        (self._folder / RECORD).write_text(json.dumps(record))

    def _is_right(self, piece: Piece) -> bool:
        with (self._folder / FILES / piece.file).open("rb") as file:
            file.seek(piece.offset)
            return hashlib.sha256(file.read(piece.byte_count)).digest() == piece.sha256

    def _told_errors(self) -> _Told:
        return _Told(self.manifest.model_id)


class _Told:
    """Errors of the disk as what they mean for a model."""

    def __init__(self, model_id: str) -> None:
        self._model_id = model_id

    def __enter__(self) -> None:
        """Nothing yet."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError):
            raise unwritable(store_folder(), self._model_id[:64], error) from error


def flush_folder(folder: Path) -> None:
    """Brings the names in `folder` to the disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _allocate(number: int, byte_count: int) -> None:
    """Has the disk keep room for a file, where it can: else others may take it meanwhile."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(number, 0, byte_count)
        except OSError as error:
            if error.errno not in _NO_ALLOCATION:
                raise
        else:
            return
    os.truncate(number, byte_count)


def _entry(model_id: str) -> Path:
    """The folder of a model, whatever characters its name has."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", model_id)[:64].strip(".-")
    digest = hashlib.sha256(model_id.encode()).hexdigest()[:16]
    return store_folder() / f"{plain or 'model'}-{digest}"


def _part_of(entry: Path) -> Path:
    return entry.with_name(f"{entry.name}{PART_SUFFIX}")


def _read(folder: Path) -> StoredModel | None:
    """The model in `folder`; None for what is none."""
    if folder.name.endswith(GONE_SUFFIX):
        return None
    is_whole = not folder.name.endswith(PART_SUFFIX)
    try:
        record = json.loads((folder / RECORD).read_bytes())
        files = tuple(ModelFile(str(name), int(size)) for name, size in record["files"])
        manifest = Manifest(
            str(record["model_id"]),
            files,
            bytes.fromhex(record["digests"]),
            int(record["piece_bytes"]),
        )
        sources = tuple(map(str, record["sources"]))
        pulled_at = float(record["pulled_at_unix"])
        byte_count = manifest.byte_count if is_whole else _written_bytes(manifest, folder)
    except (OSError, ValueError, KeyError, TypeError, BadManifest):
        return None
    return StoredModel(manifest, folder, is_whole, byte_count, sources, pulled_at)


def _written_bytes(manifest: Manifest, folder: Path) -> int:
    hints = (folder / HAVE).read_bytes()
    return sum(each.byte_count for each, hint in zip(manifest.pieces(), hints) if hint)  # noqa: B905


def _bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in _files_in(folder))


def _allocated(folder: Path) -> int:
    """Bytes that its files take of the disk now."""
    return sum(path.stat().st_blocks * 512 for path in _files_in(folder))


def _files_in(folder: Path) -> Iterable[Path]:
    files = folder / FILES
    return [path for path in files.rglob("*") if path.is_file()] if files.is_dir() else []


def _in_use(model_id: str) -> ModelInUse:
    return ModelInUse(
        f"{model_id[:64]} is pulled or removed on this machine at this moment; wait for that",
        model_id=model_id[:64],
    )
