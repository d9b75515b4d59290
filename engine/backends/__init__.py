"""Back ends by name. Nothing above this package imports a tensor library."""

from __future__ import annotations

import importlib
from typing import Protocol, cast

from engine.errors import BadParameters
from engine.model_folder import ModelFolder
from engine.verifier import Verifier

BACKENDS = {"torch": "engine.backends.torch_backend"}
"""Module of each back end; it has `load_verifier` with the signature below."""


class _Backend(Protocol):
    def load_verifier(
        self, folder: ModelFolder, *, dtype: str, width: int, available_bytes: int | None
    ) -> Verifier: ...


def load_verifier(
    folder: ModelFolder,
    *,
    backend: str = "torch",
    dtype: str = "float32",
    width: int = 16,
    available_bytes: int | None = None,
) -> Verifier:
    """The model in `folder`, ready to verify. The first call imports the back end.

    `dtype`: `float32` or `bfloat16`, of weights and K/V. `width`: queries of
    every forward. `available_bytes`: memory the weights may take; what the
    machine has available if None. Raises a `ModelUnusable`, or `BadParameters`
    for an unknown back end, dtype or width.
    """
    if backend not in BACKENDS:
        raise BadParameters(f"no back end {backend!r}; there are: {', '.join(BACKENDS)}")
    module = cast(_Backend, importlib.import_module(BACKENDS[backend]))
    return module.load_verifier(folder, dtype=dtype, width=width, available_bytes=available_bytes)
