"""Where on this machine a model's files are, and which of them another machine needs."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from kakeya_fleet.engine.errors import ModelNotFound, ModelUnusable
from kakeya_fleet.engine.models.digests import WEIGHTS_INDEX, has_weights, weight_files
from kakeya_fleet.engine.models.gguf.source import (
    find_gguf,
    gguf_downloaded,
    gguf_here,
    names_gguf,
)
from kakeya_fleet.engine.models.hub_download import Progress, downloaded
from kakeya_fleet.engine.models.model_folder import (
    SHIPPED,
    TOKENIZER_PATTERNS,
    WEIGHTS_PATTERNS,
    folder_here,
    resolve,
)
from kakeya_fleet.engine.models.model_manifest import TEXT_SUFFIXES
from kakeya_fleet.engine.models.pulled_models import stored_place

GGUF_NAME = "model.gguf"
"""A GGUF file's name on its way, whatever it is called here."""
BESIDE = ("training.json", "restorer/config.json", "restorer/model.safetensors")
"""A drafter's manifest, and the learned map that lies in its folder."""


_TEXTS = (*TOKENIZER_PATTERNS, WEIGHTS_INDEX)


def place_of(spec: str) -> Path | None:
    """The folder or the GGUF file that a node loads for `spec`, if it is on this machine.

    `spec` as `engine.backends.model_sources.resolve_model` takes it. The network is not asked.
    """
    is_gguf = names_gguf(spec)
    try:
        if is_gguf:
            return gguf_here(spec).path
        folder = folder_here(spec)
    except ModelUnusable:
        return gguf_downloaded(spec) if is_gguf else None
    if folder is not None:
        return folder.path
    return downloaded(spec, (*TOKENIZER_PATTERNS, *WEIGHTS_PATTERNS))


def fetch(name: str, progress: Progress | None) -> None:
    """Brings a model of the hub into the hub's cache. Raises `ModelNotFound`."""
    if names_gguf(name):
        find_gguf(name, progress)
    else:
        resolve(name, progress=progress)


def is_here(name: str) -> bool:
    """Whether a name that means the same everywhere is of a model that needs no pull.

    A path is no such name, whatever lies there.
    """
    if name in SHIPPED or stored_place(name) is not None:
        return True
    return names_gguf(name) and not Path(name).exists() and place_of(name) is not None


def travelling_files(place: Path) -> dict[str, Path]:
    """What another machine needs of the model at `place`, by name: what loading reads.

    Raises `ModelNotFound` where that is no model, `WeightsMismatch` where weights are missing.
    """
    if place.is_file():
        return {GGUF_NAME: place}
    if not has_weights(place):
        raise ModelNotFound(f"{place} has no weights that could be copied", path=str(place))
    names = {path.name: path for path in _texts(place)}
    names |= {path.name: path for path in weight_files(place)}
    names |= {name: place / name for name in BESIDE if (place / name).is_file()}
    return {name: path for name, path in sorted(names.items()) if path.stat().st_size}


def _texts(folder: Path) -> Iterator[Path]:
    """Configs, tokenizers and templates; links of the hub's cache are followed."""
    for path in folder.iterdir():
        is_meant = any(
            fnmatchcase(path.name, each) for each in (*TOKENIZER_PATTERNS, WEIGHTS_INDEX)
        )
        if is_meant and path.suffix in TEXT_SUFFIXES and path.is_file():
            yield path
