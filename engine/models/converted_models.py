"""Models that were converted, kept on the disk by the digest of the file they were made of."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from kakeya_fleet.engine.models.model_cache import (
    cache_base,
    check_room,
    flush,
    locked,
    unwritable,
)

CONVERSION = 1
"""Counts ways to convert: what another made is not taken for this one's."""
MANIFEST = "converted.json"
PART_SUFFIX = ".part"
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ConvertedModel:
    """One folder in the hub's format, and what it was made of."""

    name: str
    """What the model was called when it was made."""
    source: str
    """Path of the file."""
    sha256: str
    """Of the file, in hexadecimal digits."""
    stamp: str
    """Tells the file as it was from one that was changed: size, inode and times."""
    dtype: str
    byte_count: int
    """Of the weights' file in the folder."""
    made_at_unix: int


@dataclass(frozen=True, slots=True)
class Kept:
    """A converted model and its folder."""

    model: ConvertedModel
    folder: Path

    @property
    def byte_count(self) -> int:
        """Bytes of all its files."""
        return sum(file.stat().st_size for file in self.folder.iterdir())


def cache_folder() -> Path:
    """Where they are kept: `$XDG_CACHE_HOME/kakeya/models`, by default in ~/.cache."""
    return cache_base() / "models"


def kept_models() -> list[Kept]:
    """All that are there whole, by name."""
    folder = cache_folder()
    if not folder.is_dir():
        return []
    found = [_read(each) for each in folder.iterdir() if each.is_dir()]
    return sorted((each for each in found if each), key=lambda each: (each.model.name, each.folder))


def converted(
    source: Path,
    name: str,
    dtype: str,
    *,
    needed_bytes: int,
    weights: str,
    make: Callable[[Path], None],
) -> Path:
    """The folder that `make` has made of the file `source`, now or earlier.

    `make` gets an empty folder, and writes the file `weights` of some `needed_bytes` there.
    Of several that ask at once one makes it, and the others wait. What is half made is
    never found. Raises `ModelCacheUnwritable`, and what `make` raises.
    """
    stamp = _stamp(source)
    for kept in kept_models():
        if (kept.model.source, kept.model.stamp, kept.model.dtype) == (str(source), stamp, dtype):
            return kept.folder
    digest = _digest(source)
    folder = cache_folder() / f"{digest[:32]}-{dtype}-{CONVERSION}"
    try:
        with locked(folder.parent, folder.name, wait=True):
            if _read(folder) is None:
                check_room(folder.parent, needed_bytes, name)
                part = folder.with_name(f"{folder.name}{PART_SUFFIX}")
                # Of one who ended in the middle of it: nobody else makes it now.
                shutil.rmtree(part, ignore_errors=True)
                shutil.rmtree(folder, ignore_errors=True)
                part.mkdir()
                try:
                    make(part)
                    size = (part / weights).stat().st_size
                    made = ConvertedModel(
                        name, str(source), digest, stamp, dtype, size, int(time.time())
                    )
                    (part / MANIFEST).write_text(json.dumps(asdict(made), indent=2) + "\n")
                    flush(part)
                    part.rename(folder)
                finally:
                    shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise unwritable(folder.parent, name, error) from error
    return folder


def clear(kept: Kept) -> bool:
    """Removes `kept`; False if it is being made anew at this moment. Raises `ModelCacheUnwritable`.

    A node that has loaded it goes on: weights are in its memory.
    """
    try:
        with locked(kept.folder.parent, kept.folder.name, wait=False) as is_mine:
            if not is_mine:
                return False
            gone = kept.folder.with_name(f"{kept.folder.name}{PART_SUFFIX}")
            shutil.rmtree(gone, ignore_errors=True)
            # At once for everybody who looks.
            kept.folder.rename(gone)
            shutil.rmtree(gone)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise unwritable(kept.folder.parent, kept.model.name, error) from error
    return True


def _read(folder: Path) -> Kept | None:
    """The model in `folder`; None if it is not whole."""
    if folder.name.endswith(PART_SUFFIX):
        return None
    try:
        model = ConvertedModel(**json.loads((folder / MANIFEST).read_bytes()))
        sizes = [each.stat().st_size for each in folder.glob("*.safetensors")]
    except (OSError, ValueError, TypeError):
        return None
    return Kept(model, folder) if sizes == [model.byte_count] else None


def _stamp(path: Path) -> str:
    found = path.stat()
    return f"{found.st_size}-{found.st_ino}-{found.st_mtime_ns}-{found.st_ctime_ns}"


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
