"""What a model would be as a verifier, of its headers alone: no tensor is read or fetched."""

from __future__ import annotations

import importlib.util

from kakeya_fleet.engine.backends import AUTO as SUITED
from kakeya_fleet.engine.backends import folder_on_paper
from kakeya_fleet.engine.backends.model_sources import CONVERTERS
from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.models.gguf.source import gguf_here, names_gguf
from kakeya_fleet.engine.models.model_folder import ModelFolder, folder_here, resolve_tokenizer
from kakeya_fleet.engine.models.own_dtype import AUTO


def read_on_paper(spec: str, *, backend: str = SUITED, dtype: str = AUTO) -> ModelOnPaper:
    """The model that `spec` names, as `model_sources.resolve_model` takes it.

    A file must be on this machine; of a model of the hub that is not here, config and tokenizer
    alone are fetched. `backend` is what would compute. `dtype`: `auto`, `float32` or `bfloat16`.
    Raises a `ModelUnusable`, also for a header that cannot be read.
    """
    if not names_gguf(spec):
        folder = folder_here(spec) or resolve_tokenizer(spec)
        return folder_on_paper(folder, backend=backend, dtype=dtype)
    file = gguf_here(spec)
    missing = [name for name in CONVERTERS if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelUnusable(
            f"a GGUF file is read with torch, and {', '.join(missing)} is not installed:"
            " pip install 'kakeya-fleet[torch]'",
            path=str(file.path),
        )
    # Takes seconds to import, like all that knows the library's models.
    from kakeya_fleet.engine.backends.gguf.on_paper import gguf_on_paper  # noqa: PLC0415

    def read(folder: ModelFolder, number: str) -> ModelOnPaper:
        return folder_on_paper(folder, backend=backend, dtype=number)

    return gguf_on_paper(file, dtype, read)
