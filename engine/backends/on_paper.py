"""What a model would be as a verifier, of its headers alone: no tensor is read or fetched."""

from __future__ import annotations

import importlib.util

from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
from kakeya_fleet.engine.errors import ModelUnusable
from kakeya_fleet.engine.models.gguf.source import gguf_here, names_gguf
from kakeya_fleet.engine.models.model_folder import folder_here, resolve_tokenizer
from kakeya_fleet.engine.models.own_dtype import AUTO

READERS = ("torch", "transformers")
"""What configs are read with, whatever computes."""


def read_on_paper(spec: str, *, dtype: str = AUTO) -> ModelOnPaper:
    """The model that `spec` names, as `model_sources.resolve_model` takes it.

    A file must be on this machine; of a model of the hub that is not here, config and tokenizer
    alone are fetched. `dtype`: `auto`, `float32` or `bfloat16`. Raises a `ModelUnusable`, also
    for a header that cannot be read.
    """
    missing = [name for name in READERS if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelUnusable(
            f"a model's config is read with torch, and {', '.join(missing)} is not installed:"
            " pip install 'kakeya-fleet[torch]'",
            model=spec,
        )
    if names_gguf(spec):
        file = gguf_here(spec)
        # Takes seconds to import, like all that knows the library's models.
        from kakeya_fleet.engine.backends.gguf.on_paper import gguf_on_paper  # noqa: PLC0415

        return gguf_on_paper(file, dtype)
    folder = folder_here(spec) or resolve_tokenizer(spec)
    from kakeya_fleet.engine.backends.torch_backend.on_paper import (  # noqa: PLC0415
        folder_on_paper,
    )

    return folder_on_paper(folder, dtype)
