"""Digests that name a model's weights and its tokenizer, and the files they cover."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from kakeya_fleet.engine.errors import ModelNotFound, WeightsMismatch
from kakeya_fleet.engine.models.weight_reading import weights_read

CHUNK_BYTES = 1 << 20
SINGLE_WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model")


def has_weights(folder: Path) -> bool:
    """Whether there are weights in `folder`, or something that names them."""
    return any((folder / name).is_file() for name in (SINGLE_WEIGHTS, WEIGHTS_INDEX))


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of the model in `folder`, sorted by name.

    Those that `model.safetensors.index.json` names, else `model.safetensors`.
    Raises `WeightsMismatch` when there are none, the index is unreadable, or a
    file it names is missing.
    """
    index = folder / WEIGHTS_INDEX
    if not index.is_file():
        single = folder / SINGLE_WEIGHTS
        if not single.is_file():
            raise WeightsMismatch(
                f"{folder} has no {SINGLE_WEIGHTS} and no {WEIGHTS_INDEX}; "
                "fetch the model's safetensors, or convert its weights",
                path=str(folder),
            )
        return (single,)
    names = _indexed_names(index)
    missing = sorted(name for name in names if not (folder / name).is_file())
    if missing:
        raise WeightsMismatch(
            f"{WEIGHTS_INDEX} names files that are not there: {', '.join(missing)}; "
            "fetch the model again",
            path=str(folder),
            missing=",".join(missing),
        )
    return tuple(folder / name for name in sorted(names))


def weight_bytes(folder: Path) -> int:
    """Bytes of all `weight_files`. Raises `WeightsMismatch`."""
    return sum(path.stat().st_size for path in weight_files(folder))


def _indexed_names(index: Path) -> set[str]:
    """The shards' file names in the index at `index`, none of them outside its folder."""
    try:
        entries = json.loads(index.read_bytes())["weight_map"]
        names = set(entries.values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsMismatch(
            f"{index} is not a weights index: {error}", path=str(index)
        ) from error
    strange = sorted(str(name) for name in names if str(name) != Path(str(name)).name)
    if strange or not names:
        raise WeightsMismatch(
            f"{index} names no files of its own folder: {', '.join(strange)}", path=str(index)
        )
    return {str(name) for name in names}


def weights_digest(folder: Path) -> str:
    """SHA-256, in hexadecimal digits, of the weights in `folder`.

    Covers, for each of `weight_files` in order: the name in UTF-8, a zero byte,
    the size as 8 bytes big-endian, the content. Raises `WeightsMismatch`.
    """
    digest = hashlib.sha256()
    for path in weight_files(folder):
        digest.update(path.name.encode() + b"\0" + path.stat().st_size.to_bytes(8, "big"))
        _feed(digest, path)
    return digest.hexdigest()


def tokenizer_digest(folder: Path) -> str:
    """SHA-256, in hexadecimal digits, of `tokenizer.json`, else of `tokenizer.model`.

    Raises `ModelNotFound` when `folder` has neither.
    """
    for name in TOKENIZER_FILES:
        path = folder / name
        if path.is_file():
            digest = hashlib.sha256()
            _feed(digest, path)
            return digest.hexdigest()
    raise ModelNotFound(
        f"{folder} has no {' and no '.join(TOKENIZER_FILES)}; add the model's tokenizer",
        path=str(folder),
    )


def _feed(digest: hashlib._Hash, path: Path) -> None:
    """Adds the content of `path` to `digest`, a chunk at a time."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            weights_read(len(chunk))
