"""From what a person calls a model to a folder in the hub's format, converted where it must be."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.models.converted_models import converted
from kakeya_fleet.engine.models.digests import SINGLE_WEIGHTS
from kakeya_fleet.engine.models.gguf.header import read_header
from kakeya_fleet.engine.models.gguf.own_dtype import gguf_dtype
from kakeya_fleet.engine.models.gguf.source import GgufFile, find_gguf, names_gguf
from kakeya_fleet.engine.models.hub_download import Progress
from kakeya_fleet.engine.models.model_folder import ModelFolder, resolve
from kakeya_fleet.engine.models.own_dtype import AUTO

CONVERTERS = ("torch", "transformers")
"""What converting needs, whatever computes."""


def resolve_model(
    spec: str,
    *,
    dtype: str = AUTO,
    progress: Progress | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> ModelFolder:
    """As `resolve`, and a GGUF file is converted into `dtype` once, and kept.

    `spec` is also a path to a .gguf, `smollm2`, or organisation/name:file.gguf of the hub.
    `progress` hears of (done, total) bytes of the download, then of the conversion. `meanwhile` is
    called in a thread of its own where a conversion begins, which does not wait for it, and raises
    nothing. Raises a `ModelUnusable`.
    """
    if not names_gguf(spec):
        return resolve(spec, progress=progress)
    return _converted(find_gguf(spec, progress), dtype, progress, meanwhile)


def _converted(
    file: GgufFile,
    dtype: str,
    progress: Progress | None,
    meanwhile: Callable[[], None] | None,
) -> ModelFolder:
    header = read_header(file.path)
    asked = gguf_dtype(header) if dtype == AUTO else dtype
    missing = [name for name in CONVERTERS if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelUnusable(
            f"a GGUF file is converted with torch, and {', '.join(missing)} is not installed:"
            " pip install 'kakeya-fleet[torch]'",
            path=str(file.path),
        )
    # Takes seconds to import, and only a conversion needs it.
    from kakeya_fleet.engine.backends.gguf.conversion import (  # noqa: PLC0415
        convert,
        converted_bytes,
    )

    folder = converted(
        file.path,
        file.model_id,
        asked,
        needed_bytes=converted_bytes(header, asked),
        weights=SINGLE_WEIGHTS,
        make=partial(_make, partial(convert, header), asked, progress, meanwhile),
    )
    return ModelFolder(folder, file.model_id)


def _make(
    convert: Callable[[Path, str, Progress | None], None],
    dtype: str,
    progress: Progress | None,
    meanwhile: Callable[[], None] | None,
    folder: Path,
) -> None:
    if meanwhile is not None:
        threading.Thread(target=meanwhile, name="meanwhile", daemon=True).start()
    convert(folder, dtype, progress)
