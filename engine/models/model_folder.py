"""From what a person calls a model to a folder in the hub's format."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from kakeya_fleet.engine.errors import ModelNotFound
from kakeya_fleet.engine.models.digests import tokenizer_digest, weights_digest
from kakeya_fleet.engine.models.gguf.source import check_gguf, gguf_id_of, names_gguf
from kakeya_fleet.engine.models.hub_download import Progress, download
from kakeya_fleet.engine.models.pulled_models import stored_place

__all__ = [
    "ModelFolder",
    "Progress",
    "resolve",
    "resolve_tokenizer",
    "tokenizer_digest",
    "vocabulary_size",
    "weights_digest",
]

_SHIPPED_FOLDER = Path(__file__).parents[1] / "shipped"
SHIPPED = {name: _SHIPPED_FOLDER / name for name in ("tiny", "tiny-dflash", "smollm2-dflash")}
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
TOKENIZER_PATTERNS = (
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "vocab.json",
    "merges.txt",
)
WEIGHTS_PATTERNS = ("model*.safetensors", "model.safetensors.index.json", "training.json")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder in the hub's format, and the name that requests use for it."""

    path: Path
    model_id: str


def resolve(spec: str, *, progress: Progress | None = None) -> ModelFolder:
    """The folder of the model that `spec` names.

    `spec` is `tiny` (shipped), a local folder (named by its last part), the name of a
    model that was pulled, or a hub id `organisation/name`, which is downloaded into the
    usual hub cache; HF_HOME and HF_HUB_OFFLINE are honoured. `progress` hears of
    (done bytes, total bytes) while downloading, from any thread. Raises
    `ModelNotFound`, which says why and how to mend it.
    """
    return _resolve(spec, (*TOKENIZER_PATTERNS, *WEIGHTS_PATTERNS), progress)


def resolve_tokenizer(spec: str, *, progress: Progress | None = None) -> ModelFolder:
    """As `resolve`, but of a hub id only config and tokenizer are downloaded."""
    return _resolve(spec, TOKENIZER_PATTERNS, progress)


def vocabulary_size(path: Path) -> int:
    """The `vocab_size` of the config in the folder `path`. Raises `ModelNotFound`."""
    try:
        size = json.loads((path / "config.json").read_bytes())["vocab_size"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelNotFound(
            f"{path}/config.json gives no vocab_size: {error}", path=str(path)
        ) from error
    if not isinstance(size, int) or size < 1:
        raise ModelNotFound(f"{path}/config.json: vocab_size is {size!r}", path=str(path))
    return size


def model_id_of(spec: str) -> str:
    """The name that requests will use for the model that `spec` names; looks at no files of it."""
    if names_gguf(spec):
        return gguf_id_of(spec)
    path = Path(spec).expanduser()
    if spec not in SHIPPED and spec and path.is_dir():
        return path.resolve().name
    return spec


def _resolve(spec: str, patterns: tuple[str, ...], progress: Progress | None) -> ModelFolder:
    folder = folder_here(spec)
    if folder is not None:
        return folder
    if names_gguf(spec):
        raise ModelNotFound(
            f"{spec} is a GGUF file, of which verifiers are made; a folder in the hub's format"
            " is needed here",
            model=spec,
        )
    return ModelFolder(_checked(download(spec, patterns, progress), spec), spec)


def folder_here(spec: str) -> ModelFolder | None:
    """The folder of a shipped, local or pulled model; None for a hub id and for a GGUF file.

    Raises `ModelNotFound` for what is none of them, and for a folder without a config.
    """
    if spec in SHIPPED:
        return ModelFolder(_checked(SHIPPED[spec], spec), spec)
    if names_gguf(spec):
        check_gguf(spec)
        return None
    path = Path(spec).expanduser()
    if spec and path.is_dir():
        return ModelFolder(_checked(path.resolve(), spec), path.resolve().name)
    pulled = stored_place(spec)
    if pulled is not None:
        return ModelFolder(_checked(pulled, spec), spec)
    if HUB_ID.fullmatch(spec) is None:
        raise ModelNotFound(
            f"no model {spec!r}: not a shipped one ({', '.join(SHIPPED)}), not a folder here, "
            "not pulled from another node, not a .gguf, and not a hub id of the form "
            "organisation/name",
            model=spec,
        )
    return None


def _checked(path: Path, spec: str) -> Path:
    """`path`, if it has a config."""
    if not (path / "config.json").is_file():
        raise ModelNotFound(
            f"{path} has no config.json: a folder in the hub's format is needed for {spec!r}",
            model=spec,
            path=str(path),
        )
    return path
